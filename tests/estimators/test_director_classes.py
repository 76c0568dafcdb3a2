"""The verbs of a classifier by chains, against the chains themselves."""

import copy

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import binom

from tests.estimators.conftest import Guest
from tests.estimators.director_models import (
    classes,
    fitted_classifier,
    tiny_classifier,
)
from uqformer._random import seeded
from uqformer.backbones import FrozenBackbone
from uqformer.exceptions import InsufficientCalibrationError

BARE = {"backbone_params": None, "student_share": 2.0}

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def test_probabilities_are_the_mean_of_chains_at_the_temperature() -> None:
    X, _ = classes()
    model = fitted_classifier()
    ensemble = model.predict_ensemble(X)
    assert ensemble.members.shape == (3, 90, 3)
    proba = model.predict_proba(X)
    expected = softmax(np.log(ensemble.mean_proba()) / model.temperature_, axis=1)
    np.testing.assert_allclose(proba, expected, atol=1e-6)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), proba)
    np.testing.assert_array_equal(
        model.predict(X), model.classes_[proba.argmax(axis=1)]
    )
    np.testing.assert_allclose(softmax(model.decision_function(X), axis=1), proba)
    assert model.score(X, classes()[1]) == np.mean(model.predict(X) == classes()[1])
    bare = copy.copy(model).set_params(calibration=None)
    np.testing.assert_allclose(bare.predict_proba(X), ensemble.mean_proba(), atol=1e-6)
    assert bare.temperature_ == 1


def test_two_classes_have_odds() -> None:
    X, y = classes()
    two = y != "cat"
    model = tiny_classifier(distil_epochs=1).fit(X[two], y[two])
    log_proba = model.predict_log_proba(X)
    odds = model.decision_function(X)
    assert odds.shape == (90,)
    np.testing.assert_allclose(odds, log_proba[:, 1] - log_proba[:, 0])
    np.testing.assert_array_equal(model.predict(X), model.classes_[(odds > 0) * 1])


def test_doubt_and_where_it_grows() -> None:
    X, _ = classes()
    model = fitted_classifier()
    doubt, ensemble = model.predict_uncertainty(X), model.predict_ensemble(X)
    np.testing.assert_allclose(doubt.total, ensemble.entropy(), atol=1e-6)
    np.testing.assert_allclose(doubt.aleatoric, ensemble.expected_entropy(), atol=1e-6)
    np.testing.assert_allclose(
        doubt.epistemic, ensemble.mutual_information(), atol=1e-6
    )
    assert doubt.epistemic.min() > 0
    assert doubt.representation.shape == (90, 2)
    assert (np.diff(doubt.representation, axis=1) > 0).all()
    np.testing.assert_allclose(model.score_samples(X), -doubt.total, atol=1e-6)


def test_the_backbone_is_still_there() -> None:
    X, y = classes()
    with seeded(0):
        guest = Guest(n_outputs=3)
    names = ["cat", "ant", "bee"]  # not sorted: the columns are brought in order
    frozen = FrozenBackbone(guest, classes=names)
    model = tiny_classifier(backbone=frozen, **BARE).fit(X, y)
    with torch.no_grad():
        logits = guest.eval()(torch.from_numpy(X).float()).double().numpy()
    assert model.classes_.tolist() == sorted(names)
    np.testing.assert_allclose(
        model.backbone_proba(X), softmax(logits, axis=1)[:, [1, 2, 0]], atol=1e-6
    )


def test_a_student_learns_columns_in_the_order_of_its_guest() -> None:
    X, y = classes(300)
    with seeded(0):
        guest = Guest(n_outputs=3)
    frozen = FrozenBackbone(guest, classes=["cat", "ant", "bee"])
    model = tiny_classifier(
        backbone=frozen, distil_epochs=60, soft_labels=0.0, **BARE
    ).fit(X, y)
    assert model.score(X, y) > 0.6


def test_sets_cover() -> None:
    X, y = classes(1200, seed=1)
    model = tiny_classifier(max_epochs=3, distil_epochs=3, calibration_fraction=0.5)
    model.fit(X[:400], y[:400])
    sets = model.predict_set(X[400:], [0.7, 0.9])
    assert sets.shape == (800, 3, 2)
    truth = np.searchsorted(model.classes_, y[400:])
    hits = sets[np.arange(800), truth].sum(axis=0)
    # the coverage itself varies with the 200 calibration rows: standard error 0.04
    low = binom.ppf(0.001, 800, [0.7 - 0.1, 0.9 - 0.07])
    high = binom.ppf(0.999, 800, [0.7 + 0.12, 0.9 + 0.07])
    assert (low <= hits).all()
    assert (hits <= high).all()
    np.testing.assert_array_equal(model.predict_set(X[400:410], 0.9), sets[:10, :, 1])


def test_without_calibration_rows_there_are_no_sets() -> None:
    model = tiny_classifier(conformal=None, distil_epochs=1).fit(*classes())
    assert not hasattr(model, "predict_set")
    assert len(model.calibration_.calibration) == 0
    assert "conformal" not in model.fit_times_
    model.set_params(conformal="lac")
    with pytest.raises(InsufficientCalibrationError, match="conformal=None"):
        model.predict_set(classes()[0])
    with pytest.raises(AttributeError) as refused:
        tiny_classifier(conformal=None).predict_set  # noqa: B018
    assert "needs conformal=" in str(refused.value.__cause__)


def test_weights_and_rare_classes() -> None:
    X, y = classes()
    rare = np.where(np.arange(90) == 5, "rare", y)
    model = tiny_classifier(class_weight="balanced", distil_epochs=1).fit(X, rare)
    assert model.predict_proba(X).shape == (90, 4)
    kept = y != "bee"
    weighted = tiny_classifier(distil_epochs=1).fit(X, y, sample_weight=kept)
    without = tiny_classifier(distil_epochs=1).fit(X[kept], y[kept])
    assert weighted.classes_.tolist() == ["ant", "cat"]
    np.testing.assert_allclose(weighted.predict_proba(X), without.predict_proba(X))
