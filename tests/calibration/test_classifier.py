"""CalibratedClassifier: any classifier, out of fold, in every scikit-learn tool."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn import config_context
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    ShuffleSplit,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer.calibration import (
    CalibratedClassifier,
    ConformalSets,
    IsotonicCalibrator,
    MatrixScalingCalibrator,
    TemperatureCalibrator,
)
from uqformer.calibration._classifier import CALIBRATORS

NAMES = np.array(["ant", "bee", "cat"])
EXCUSED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "the halves for calibrator and sets are drawn by row, and a row of weight 2 is "
        "in one half where a row that is there twice may be in both"
    )
}
quiet = pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")


def data(n_rows=900, n_classes=3, seed=0):
    return make_classification(
        n_rows,
        8,
        n_informative=4,
        n_redundant=4,
        n_classes=n_classes,
        flip_y=0.2,
        random_state=seed,
    )


@quiet
@parametrize_with_checks(
    [
        CalibratedClassifier(LogisticRegression(), cv=3),
        CalibratedClassifier(GaussianNB(), "isotonic", cv=3, conformal="aps"),
    ],
    expected_failed_checks=lambda model: EXCUSED if model.conformal else {},
)
def test_classifier_keeps_the_contract_of_sklearn(estimator, check):
    check(estimator)


# -- What is calibrated -------------------------------------------------------------


@quiet
@pytest.mark.parametrize("name", sorted(CALIBRATORS))
@pytest.mark.parametrize("n_classes", [2, 3])
def test_every_calibrator_mends_a_classifier_that_is_too_sure(name, n_classes):
    X, y = data(2000, n_classes)
    plain = GaussianNB().fit(X[:1000], y[:1000])
    model = CalibratedClassifier(GaussianNB(), name).fit(X[:1000], y[:1000])
    assert type(model.calibrator_) is CALIBRATORS[name]
    proba = model.predict_proba(X[1000:])
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    assert log_loss(y[1000:], proba) < log_loss(y[1000:], plain.predict_proba(X[1000:]))


@quiet
@pytest.mark.parametrize(
    ("estimator", "kind"),
    [
        (LogisticRegression(), "logits"),
        (LinearSVC(), "logits"),
        (RandomForestClassifier(20, random_state=0), "proba"),
        (KNeighborsClassifier(15), "proba"),
        (make_pipeline(StandardScaler(), LogisticRegression()), "logits"),
        (make_pipeline(StandardScaler(), GaussianNB()), "proba"),
    ],
)
@pytest.mark.parametrize("n_classes", [2, 3])
def test_what_was_calibrated_is_recorded(estimator, kind, n_classes):
    X, y = data(300, n_classes)
    model = CalibratedClassifier(estimator).fit(X, y)
    assert model.calibrated_quantity_ == kind
    assert model.calibrator_.input_ == kind
    proba, decision = model.predict_proba(X), model.decision_function(X)
    if n_classes == 2:
        np.testing.assert_allclose(expit(decision), proba[:, 1])
    else:
        np.testing.assert_allclose(softmax(decision, axis=1), proba)
    np.testing.assert_array_equal(model.predict(X), proba.argmax(axis=1))


def test_a_temperature_changes_no_decision():
    X, y = data()
    model = CalibratedClassifier(GaussianNB()).fit(X, y)
    assert model.calibrator_.temperature_ > 1.2
    plain = GaussianNB().fit(X, y)
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))
    np.testing.assert_array_equal(
        model.estimator_.predict_proba(X), plain.predict_proba(X)
    )


@pytest.mark.parametrize(
    ("estimator", "method", "name"),
    [
        (GaussianNB(), "temperature", "temperature"),
        (LinearSVC(), "temperature", "temperature"),
        # of probabilities theirs fits a sigmoid, ours one of their log-odds
        (LinearSVC(), "sigmoid", "platt"),
    ],
)
def test_scikit_learn_calibrates_alike(estimator, method, name):
    X, y = data(1500, 2)
    theirs = CalibratedClassifierCV(estimator, method=method, cv=5, ensemble=False)
    ours = CalibratedClassifier(estimator, name, cv=5).fit(X, y)
    expected = theirs.fit(X, y).predict_proba(X)
    np.testing.assert_allclose(ours.predict_proba(X), expected, atol=5e-3)


def test_our_calibrated_logits_are_what_scikit_learn_calibrates():
    X, y = data(1500)
    ours = CalibratedClassifier(GaussianNB()).fit(X[:1000], y[:1000])
    again = CalibratedClassifierCV(FrozenEstimator(ours), method="temperature")
    again.fit(X[1000:], y[1000:])
    np.testing.assert_allclose(again.predict_proba(X), ours.predict_proba(X), atol=0.06)


# -- Frozen and split ---------------------------------------------------------------


def test_a_frozen_classifier_is_calibrated_as_it_is():
    X, y = data()
    guest = GaussianNB().fit(X[:300], y[:300])
    model = CalibratedClassifier(FrozenEstimator(guest)).fit(X[300:], y[300:])
    by_hand = TemperatureCalibrator().fit(guest.predict_proba(X[300:]), y[300:])
    np.testing.assert_allclose(
        model.predict_proba(X), by_hand.transform(guest.predict_proba(X))
    )
    assert model.estimator_.estimator is guest


@quiet
def test_calibration_rows_may_lack_a_class_of_a_frozen_classifier():
    X, y = data()
    guest = GaussianNB().fit(X, NAMES[y])
    some = y != 1
    model = CalibratedClassifier(FrozenEstimator(guest)).fit(X[some], NAMES[y[some]])
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.predict_proba(X).shape == (900, 3)
    with pytest.raises(ValueError, match="'dog', which is not among"):
        model.fit(X[:2], ["ant", "dog"])


def test_one_split_calibrates_the_model_it_keeps():
    X, y = data()
    cv = ShuffleSplit(1, test_size=0.4, random_state=0)
    model = CalibratedClassifier(GaussianNB(), cv=cv).fit(X, y)
    ((train, test),) = cv.split(X)
    plain = GaussianNB().fit(X[train], y[train])
    by_hand = TemperatureCalibrator().fit(plain.predict_proba(X[test]), y[test])
    np.testing.assert_allclose(
        model.predict_proba(X), by_hand.transform(plain.predict_proba(X))
    )


def test_a_calibrator_handed_in_is_left_alone():
    X, y = data(n_classes=2)
    mine = MatrixScalingCalibrator(regularization=3.0)
    model = CalibratedClassifier(GaussianNB(), mine).fit(X, NAMES[y])
    assert not hasattr(mine, "classes_")
    assert mine.input == "auto"
    assert model.calibrator_.regularization == 3.0
    assert model.calibrator_.classes_.tolist() == ["ant", "bee"]


# -- Sets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conformal", "calibrator"),
    [
        ("lac", "temperature"),
        pytest.param("aps", "isotonic", marks=pytest.mark.slow),
        pytest.param("raps", "matrix", marks=pytest.mark.slow),
    ],
)
def test_sets_of_a_frozen_classifier_cover_exactly(conformal, calibrator):
    X, y = data(500 + 200 * 120, seed=3)
    guest = FrozenEstimator(GaussianNB().fit(X[:500], y[:500]))
    n, n_new, hits = 80, 40, []
    for k in range(200):
        rows = slice(500 + 120 * k, 500 + 120 * k + n)
        new = slice(rows.stop, rows.stop + n_new)
        sets = ConformalSets(conformal, allow_empty=True)
        model = CalibratedClassifier(guest, calibrator, conformal=sets, random_state=k)
        found = model.fit(X[rows], y[rows]).predict_set(X[new], 0.8)
        hits.append(found[np.arange(n_new), y[new]].mean())
    expected = 33 / 41  # of 40 rows, half of the 80, the 33rd score
    margin = 4 * np.std(hits) / np.sqrt(200)
    assert np.mean(hits) == pytest.approx(expected, abs=margin)


def test_sets_over_folds_cover_near_the_level():
    hits = []
    for seed in range(30):
        X, y = data(700, seed=seed)
        model = CalibratedClassifier(GaussianNB(), conformal="lac", random_state=0)
        found = model.fit(X[:300], y[:300]).predict_set(X[300:], [0.8, 0.95])
        assert found.shape == (400, 3, 2)
        hits.append(found[np.arange(400), y[300:]].mean(axis=0))
    np.testing.assert_allclose(np.mean(hits, axis=0), [0.8, 0.95], atol=0.03)


def test_half_of_the_held_out_rows_are_for_the_sets():
    X, y = data(301)
    model = CalibratedClassifier(GaussianNB(), conformal="aps", random_state=0)
    model.fit(X, y)
    assert len(model.conformal_.scores_) == 151
    again = clone(model).fit(X, y)
    np.testing.assert_array_equal(model.predict_set(X), again.predict_set(X))


def test_without_conformal_there_are_no_sets():
    X, y = data(100)
    model = CalibratedClassifier(GaussianNB()).fit(X, y)
    assert not hasattr(model, "predict_set")
    with pytest.raises(AttributeError, match="predict_set"):
        model.predict_set(X)
    model.set_params(conformal="lac")
    with pytest.raises(NotFittedError):
        model.predict_set(X)


# -- Weights, routing, mappings -----------------------------------------------------


class Weighed(ClassifierMixin, BaseEstimator):
    """Remembers what fit was given."""

    def fit(self, X, y, sample_weight=None, extra=None):
        self.weights_, self.extra_ = sample_weight, extra
        self.classes_ = np.unique(y)
        self.rows_ = X["ids"] if isinstance(X, dict) else X
        return self

    def predict_proba(self, X):
        n_rows = len(X["ids"]) if isinstance(X, dict) else len(X)
        shares = np.linspace(0.2, 0.8, n_rows)
        return np.column_stack([1 - shares, shares])


def test_weights_reach_classifier_and_calibrator():
    X, y = data(300, 2)
    weights = np.where(y == 1, 3.0, 0.5)
    model = CalibratedClassifier(Weighed(), "platt").fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(model.estimator_.weights_, weights)
    share = np.average(model.predict_proba(X)[:, 1], weights=weights)
    assert share == pytest.approx(np.average(y, weights=weights), abs=0.05)


def test_fit_parameters_reach_the_classifier_through_the_folds():
    X, y = data(60, 2)
    model = CalibratedClassifier(Weighed(), "platt", cv=ShuffleSplit(1, random_state=0))
    model.fit(X, y, extra=np.arange(60))
    ((train, _),) = ShuffleSplit(1, random_state=0).split(X)
    np.testing.assert_array_equal(model.estimator_.extra_, train)


def test_weights_that_a_classifier_does_not_take_are_refused():
    X, y = data(60, 2)
    for estimator in (KNeighborsClassifier(), make_pipeline(GaussianNB())):
        with pytest.raises(TypeError, match="enable metadata routing"):
            CalibratedClassifier(estimator).fit(X, y, sample_weight=np.ones(60))


def test_metadata_routing_reaches_a_step_of_a_pipeline_and_the_splitter():
    X, y = data(120, 2)
    weights, groups = np.random.default_rng(0).uniform(size=120), np.arange(120) % 4
    with config_context(enable_metadata_routing=True):
        scaler = StandardScaler().set_fit_request(sample_weight=False)
        inner = Weighed().set_fit_request(sample_weight=True, extra=True)
        model = CalibratedClassifier(
            make_pipeline(scaler, inner),
            "platt",
            cv=GroupKFold(4).set_split_request(groups=True),
        ).set_fit_request(sample_weight=True)
        model.fit(X, y, sample_weight=weights, extra=weights, groups=groups)
        fitted = model.estimator_[-1]
        np.testing.assert_array_equal(fitted.weights_, weights)
        np.testing.assert_array_equal(fitted.extra_, weights)


def test_mappings_and_texts_are_cut_row_by_row():
    y = np.arange(40) % 2
    mapping = {"ids": np.arange(40), "mask": np.ones((40, 3))}
    model = CalibratedClassifier(Weighed(), "platt").fit(mapping, y)
    np.testing.assert_array_equal(model.estimator_.rows_, np.arange(40))
    assert model.predict_proba(mapping).shape == (40, 2)
    texts = [f"text {k}" for k in range(40)]
    assert CalibratedClassifier(Weighed(), "platt").fit(texts, y).predict(texts).size


# -- In scikit-learn's tools --------------------------------------------------------


@quiet
def test_text_labels_frames_one_row_and_pickle():
    X, y = data(200)
    frame = pd.DataFrame(X, columns=[f"f{k}" for k in range(8)])
    model = CalibratedClassifier(GaussianNB(), conformal="lac", random_state=0)
    model.fit(frame, NAMES[y])
    assert model.feature_names_in_.tolist() == frame.columns.tolist()
    assert model.n_features_in_ == 8
    assert model.predict(frame[:1]).tolist()[0] in NAMES
    assert model.predict_set(frame[:1]).shape == (1, 3)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict_proba(frame), model.predict_proba(frame))


@quiet
def test_pipelines_and_searches_go_around_and_inside():
    X, y = data(200)
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    outer = make_pipeline(StandardScaler(), CalibratedClassifier(inner, cv=3))
    grid = {
        "calibratedclassifier__calibrator": ["temperature", IsotonicCalibrator()],
        "calibratedclassifier__estimator__logisticregression__C": [0.1, 10.0],
    }
    search = GridSearchCV(outer, grid, scoring="neg_log_loss", cv=3)
    search.fit(X, NAMES[y])
    assert search.best_estimator_.predict_proba(X).shape == (200, 3)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    around = CalibratedClassifier(GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9]}))
    scores = cross_val_score(around, X, NAMES[y], cv=3)
    assert (scores > 0.4).all()


@pytest.mark.parametrize(
    ("params", "sentence"),
    [
        ({"calibrator": "temperture"}, "'calibrator' parameter"),
        ({"calibrator": GaussianNB()}, "'calibrator' parameter"),
        ({"estimator": StandardScaler()}, "'estimator' parameter"),
        ({"conformal": "best"}, "'conformal' parameter"),
    ],
)
def test_parameters_are_checked(params, sentence):
    X, y = data(60)
    with pytest.raises(ValueError, match=sentence):
        CalibratedClassifier(GaussianNB()).set_params(**params).fit(X, y)


def test_one_class_is_refused():
    with pytest.raises(ValueError, match=r"at least two classes in y; got 1 class"):
        CalibratedClassifier(GaussianNB()).fit(np.ones((9, 2)), ["a"] * 9)
