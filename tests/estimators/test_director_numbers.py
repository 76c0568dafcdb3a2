"""The verbs of a regressor by chains, against the chains themselves."""

import copy

import numpy as np
import pytest
import torch
from scipy.stats import binom

from tests.estimators.conftest import Guest
from tests.estimators.director_models import (
    fitted_regressor,
    numbers,
    tiny_regressor,
)
from uqformer._random import seeded
from uqformer.backbones import FrozenBackbone
from uqformer.exceptions import InsufficientCalibrationError

BARE = {"backbone_params": None, "student_share": 2.0}


def test_the_point_is_a_walk_without_noise() -> None:
    X, _ = numbers()
    model = fitted_regressor()
    ensemble = model.predict_ensemble(X)
    assert ensemble.members.shape == (3, 90)
    point, std = model.predict(X, return_std=True)
    with torch.no_grad():
        exact = model.module_(torch.from_numpy(model._validate_new(X)))
    exact = model.target_center_ + model.target_scale_ * exact.double().numpy()
    np.testing.assert_allclose(point, exact[:, 0], atol=1e-5)
    apart = np.sqrt(((ensemble.members - point) ** 2).mean(axis=0))
    np.testing.assert_allclose(std, apart, atol=1e-5)
    np.testing.assert_array_equal(model.predict(X), point)
    np.testing.assert_array_equal(model.predict_std(X), std)
    assert std.min() > 0


def test_intervals_are_centred_and_nested() -> None:
    X, _ = numbers()
    model = fitted_regressor()
    ends = model.predict_interval(X, [0.5, 0.8])
    assert ends.shape == (90, 2, 2)
    np.testing.assert_allclose(ends[..., 0].mean(axis=1), model.predict(X), atol=1e-6)
    assert (ends[:, 0, 1] <= ends[:, 0, 0]).all()
    np.testing.assert_allclose(model.predict_interval(X, 0.5), ends[..., 0])
    quantiles = model.predict_quantiles(X, [0.25, 0.5, 0.75])
    np.testing.assert_allclose(quantiles[:, [0, 2]], ends[..., 0], atol=1e-6)
    np.testing.assert_allclose(quantiles[:, 1], model.predict(X), atol=1e-6)


def test_intervals_cover() -> None:
    X, y = numbers(1200, seed=1)
    model = tiny_regressor(max_epochs=3, distil_epochs=3, calibration_fraction=0.5)
    model.fit(X[:400], y[:400])
    ends = model.predict_interval(X[400:], 0.9)
    hits = ((ends[:, 0] <= y[400:]) & (y[400:] <= ends[:, 1])).sum()
    # the coverage itself varies with the 200 calibration rows: standard error 0.02
    assert binom.ppf(0.001, 800, 0.83) <= hits <= binom.ppf(0.999, 800, 0.97)


def test_intervals_of_the_chains_alone() -> None:
    X, y = numbers()
    model = tiny_regressor(interval="ensemble", distil_epochs=1).fit(X, y)
    assert len(model.calibration_.calibration) == 0
    np.testing.assert_allclose(
        model.predict_interval(X, 0.5), model.predict_ensemble(X).interval(0.5)
    )
    model.set_params(interval="conformal")
    with pytest.raises(InsufficientCalibrationError, match="interval='ensemble'"):
        model.predict_interval(X)


def test_several_outputs() -> None:
    X, y = numbers()
    both = np.column_stack([y, 100 - 50 * y])
    model = tiny_regressor().fit(X, both)
    assert model.predict(X).shape == model.predict_std(X).shape == (90, 2)
    assert model.predict_interval(X, [0.5, 0.8]).shape == (90, 2, 2, 2)
    assert model.predict_quantiles(X, 0.5).shape == (90, 2)
    assert model.predict_ensemble(X).members.shape == (3, 90, 2)
    assert model.residual_std_.shape == (2,)
    assert model.predict(X)[:, 1].mean() > 50


def test_losses_are_relative_to_the_targets() -> None:
    """In any unit a guest's student is taught the same."""
    X, y = numbers()
    histories = []
    for unit in (1.0, 1000.0):
        with seeded(0):
            guest = Guest(n_outputs=1)
        with torch.no_grad():
            for parameter in guest.head.parameters():
                parameter *= unit
        model = tiny_regressor(backbone=FrozenBackbone(guest), head="frozen", **BARE)
        histories.append(model.fit(X, unit * y).history_)
    for one, other in zip(*histories, strict=True):
        assert one == pytest.approx(other, rel=1e-3)


def test_the_backbone_is_still_there() -> None:
    X, _ = numbers()
    model = fitted_regressor()
    with torch.no_grad():
        output = model.backbone_(torch.from_numpy(model._validate_new(X)))[:, 0]
    expected = model.target_center_ + model.target_scale_ * output.double().numpy()
    np.testing.assert_allclose(model.backbone_predict(X), expected, rtol=1e-6)
    assert model.target_scale_[0] != 1


@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_a_guest_speaks_the_unit_of_y(unit: float) -> None:
    """The loss is relative to the targets, so the student learns in any unit."""
    X, y = numbers(200)
    with seeded(0):
        guest = Guest(n_outputs=1)
        with torch.no_grad():
            guest.head.weight *= unit
            guest.head.bias *= unit
    before = np.mean((unit * y) ** 2)
    model = tiny_regressor(
        backbone=FrozenBackbone(guest), distil_epochs=40, n_draws=64, **BARE
    ).fit(X, unit * y)
    assert np.mean((model.predict(X) - unit * y) ** 2) < 0.6 * before
    with torch.no_grad():
        exact = guest.eval()(torch.from_numpy(X).float())[:, 0].double().numpy()
    np.testing.assert_allclose(model.backbone_predict(X), exact, rtol=1e-5)


def test_weights_of_rows() -> None:
    X, y = numbers()
    kept = np.arange(90) % 3 > 0
    weighted = tiny_regressor(distil_epochs=1).fit(X, y, sample_weight=kept)
    without = tiny_regressor(distil_epochs=1).fit(X[kept], y[kept])
    np.testing.assert_allclose(weighted.predict(X), without.predict(X), rtol=1e-6)


def test_chains_may_be_changed_after_fit() -> None:
    X, _ = numbers()
    model = copy.copy(fitted_regressor()).set_params(n_chains=5)
    assert model.predict_ensemble(X).members.shape == (5, 90)
    assert model.predict_interval(X, 0.5).shape == (90, 2)
