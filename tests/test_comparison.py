"""compare_intervals: one point, four uncertainties, and the model as it was before."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from uqformer import StochasticAttentionRegressor
from uqformer.comparison import compare_intervals
from uqformer.exceptions import InsufficientCalibrationError
from uqformer.metrics import (
    coverage_score,
    crps_loss,
    mean_interval_width,
    regression_report,
    winkler_loss,
)

Array = NDArray[np.float64]

METHODS = ["stochastic attention", "+ conformal", "normal", "split conformal"]
LEVEL = 0.8


def _fitted(X: Array, y: Array, **changes: Any) -> Any:
    params = {"d_token": 16, "n_heads": 2, "n_blocks": 2}
    regressor = StochasticAttentionRegressor(
        max_epochs=3, n_members=4, n_draws=8, backbone_params=params, random_state=0
    )
    return regressor.set_params(**changes).fit(X, y)


def _rows(n_rows: int, seed: int) -> tuple[Array, Array]:
    """A line whose noise grows from left to right."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n_rows, 3))
    return X, 2 * X[:, 0] + 0.3 * (X[:, 1] + 1.2) * rng.standard_normal(n_rows)


@pytest.fixture(scope="module")
def model() -> Any:
    return _fitted(*_rows(260, 0))


@pytest.fixture(scope="module")
def new() -> tuple[Array, Array]:
    return _rows(60, 1)


@pytest.fixture(scope="module")
def reports(model: Any, new: tuple[Array, Array]) -> dict[str, dict[str, float]]:
    return compare_intervals(model, *new, confidence_level=LEVEL, random_state=0)


def _judged(y: Array, y_interval: Array) -> dict[str, float]:
    return {
        "coverage": float(coverage_score(y, y_interval)),
        "width": float(np.mean(mean_interval_width(y_interval))),
        "winkler": winkler_loss(y, y_interval, confidence_level=LEVEL),
    }


def test_four_rows_of_the_same_columns(reports: dict[str, dict[str, float]]) -> None:
    assert list(reports) == METHODS
    columns = ["rmse", "crps", "coverage", "width", "winkler", "pit_w1"]
    assert [list(report) for report in reports.values()] == [columns] * 4
    assert np.isfinite([list(report.values()) for report in reports.values()]).all()


def test_all_share_one_point(
    model: Any, new: tuple[Array, Array], reports: dict[str, dict[str, float]]
) -> None:
    X, y = new
    rmse = np.sqrt(np.mean((model.predict(X) - y) ** 2))
    assert [report["rmse"] for report in reports.values()] == pytest.approx([rmse] * 4)


def test_bare_members_are_judged_as_they_are(
    model: Any, new: tuple[Array, Array], reports: dict[str, dict[str, float]]
) -> None:
    X, y = new
    expected = regression_report(
        y,
        model.predict_ensemble(X),
        y_pred=model.predict(X),
        confidence_level=LEVEL,
        random_state=0,
    )
    assert reports["stochastic attention"] == pytest.approx(expected)


def test_conformal_intervals_are_those_of_the_model(
    model: Any, new: tuple[Array, Array], reports: dict[str, dict[str, float]]
) -> None:
    X, y = new
    expected = _judged(y, model.predict_interval(X, LEVEL))
    assert reports["+ conformal"] == pytest.approx(reports["+ conformal"] | expected)


def test_the_normal_is_as_wide_as_the_error(
    model: Any, new: tuple[Array, Array], reports: dict[str, dict[str, float]]
) -> None:
    X, y = new
    half = norm.ppf((1 + LEVEL) / 2) * model.residual_std_
    point = model.predict(X)
    expected = _judged(y, np.stack([point - half, point + half], axis=1))
    assert reports["normal"] == pytest.approx(reports["normal"] | expected)
    levels = (np.arange(50) + 0.5) / 50
    members = point + model.residual_std_ * norm.ppf(levels)[:, None]
    assert reports["normal"]["crps"] == pytest.approx(crps_loss(y, members))
    # 50 quantiles stand for the normal, whose score is known in closed form
    z = (y - point) / model.residual_std_
    crps = z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)
    exact = float(model.residual_std_ * crps.mean())
    assert reports["normal"]["crps"] == pytest.approx(exact, rel=0.02)


def test_split_conformal_has_one_width(
    model: Any, new: tuple[Array, Array], reports: dict[str, dict[str, float]]
) -> None:
    X, y = new
    residuals = np.abs(model.calibration_.calibration.residuals()[:, 0])
    rank = int(np.ceil(round((len(residuals) + 1) * LEVEL, 9)))
    half = float(np.sort(residuals)[rank - 1] * model.target_scale_[0])
    point = model.predict(X)
    expected = _judged(y, np.stack([point - half, point + half], axis=1))
    assert reports["split conformal"] == pytest.approx(
        reports["split conformal"] | expected
    )


def test_methods_differ(reports: dict[str, dict[str, float]]) -> None:
    widths = {round(report["width"], 6) for report in reports.values()}
    assert len(widths) >= 3  # the model's own may fall back to split conformal


def test_the_same_state_gives_the_same_jitter(
    model: Any, new: tuple[Array, Array], reports: dict[str, dict[str, float]]
) -> None:
    options = {"confidence_level": LEVEL}
    again = compare_intervals(model, *new, random_state=0, **options)
    other = compare_intervals(model, *new, random_state=1, **options)
    assert again == reports
    assert other["normal"]["pit_w1"] != reports["normal"]["pit_w1"]


# -- Several targets ----------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> tuple[Any, Array, Array]:
    """A model of two targets in different units, and new rows."""
    (X, y), (X_new, y_new) = _rows(260, 0), _rows(60, 1)
    model = _fitted(X, np.stack([y, 50 - 100 * y * X[:, 2]], axis=1))
    return model, X_new, np.stack([y_new, 50 - 100 * y_new * X_new[:, 2]], axis=1)


def test_several_targets_are_judged_each_and_averaged(
    pair: tuple[Any, Array, Array],
) -> None:
    model, X, y = pair
    reports = compare_intervals(model, X, y, confidence_level=LEVEL, random_state=0)
    assert list(reports) == METHODS
    point = model.predict(X)
    half = norm.ppf((1 + LEVEL) / 2) * model.residual_std_
    levels = (np.arange(50) + 0.5) / 50
    members = point + model.residual_std_ * norm.ppf(levels)[:, None, None]
    rmse = np.sqrt(((point - y) ** 2).mean(axis=0)).mean()
    expected = {
        "stochastic attention": model.predict_ensemble(X).interval(LEVEL),
        "+ conformal": model.predict_interval(X, LEVEL),
        "normal": np.stack([point - half, point + half], axis=1),
    }
    for name, y_interval in expected.items():
        judged = _judged(y, y_interval) | {"rmse": rmse}
        assert reports[name] == pytest.approx(reports[name] | judged)
    assert reports["normal"]["crps"] == pytest.approx(crps_loss(y, members))
    residuals = np.sort(np.abs(model.calibration_.calibration.residuals()), axis=0)
    rank = int(np.ceil(round((len(residuals) + 1) * LEVEL, 9)))
    width = 2 * (residuals[rank - 1] * model.target_scale_).mean()
    assert reports["split conformal"]["width"] == pytest.approx(width)


def test_a_column_is_judged_like_a_flat_target() -> None:
    X, y = _rows(120, 0)
    flat, column = (
        compare_intervals(_fitted(X, z), X, z, confidence_level=LEVEL, random_state=0)
        for z in (y, y[:, None])
    )
    for name in METHODS:
        assert column[name] == pytest.approx(flat[name])


@pytest.mark.parametrize("n_draws", [8, 64, "auto"])
@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
def test_parameters_come_back(
    model: Any, new: tuple[Array, Array], n_draws: int | str
) -> None:
    before = model.get_params()
    model.set_params(n_draws=n_draws)
    try:
        compare_intervals(model, *new, confidence_level=LEVEL)
        assert model.get_params() == before | {"n_draws": n_draws}
    finally:
        model.set_params(**before)


def test_parameters_come_back_after_an_error(
    model: Any, new: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = model.get_params()
    seen = []
    honest = type(model).predict_quantiles

    def fails_without_redraw(self: Any, *arguments: Any) -> Array:
        seen.append(self.n_draws)
        if self.n_draws is None:
            raise MemoryError
        y_quantiles: Array = honest(self, *arguments)
        return y_quantiles

    monkeypatch.setattr(type(model), "predict_quantiles", fails_without_redraw)
    with pytest.raises(MemoryError):
        compare_intervals(model, *new, confidence_level=LEVEL)
    assert seen == [8, None]
    assert model.get_params() == before


def test_few_calibration_rows_are_enough_for_the_level_asked() -> None:
    small = _fitted(*_rows(60, 0))
    assert len(small.calibration_.calibration) == 12
    reports = compare_intervals(small, *_rows(60, 1), confidence_level=LEVEL)
    assert list(reports) == METHODS
    with pytest.raises(InsufficientCalibrationError, match=r"level=0.95 .* least 19"):
        compare_intervals(small, *_rows(60, 1), confidence_level=0.95)


def test_an_ensemble_that_became_conformal_has_kept_no_rows() -> None:
    late = _fitted(*_rows(60, 0), interval="ensemble").set_params(interval="conformal")
    with pytest.raises(InsufficientCalibrationError, match="Fit it again"):
        compare_intervals(late, *_rows(60, 1))


def test_bare_ensembles_have_nothing_to_compare(
    model: Any, new: tuple[Array, Array]
) -> None:
    model.set_params(interval="ensemble")
    try:
        with pytest.raises(ValueError, match=r"fitted with .* got interval='ensemble'"):
            compare_intervals(model, *new)
    finally:
        model.set_params(interval="conformal")


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_a_level_lies_between_zero_and_one(
    model: Any, new: tuple[Array, Array], level: float
) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        compare_intervals(model, *new, confidence_level=level)
