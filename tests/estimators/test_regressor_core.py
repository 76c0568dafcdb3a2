"""Fitting: scales, seeds, weights, what is warned of, and whether intervals cover."""

import copy
import warnings
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import binom
from sklearn.linear_model import LinearRegression
from torch import Tensor, nn

from tests.estimators.conftest import TINY, Guest, tiny
from uqformer import StochasticAttentionRegressor
from uqformer.backbones import FrozenBackbone, FTTransformer
from uqformer.exceptions import UQFormerWarning

Data = tuple[np.ndarray, np.ndarray]


def test_the_scales_come_from_the_training_rows_alone(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    model = tiny().fit(X, y)
    n_train = 80 - 8 - 16
    assert model.feature_scaler_.scaler_.n_samples_seen_ == n_train
    assert len(model.calibration_.validation) == 8
    assert len(model.calibration_.calibration) == 16
    assert model.target_center_[0] != pytest.approx(y.mean(), rel=1e-9)


def test_residual_std_is_the_error_on_calibration_rows(fitted: Any) -> None:
    rows = fitted.calibration_.calibration
    scale, center = fitted.target_scale_, fitted.target_center_
    error = (rows.y - rows.exact) * scale
    assert fitted.residual_std_ == pytest.approx(np.sqrt((error**2).mean()))
    # the held-out targets are those of the user: undo the scaling
    assert np.isin(
        np.round(rows.y * scale + center, 6), np.round(_all_targets(fitted), 6)
    ).all()


def _all_targets(fitted: Any) -> np.ndarray:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(80, 3))
    noise = 0.05 + 0.2 * (X[:, 0] + 1)
    return 2 * X[:, 0] - X[:, 1] + noise * rng.standard_normal(80)


def test_units_of_the_target_do_not_matter(heteroscedastic: Data, fitted: Any) -> None:
    X, y = heteroscedastic
    model = tiny().fit(X, 1e6 * y - 5e5)
    np.testing.assert_allclose(
        model.predict_interval(X, 0.5),
        1e6 * fitted.predict_interval(X, 0.5) - 5e5,
        rtol=1e-3,
        atol=1e3,
    )


def test_the_seed_is_the_only_source_of_chance(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    twins = [tiny(random_state=3).fit(X, y).predict_std(X) for _ in range(2)]
    np.testing.assert_array_equal(*twins)
    assert not np.array_equal(twins[0], tiny(random_state=4).fit(X, y).predict_std(X))


def test_rows_of_weight_zero_are_left_out(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    weight = np.ones(len(y))
    weight[60:] = 0
    nonsense = np.where(weight > 0, y, 1e6)
    model = tiny().fit(X, nonsense, sample_weight=weight)
    np.testing.assert_allclose(model.predict(X), tiny().fit(X[:60], y[:60]).predict(X))
    with pytest.raises(ValueError, match=r"At least 5 rows .* got 2 of 80"):
        tiny().fit(X, y, sample_weight=[1, 1] + [0] * 78)
    with pytest.raises(ValueError, match=r"Negative values"):
        tiny().fit(X, y, sample_weight=-np.ones(80))


def test_weights_pull_the_fit() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (200, 2))
    low = rng.random(200) < 0.5
    y = np.where(low, -1.0, 1.0) + 0.01 * rng.standard_normal(200)
    weight = np.where(low, 10.0, 0.1)
    model = tiny(max_epochs=20).fit(X, y, sample_weight=weight)
    assert model.predict(X).mean() < -0.8


def test_constant_columns_and_targets_are_told(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    padded = np.column_stack([X, np.full(len(X), 3.0)])
    with pytest.warns(UQFormerWarning, match=r"1 columns that are constant.*\[3\]"):
        model = tiny().fit(padded, y)
    changed = padded.copy()
    changed[:, 3] = 1e3
    np.testing.assert_array_equal(model.predict(changed), model.predict(padded))
    with pytest.raises(ValueError, match=r"At least one column must vary"):
        tiny().fit(np.ones_like(X), y)
    with pytest.warns(UQFormerWarning, match=r"y is constant at"):
        model = tiny().fit(X, np.full(len(y), 7.0))
    np.testing.assert_allclose(model.predict(X), 7.0, atol=1.0)


def test_constant_columns_of_any_kind_are_told_by_name(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["flat"] = 3
    frame["word"] = "same"
    frame["gap"] = np.where(np.arange(len(y)) % 2, 1.0, np.nan)
    expected = r"2 columns that are constant: \['flat', 'word'\]"
    with pytest.warns(UQFormerWarning, match=expected):
        model = tiny().fit(frame, y)
    changed = frame.assign(flat=9, word="other")
    np.testing.assert_array_equal(model.predict(changed), model.predict(frame))
    filled = frame.assign(gap=1.0)
    assert not np.allclose(model.predict(filled), model.predict(frame))
    # a backbone that takes numbers alone has its columns looked at too
    padded = np.column_stack([X, np.full(len(X), 3.0)])
    other = tiny(backbone=Guest, backbone_params=None)
    with pytest.warns(UQFormerWarning, match=r"1 columns that are constant: \[3\]"):
        other.fit(padded, y)


def test_a_step_at_which_all_windows_agree_is_no_news() -> None:
    """Windows taken as changes from their last value are 0 there."""
    windows = np.random.default_rng(0).normal(size=(40, 8))
    windows[:, -1] = 0
    small = {"d_token": 8, "n_blocks": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error", UQFormerWarning)
        tiny(backbone="sequence", backbone_params=small).fit(windows, windows[:, 0])


class Wrong(Guest):
    """Gives the hidden states instead of predictions."""

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.encoder(self.lift(x[..., None]))
        return hidden


def test_backbones_that_do_not_fit(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    bare = {"backbone_params": None}
    with pytest.raises(ValueError, match=r"must return shape .* \(2, 3, 8\)"):
        tiny(backbone=Wrong(), **bare).fit(X, y)
    with pytest.raises(ValueError, match=r"Sequential.*layers"):
        tiny(backbone=nn.Sequential(nn.Linear(3, 1)), **bare).fit(X, y)
    with pytest.raises(ValueError, match=r"Did you mean 'ft_transformer'"):
        tiny(backbone="ft_transfomer").fit(X, y)
    with pytest.raises(ValueError, match=r"'backbone' parameter"):
        tiny(backbone=3).fit(X, y)


def test_callables_build_backbones(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    by_class = tiny(backbone=FTTransformer).fit(X, y)
    by_partial = tiny(
        backbone=partial(FTTransformer, **TINY["backbone_params"]), backbone_params=None
    ).fit(X, y)
    np.testing.assert_array_equal(by_class.predict(X), by_partial.predict(X))
    assert tiny(backbone=Guest, backbone_params=None).fit(X, y).predict(X).shape == (
        80,
    )


def test_windows_of_a_series_go_to_a_backbone_that_takes_them() -> None:
    class Windows(Guest):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[:, :, 0])

    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 3, 2))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = tiny(backbone=Windows(), backbone_params=None)
    model.fit(X, X[:, :, 0].sum(axis=1))
    assert model.predict_interval(X, 0.5).shape == (60, 2)
    with pytest.raises(ValueError, match=r"dim 3"):
        tiny().fit(X, X[:, 0, 0])


def test_a_flat_guest_output_is_one_output(guest: Guest, heteroscedastic: Data) -> None:
    class Flat(Guest):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x)[:, 0]

    X, y = heteroscedastic
    flat = Flat()
    flat.load_state_dict(guest.state_dict())
    models = [
        tiny(backbone=FrozenBackbone(m), backbone_params=None).fit(X, y)
        for m in (flat, guest)
    ]
    np.testing.assert_array_equal(*(m.predict_interval(X, 0.5) for m in models))


def test_it_learns() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 4))
    y = np.sin(2 * X[:, 0]) * X[:, 1] + 0.05 * rng.standard_normal(600)
    model = tiny(max_epochs=60).fit(X[:500], y[:500])
    line = LinearRegression().fit(X[:500], y[:500]).score(X[500:], y[500:])
    assert model.score(X[500:], y[500:]) > 0.9 > 0.3 > line
    losses = [epoch["valid_loss"] for epoch in model.history_]
    assert min(losses) < 0.2 * losses[0]


def test_marginal_coverage_over_many_small_resamples(guest: Guest) -> None:
    """40 rows calibrate a guest, 20 judge: 150 times, pooled inside a binomial band."""
    rng = np.random.default_rng(1)
    levels = np.array([0.5, 0.8, 0.9])
    hits = np.zeros(3)
    n_resamples, n_test = 150, 20
    model = tiny(
        backbone=FrozenBackbone(guest), backbone_params=None, calibration_fraction=0.35
    )
    for seed in range(n_resamples):
        X = rng.standard_normal((40 + n_test, 3))
        y = X[:, 0] + (0.1 + np.abs(X[:, 1])) * rng.standard_t(3, 40 + n_test)
        fitted = copy.copy(model).set_params(random_state=seed).fit(X[:40], y[:40])
        ends = fitted.predict_interval(X[40:], levels)
        inside = (ends[:, 0] <= y[40:, None]) & (y[40:, None] <= ends[:, 1])
        hits += inside.mean(axis=0) * n_test
    n_calibration = len(fitted.calibration_.calibration)
    expected = np.ceil((n_calibration + 1) * levels) / (n_calibration + 1)
    # rows of a resample share its calibration: their coverage is beta distributed
    variance = expected * (1 - expected) * (1 / n_test + 1 / (n_calibration + 2))
    bound = 4 * np.sqrt(variance / n_resamples)
    assert (np.abs(hits / (n_resamples * n_test) - expected) < bound).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
def test_defaults_cover_on_real_tables(uci_dir: Any) -> None:
    n_covered = n_rows = 0
    for name in ("concrete", "energy", "yacht", "wine_red"):
        with np.load(uci_dir / f"{name}.npz", allow_pickle=False) as data:
            X, y, train, test = (
                data[key] for key in ("X", "y", "train_idx", "test_idx")
            )
        model = StochasticAttentionRegressor(max_epochs=40, random_state=0)
        model.fit(X[train[1]], y[train[1]])
        ends = model.predict_interval(X[test[1]])
        n_covered += int(
            ((ends[:, 0] <= y[test[1]]) & (y[test[1]] <= ends[:, 1])).sum()
        )
        n_rows += len(test[1])
    low, high = binom.ppf([1e-3, 1 - 1e-3], n_rows, 0.9)
    assert low <= n_covered <= high
