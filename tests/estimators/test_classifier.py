"""The verbs of StochasticAttentionClassifier: agreement, settings, tools."""

import copy
import pickle
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.estimators.conftest import TINY, tiny_classifier
from uqformer.backbones import FrozenBackbone
from uqformer.scorers import get_scorer

Data = tuple[np.ndarray, np.ndarray]

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


@pytest.fixture(scope="module")
def binary(three_classes: Data) -> Any:
    X, y = three_classes
    return tiny_classifier().fit(X, y == "cat")


# -- What the numbers mean ----------------------------------------------------------


def test_probabilities_are_the_members_at_the_temperature(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, _ = three_classes
    model = fitted_classifier
    members = model.predict_ensemble(X)
    powers = members.mean_proba() ** (1 / model.temperature_)
    by_hand = powers / powers.sum(axis=1, keepdims=True)
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba, by_hand, rtol=1e-5)
    np.testing.assert_allclose(proba.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[proba.argmax(1)])
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(proba))
    assert members.members.shape == (4, 120, 3)
    assert model.temperature_ != 1


def test_logits_give_the_probabilities_back(
    fitted_classifier: Any, binary: Any, three_classes: Data
) -> None:
    X, _ = three_classes
    logits = fitted_classifier.decision_function(X)
    np.testing.assert_allclose(
        softmax(logits, axis=1), fitted_classifier.predict_proba(X)
    )
    margin = binary.decision_function(X)
    assert margin.shape == (120,)
    np.testing.assert_allclose(expit(margin), binary.predict_proba(X)[:, 1])
    np.testing.assert_array_equal(margin > 0, binary.predict(X))


def test_uncertainty_is_that_of_the_ensemble(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, _ = three_classes
    doubt, members = (
        fitted_classifier.predict_uncertainty(X),
        fitted_classifier.predict_ensemble(X),
    )
    np.testing.assert_allclose(doubt.total, members.entropy(), rtol=1e-5)
    np.testing.assert_allclose(doubt.aleatoric, members.expected_entropy(), rtol=1e-5)
    np.testing.assert_allclose(
        doubt.epistemic, members.mutual_information(), rtol=1e-3, atol=1e-6
    )
    assert doubt.epistemic.max() > 1e-3
    # rows where classes meet are doubted most
    gap = np.diff(np.sort(X, axis=1)[:, -2:])[:, 0]
    assert np.corrcoef(gap, doubt.total)[0, 1] < -0.2


def test_sets_hold_the_first_class_and_grow_with_the_level(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, _ = three_classes
    sets = fitted_classifier.predict_set(X, [0.5, 0.8, 0.9])
    assert sets.shape == (120, 3, 3)
    assert sets.dtype == bool
    first = fitted_classifier.predict_proba(X).argmax(axis=1)
    assert sets[np.arange(120), first].all()
    assert (np.diff(sets.astype(int), axis=2) >= 0).all()
    np.testing.assert_array_equal(fitted_classifier.predict_set(X), sets[..., 2])
    with pytest.raises(ValueError, match=r"For 90 % pass 0.9"):
        fitted_classifier.predict_set(X, 90)


def test_without_calibration_probabilities_are_the_mean(three_classes: Data) -> None:
    X, y = three_classes
    model = tiny_classifier(calibration=None).fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X), model.predict_ensemble(X).mean_proba(), rtol=1e-5
    )
    assert model.temperature_ == 1
    assert set(model.fit_times_) == {"training", "conformal"}


def test_rows_do_not_depend_on_their_batch(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, _ = three_classes
    small = copy.copy(fitted_classifier).set_params(predict_batch_size=7)
    whole = fitted_classifier.predict_proba(X)
    np.testing.assert_allclose(small.predict_proba(X), whole, rtol=1e-4)
    np.testing.assert_allclose(
        fitted_classifier.predict_proba(X[5:6]), whole[5:6], rtol=1e-4
    )


# -- Settings that act at prediction ------------------------------------------------


def test_changed_settings_calibrate_anew(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, y = three_classes
    settings = {"n_draws": 2, "n_members": 6, "layers": [0], "conformal": "aps"}
    changed = copy.deepcopy(fitted_classifier).set_params(**settings)
    fresh = tiny_classifier(**settings).fit(X, y)
    np.testing.assert_allclose(
        changed.predict_proba(X), fresh.predict_proba(X), rtol=1e-5
    )
    np.testing.assert_array_equal(changed.predict_set(X), fresh.predict_set(X))
    assert changed.temperature_ == fresh.temperature_
    assert changed.temperature_ != fitted_classifier.temperature_


def test_auto_may_be_asked_for_after_fit(
    fitted_classifier: Any, three_classes: Data
) -> None:
    later = copy.deepcopy(fitted_classifier).set_params(n_draws="auto")
    model = tiny_classifier(n_draws="auto").fit(*three_classes)
    assert model.n_draws_ == later.n_draws_
    losses = model.calibration_.search(model._passes(model.module_)).losses
    assert model.n_draws_ in losses
    stages = {"training", "search", "temperature", "conformal"}
    assert set(model.fit_times_) == stages


def test_fewer_draws_disagree_more_without_a_refit(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, _ = three_classes
    model = copy.deepcopy(fitted_classifier).set_params(n_members=20)
    doubts = [
        model.set_params(n_draws=n).predict_uncertainty(X).epistemic.mean()
        for n in (1, 16, 256, None)
    ]
    assert doubts[0] > 2 * doubts[1] > 4 * doubts[2] > doubts[3] == 0


# -- Guests and copies --------------------------------------------------------------


def test_a_guest_is_shared_and_left_as_it_came(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, y = three_classes
    guest = copy.deepcopy(fitted_classifier.module_).train()
    before = copy.deepcopy(guest.state_dict())
    model = tiny_classifier(backbone=FrozenBackbone(guest), backbone_params=None)
    model.fit(X, y)
    assert model.module_ is clone(model).backbone.module is guest
    assert guest.training
    assert not hasattr(model, "history_")
    assert all((guest.state_dict()[k] == v).all() for k, v in before.items())


def test_copies_predict_the_same(
    fitted_classifier: Any, three_classes: Data, tmp_path: Any
) -> None:
    X, _ = three_classes
    joblib.dump(fitted_classifier, tmp_path / "model.joblib")
    for twin in (
        pickle.loads(pickle.dumps(fitted_classifier)),
        joblib.load(tmp_path / "model.joblib"),
    ):
        np.testing.assert_array_equal(
            twin.predict_proba(X), fitted_classifier.predict_proba(X)
        )
        np.testing.assert_array_equal(
            twin.predict_set(X), fitted_classifier.predict_set(X)
        )
    assert not hasattr(clone(fitted_classifier), "module_")


def test_frames_keep_their_names(three_classes: Data) -> None:
    X, y = three_classes
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = tiny_classifier(max_epochs=3).fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert model.n_features_in_ == 3
    assert model.predict(frame[:1]).shape == (1,)


# -- scikit-learn's tools -----------------------------------------------------------


def test_grid_search_over_a_pipeline(three_classes: Data) -> None:
    X, y = three_classes
    search = GridSearchCV(
        make_pipeline(StandardScaler(), tiny_classifier()),
        {"stochasticattentionclassifier__n_draws": [2, 64]},
        scoring="neg_log_loss",
        cv=2,
        n_jobs=2,
        error_score="raise",
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.best_params_["stochasticattentionclassifier__n_draws"] == 64
    scorer = get_scorer("neg_expected_calibration_error")
    assert -1 <= scorer(search, X, y) <= 0


def test_wrappers_of_scikit_learn(three_classes: Data) -> None:
    X, y = three_classes
    inner = tiny_classifier(max_epochs=20)
    for wrapper in (
        CalibratedClassifierCV(inner, method="sigmoid", cv=2),
        VotingClassifier(
            [("ours", inner), ("line", LogisticRegression())], voting="soft"
        ),
    ):
        proba = wrapper.fit(X, y).predict_proba(X)
        np.testing.assert_allclose(proba.sum(axis=1), 1)
        assert wrapper.score(X, y) > 0.6
    proba = cross_val_predict(inner, X, y, cv=2, method="predict_proba")
    assert log_loss(y, proba) < np.log(3)


# -- Real tables --------------------------------------------------------------------


def test_breast_cancer_end_to_end() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:400], order[400:]
    model = tiny_classifier(max_epochs=25, n_members=8).fit(X[train], y[train])
    bare = copy.copy(model).set_params(calibration=None)
    assert model.score(X[test], y[test]) > 0.93
    losses = np.array(
        [
            -np.log(m.predict_proba(X[test])[np.arange(len(test)), y[test]])
            for m in (model, bare)
        ]
    )
    worse = losses[0] - losses[1]
    assert worse.mean() <= 2 * worse.std() / np.sqrt(len(worse))
    sets = model.predict_set(X[test])
    assert sets[np.arange(len(test)), y[test]].mean() > 0.85


@pytest.mark.slow
def test_digits_end_to_end() -> None:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:1300], order[1300:]
    params = TINY["backbone_params"]
    model = tiny_classifier(max_epochs=25, backbone_params=params, n_draws=256)
    model.fit(X[train], y[train])
    assert model.score(X[test], y[test]) > 0.93
    sets = model.predict_set(X[test], 0.95)
    covered = sets[np.arange(len(test)), y[test]].sum()
    # calibration rows and test rows both vary: four standard deviations below
    sd = np.sqrt(0.95 * 0.05 * (1 / len(test) + 1 / 260))
    assert covered / len(test) > 0.95 - 4 * sd
