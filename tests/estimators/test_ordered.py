"""Rows in the order of time: what each estimator trains and calibrates on."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import betabinom
from sklearn.base import is_classifier

from tests.estimators.conftest import TINY, tiny, tiny_classifier
from uqformer import DirectorClassifier, DirectorRegressor
from uqformer.backbones import FrozenBackbone, FTTransformer
from uqformer.metrics import coverage_score

Array = NDArray[np.float64]

DISTILLED: dict[str, Any] = {
    "backbone_params": TINY["backbone_params"],
    "max_epochs": 2,
    "distil_epochs": 2,
    "n_chains": 3,
    "n_draws": 8,
    "performance_weight": 10.0,
    "random_state": 0,
}

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def _director(kind: type, **changes: Any) -> Any:
    return kind(**(DISTILLED | changes))


MAKERS = {
    "regressor": tiny,
    "classifier": tiny_classifier,
    "director regressor": lambda **changes: _director(DirectorRegressor, **changes),
    "director classifier": lambda **changes: _director(DirectorClassifier, **changes),
}


def _series(n_rows: int) -> tuple[Array, Array]:
    """Rows that know their own number, and targets without a trend."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.arange(n_rows), rng.standard_normal((n_rows, 2))])
    return X, X[:, 1] + rng.standard_normal(n_rows)


def _numbers(model: Any, x: Any) -> list[int]:
    """Read the rows' own numbers off scaled inputs."""
    mean, scale = model.feature_scaler_.mean_[0], model.feature_scaler_.scale_[0]
    return sorted(np.rint(x[:, 0] * scale + mean).astype(int).tolist())


@pytest.mark.parametrize("kind", MAKERS)
def test_the_last_rows_calibrate(kind: str) -> None:
    X, y = _series(108)
    model = MAKERS[kind](shuffle=False, embargo=4)
    targets = np.where(y > 0, "up", "down") if is_classifier(model) else y
    model.set_params(backbone=_of_columns, backbone_params=None).fit(X, targets)
    held = model.calibration_
    # 100 rows are left: 70, 10 and 20
    assert _numbers(model, held.validation.x) == list(range(74, 84))
    assert _numbers(model, held.calibration.x) == list(range(88, 108))
    np.testing.assert_allclose(model.feature_scaler_.mean_, X[:70].mean(axis=0))


def _of_columns(n_features: int, n_outputs: int) -> Any:
    """A backbone that takes plain columns, which a StandardScaler scales."""
    return FTTransformer(n_features, n_outputs, **TINY["backbone_params"])


@pytest.mark.parametrize("kind", MAKERS)
def test_all_estimators_check_both_parameters(kind: str) -> None:
    X, y = _series(40)
    targets = y > 0 if "classifier" in kind else y
    with pytest.raises(ValueError, match="'embargo' parameter"):
        MAKERS[kind](shuffle=False, embargo=-1).fit(X, targets)
    with pytest.raises(ValueError, match="'shuffle' parameter"):
        MAKERS[kind](shuffle="no").fit(X, targets)
    with pytest.raises(ValueError, match="embargo=3 with shuffle=True"):
        MAKERS[kind](embargo=3).fit(X, targets)


@pytest.mark.parametrize("kind", ["classifier", "director classifier"])
def test_a_class_that_comes_late_is_named(kind: str) -> None:
    X, _ = _series(60)
    labels = np.array(["early"] * 30 + ["late"] * 30)
    with pytest.raises(ValueError, match="the first 21; got none of class 'late'"):
        MAKERS[kind](shuffle=False, calibration_fraction=0.55).fit(X, labels)


def test_a_class_that_goes_early_is_calibrated_without() -> None:
    X, _ = _series(60)
    labels = np.array(["gone", "stays"] * 15 + ["stays"] * 30)
    model = tiny_classifier(shuffle=False).fit(X, labels)
    assert model.predict_proba(X).shape == (60, 2)
    assert np.isfinite(model.predict_log_proba(X)).all()
    assert model.predict_set(X, 0.9).shape == (60, 2)


def _noisier_later(n_rows: int, seed: int) -> tuple[Array, Array]:
    """Noise that is three times as large from 70 % of the rows on."""
    rng = np.random.default_rng(seed)
    noise = np.where(np.arange(n_rows) < 0.7 * n_rows, 1.0, 3.0)
    return rng.uniform(-1, 1, (n_rows, 2)), noise * rng.standard_normal(n_rows)


def test_where_noise_grows_only_late_rows_tell_how_wide_to_be() -> None:
    X, y = _noisier_later(1000, 0)
    rng = np.random.default_rng(1)
    X_new, y_new = rng.uniform(-1, 1, (1000, 2)), 3 * rng.standard_normal(1000)
    shuffled, ordered = (
        coverage_score(y_new, tiny(shuffle=shuffle).fit(X, y).predict_interval(X_new))
        for shuffle in (True, False)
    )
    # 0.9 of a mixture is 0.68 of its noisy part; late rows are like those to come:
    # given 200 of them the share is Beta(181, 20) distributed
    low, high = betabinom(1000, 181, 20).interval(0.9999)
    assert low <= 1000 * ordered <= high
    assert shuffled < 0.78 < low / 1000


def test_a_frozen_guest_keeps_the_order_too(guest: Any) -> None:
    X, y = _series(63)
    model = tiny(
        backbone=FrozenBackbone(guest), backbone_params=None, shuffle=False, embargo=3
    ).fit(X, y)
    held = model.calibration_
    assert sorted(held.validation.x[:, 0]) == list(range(20))
    assert sorted(held.calibration.x[:, 0]) == list(range(23, 63))
