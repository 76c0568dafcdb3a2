"""What every calibrator keeps to: scikit-learn's contract, shapes, labels, weights."""

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import log_softmax, softmax
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer.calibration import (
    BaseCalibrator,
    BetaCalibrator,
    DirichletCalibrator,
    HistogramBinningCalibrator,
    IsotonicCalibrator,
    MatrixScalingCalibrator,
    PlattCalibrator,
    TemperatureCalibrator,
    VectorScalingCalibrator,
)

CALIBRATORS = [
    BetaCalibrator(),
    DirichletCalibrator(),
    HistogramBinningCalibrator(),
    HistogramBinningCalibrator(strategy="quantile"),
    IsotonicCalibrator(),
    MatrixScalingCalibrator(),
    PlattCalibrator(),
    TemperatureCalibrator(),
    VectorScalingCalibrator(),
]
BLOBS = (
    "the check has three labels and two columns, but predictions have a column for "
    "each label"
)
EXCUSED = dict.fromkeys(
    [
        "check_estimators_fit_returns_self",
        "check_estimators_overwrite_params",
        "check_readonly_memmap_input",
    ],
    BLOBS,
)

every_calibrator = pytest.mark.parametrize("calibrator", CALIBRATORS, ids=str)
pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def predictions(n_rows=600, n_classes=3, seed=0):
    """Logits that are twice too large, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_rows, n_classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return 2 * logits, y


def log_loss(proba, y):
    return -np.mean(np.log(proba[np.arange(len(y)), y]))


@parametrize_with_checks(CALIBRATORS, expected_failed_checks=lambda _: EXCUSED)
def test_calibrator_keeps_the_contract_of_sklearn(estimator, check):
    check(estimator)


@every_calibrator
def test_the_excused_checks_hold_for_predictions(calibrator):
    logits, y = predictions(60)
    logits.setflags(write=False)
    params = clone(calibrator).get_params()
    fitted = clone(calibrator)
    assert fitted.fit(logits, y) is fitted
    assert fitted.get_params() == params


@every_calibrator
@pytest.mark.parametrize("kind", ["logits", "proba"])
def test_rows_sum_to_one_and_the_log_loss_falls(calibrator, kind):
    logits, y = predictions(4000)
    X = logits if kind == "logits" else softmax(logits, axis=1)
    fitted = clone(calibrator).fit(X[:2000], y[:2000])
    assert fitted.input_ == kind
    proba = fitted.transform(X[2000:])
    assert proba.dtype == np.float64
    assert proba.shape == (2000, 3)
    assert (proba > 0).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert log_loss(proba, y[2000:]) < log_loss(softmax(logits, axis=1), y) - 0.02


@every_calibrator
def test_logits_and_their_probabilities_are_calibrated_alike(calibrator):
    logits, y = predictions()
    from_logits = clone(calibrator).set_params(input="logits").fit(logits, y)
    from_proba = clone(calibrator).fit(softmax(logits, axis=1), y)
    np.testing.assert_allclose(
        from_logits.transform(logits),
        from_proba.transform(softmax(logits, axis=1)),
        rtol=1e-4,
        atol=1e-6,
    )


@every_calibrator
@pytest.mark.parametrize("n_classes", [2, 3])
def test_calibrated_logits_are_those_of_the_probabilities(calibrator, n_classes):
    logits, y = predictions(n_classes=n_classes)
    fitted = clone(calibrator).fit(logits, y)
    proba = fitted.transform(logits)
    decision = fitted.decision_function(logits)
    if n_classes == 2:
        assert decision.shape == (600,)
        np.testing.assert_allclose(1 / (1 + np.exp(-decision)), proba[:, 1])
    else:
        np.testing.assert_allclose(softmax(decision, axis=1), proba)


@every_calibrator
@pytest.mark.parametrize("kind", ["logits", "proba"])
def test_one_column_goes_in_and_one_comes_out(calibrator, kind):
    logits, y = predictions(n_classes=2)
    odds = logits[:, 1] - logits[:, 0]
    X = odds if kind == "logits" else 1 / (1 + np.exp(-odds))
    wide = logits if kind == "logits" else softmax(logits, axis=1)
    fitted = clone(calibrator).set_params(input=kind).fit(X, y)
    both = clone(calibrator).set_params(input=kind).fit(wide, y)
    expected = both.transform(wide)[:, 1]
    flat, column = fitted.transform(X), fitted.transform(X[:, None])
    assert flat.shape == (600,)
    assert column.shape == (600, 1)
    np.testing.assert_allclose(flat, expected, rtol=1e-6)
    np.testing.assert_array_equal(column[:, 0], flat)
    by_column = clone(fitted).fit(X[:, None], y)
    np.testing.assert_allclose(by_column.transform(X), flat)


@every_calibrator
def test_a_column_that_may_be_either_must_be_named(calibrator):
    X, y = np.linspace(0.1, 0.9, 20), np.arange(20) % 2
    with pytest.raises(ValueError, match="input must be 'logits' or 'proba'"):
        clone(calibrator).fit(X, y)
    clone(calibrator).set_params(input="logits").fit(X, y)
    clone(calibrator).set_params(input="proba").fit(X, y)


@every_calibrator
def test_the_kind_is_settled_in_fit_and_not_by_the_batch(calibrator):
    logits, y = predictions()
    fitted = clone(calibrator).fit(logits, y)
    looks_like_proba = np.array([[0.2, 0.3, 0.5]])
    # a batch of logits that sums to 1 is still logits, common shifts do not count
    np.testing.assert_allclose(
        fitted.transform(looks_like_proba), fitted.transform(looks_like_proba + 7)
    )
    fitted = clone(calibrator).fit(softmax(logits, axis=1), y)
    with pytest.raises(ValueError, match="must lie in"):
        fitted.transform([[0.2, 3.0, -1.0]])


@every_calibrator
def test_a_class_missing_from_the_rows_keeps_its_column(calibrator):
    logits, y = predictions(n_classes=4)
    seen = y != 2
    for labels, classes in [
        (y, None),
        (np.array(list("abcd"))[y], list("abcd")),
    ]:
        fitted = clone(calibrator).set_params(classes=classes)
        proba = fitted.fit(logits[seen], labels[seen]).transform(logits)
        assert proba.shape == (600, 4)
        assert np.isfinite(proba).all()
        assert proba[:, 2].mean() < 0.5 * softmax(logits, axis=1)[:, 2].mean() or (
            isinstance(calibrator, TemperatureCalibrator)
        )


@every_calibrator
def test_text_labels_and_frames(calibrator):
    logits, y = predictions()
    names = np.array(["ant", "bee", "cat"])
    frame = pd.DataFrame(logits, columns=names)
    fitted = clone(calibrator).set_output(transform="pandas").fit(frame, names[y])
    assert fitted.classes_.tolist() == names.tolist()
    assert fitted.get_feature_names_out().tolist() == names.tolist()
    proba = fitted.transform(frame)
    assert proba.columns.tolist() == names.tolist()
    expected = clone(calibrator).fit(logits, y).transform(logits)
    np.testing.assert_allclose(proba.to_numpy(), expected)


@every_calibrator
def test_the_order_of_classes_is_the_order_of_columns(calibrator):
    logits, y = predictions()
    names = np.array(["cat", "ant", "bee"])
    fitted = clone(calibrator).set_params(classes=names).fit(logits, names[y])
    expected = clone(calibrator).fit(logits, y).transform(logits)
    np.testing.assert_allclose(fitted.transform(logits), expected)


@every_calibrator
def test_one_row_is_enough_to_run(calibrator):
    fitted = clone(calibrator).fit([[2.0, -1.0, 0.0]], [0])
    proba = fitted.transform([[2.0, -1.0, 0.0]])
    assert np.isfinite(proba).all()
    assert proba.sum() == pytest.approx(1)


@every_calibrator
def test_single_precision_changes_nothing_but_digits(calibrator):
    logits, y = predictions()
    proba = softmax(logits, axis=1).astype(np.float32)
    fitted = clone(calibrator).fit(proba, y.astype(np.int16))
    exact = clone(calibrator).fit(proba.astype(np.float64), y)
    assert fitted.transform(proba).dtype == np.float64
    np.testing.assert_allclose(
        fitted.transform(proba), exact.transform(proba), rtol=1e-5
    )


@every_calibrator
def test_a_pickle_and_a_pipeline_say_the_same(calibrator):
    logits, y = predictions()
    fitted = clone(calibrator).fit(logits, y)
    expected = fitted.transform(logits)
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(logits), expected)
    pipeline = make_pipeline("passthrough", clone(calibrator)).fit(logits, y)
    np.testing.assert_array_equal(pipeline.transform(logits), expected)


@every_calibrator
def test_wrong_input_is_told_in_a_sentence(calibrator):
    logits, y = predictions(30)
    with pytest.raises(ValueError, match="NaN"):
        clone(calibrator).fit(np.where(logits > 2, np.nan, logits), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        clone(calibrator).fit(logits, y + 0.5)
    with pytest.raises(ValueError, match="no negative weight"):
        clone(calibrator).fit(logits, y, sample_weight=-np.ones(30))
    with pytest.raises(ValueError, match="'input' parameter"):
        clone(calibrator).set_params(input="odds").fit(logits, y)
    with pytest.raises(NotFittedError):
        clone(calibrator).transform(logits)
    fitted = clone(calibrator).fit(logits, y)
    with pytest.raises(ValueError, match=re.escape("expecting 3 features")):
        fitted.transform(logits[:, :2])


def test_a_calibrator_of_ones_own_needs_two_methods():
    class Nothing(BaseCalibrator):
        def _fit_logits(self, logits, codes, weights):
            self.seen_ = logits.shape, codes.tolist(), weights.tolist()

        def _map_logits(self, logits):
            return log_softmax(logits, axis=1)

    calibrator = Nothing().fit([[0.3, 0.7]], [1], sample_weight=[2.0])
    assert calibrator.seen_ == ((1, 2), [1], [2.0])
    np.testing.assert_allclose(calibrator.transform([[0.3, 0.7]]), [[0.3, 0.7]])
