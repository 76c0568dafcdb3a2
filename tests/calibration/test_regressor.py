"""ConformalRegressor: the contract of scikit-learn, any container, any wrapper."""

import pickle
from typing import Any

import numpy as np
import pytest
from joblib import parallel_config
from sklearn import config_context
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    QuantileRegressor,
    Ridge,
)
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer import predict_interval
from uqformer.calibration import ConformalRegressor
from uqformer.exceptions import InsufficientCalibrationError
from uqformer.scorers import get_scorer

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def line() -> Any:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(260, 3))
    y = X @ [1.0, 2.0, 0.5] + (0.2 + np.abs(X[:, 0])) * rng.standard_normal(260)
    return X[:200], y[:200], X[200:], y[200:]


@parametrize_with_checks(
    [
        ConformalRegressor(LinearRegression()),
        ConformalRegressor(LinearRegression(), method="cv+", cv=3),
        ConformalRegressor(LinearRegression(), method="jackknife+ab", n_resamplings=5),
        ConformalRegressor(
            LinearRegression(), conformity_score="spread", spread_estimator=Ridge(),
            spread_floor=1.0, cv=2, method="cv+",
        ),
        ConformalRegressor(
            LinearRegression(), conformity_score="quantile",
            quantile_estimators=(Ridge(), Ridge()),
        ),
    ]
)  # fmt: skip
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)


# -- The intervals ------------------------------------------------------------------


def test_one_level_or_several_in_their_order(line: Any) -> None:
    # field note: one plain array, whose shape the docstring says
    X, y, X_new, _ = line
    model = ConformalRegressor(Ridge(), random_state=0).fit(X, y)
    levels = [0.9, 0.5, 0.8]
    ends = model.predict_interval(X_new, levels)
    assert ends.shape == (60, 2, 3)
    assert ends.dtype == np.float64
    for k, level in enumerate(levels):
        one = model.predict_interval(X_new, level)
        assert one.shape == (60, 2)
        np.testing.assert_array_equal(one, ends[:, :, k])
    width = np.diff(ends, axis=1)[0, 0]
    assert width[0] > width[2] > width[1]
    assert model.predict_interval(X_new[:1]).shape == (1, 2)
    assert model.predict(X_new[:1]).shape == (1,)


def test_a_spread_makes_widths_follow_it(line: Any) -> None:
    X, y, X_new, _ = line
    plain = ConformalRegressor(Ridge(), random_state=0).fit(X, y)
    assert np.ptp(np.diff(plain.predict_interval(X_new), axis=1)) < 1e-12
    model = ConformalRegressor(
        Ridge(),
        conformity_score="spread",
        spread_estimator=RandomForestRegressor(30, min_samples_leaf=8, random_state=0),
        random_state=0,
    ).fit(X, y)
    width = np.diff(model.predict_interval(X_new), axis=1)[:, 0]
    assert np.corrcoef(width, np.abs(X_new[:, 0]))[0, 1] > 0.7


def test_a_frozen_estimator_is_calibrated_on_all_rows(line: Any) -> None:
    X, y, X_new, _ = line
    trained = Ridge().fit(X[:100], y[:100])
    frozen = FrozenEstimator(trained)
    scores = np.sort(np.abs(y[100:] - trained.predict(X[100:])))
    half = scores[int(np.ceil(101 * 0.9)) - 1]
    point = trained.predict(X_new)
    for method in ("split", "cv+", "jackknife+ab"):
        model = ConformalRegressor(frozen, method=method).fit(X[100:], y[100:])
        assert model.n_calibration_ == 100
        expected = np.stack([point - half, point + half], axis=1)
        np.testing.assert_allclose(model.predict_interval(X_new), expected)
        np.testing.assert_allclose(model.predict(X_new), point)


def test_a_frozen_point_may_have_a_spread_to_learn(line: Any) -> None:
    X, y, _, _ = line
    frozen = FrozenEstimator(Ridge().fit(X[:100], y[:100]))
    model = ConformalRegressor(
        frozen, conformity_score="spread", spread_estimator=Ridge(), spread_floor=0.1
    ).fit(X[100:], y[100:])
    assert model.n_calibration_ == 20


def test_conformalised_quantiles_for_any_level(line: Any) -> None:
    X, y, X_new, _ = line
    inner = ConformalRegressor(BayesianRidge(), random_state=1).fit(X[:100], y[:100])
    frozen = FrozenEstimator(inner)
    model = ConformalRegressor(frozen, conformity_score="quantile")
    ends = model.fit(X[100:], y[100:]).predict_interval(X_new, [0.5, 0.9])
    for k, (level, rank) in enumerate([(0.5, 51), (0.9, 91)]):
        lower, upper = inner.predict_interval(X[100:], level).T
        scores = np.sort(np.maximum(lower - y[100:], y[100:] - upper))
        expected = inner.predict_interval(X_new, level) + [-1, 1] * scores[[rank - 1]]
        np.testing.assert_allclose(ends[:, :, k], expected)


def test_lower_ends_are_never_above_upper_ends(line: Any) -> None:
    # field note: crossed bounds after conformalised quantile regression
    X, y, X_new, _ = line
    far_apart = [QuantileRegressor(quantile=q, alpha=0) for q in (0.02, 0.98)]
    for method in ("split", "cv+"):
        model = ConformalRegressor(
            Ridge(), conformity_score="quantile", quantile_estimators=far_apart,
            method=method, random_state=0,
        ).fit(X, y)  # fmt: skip
        ends = model.predict_interval(X_new, [0.05, 0.1, 0.5, 0.9])
        assert (ends[:, 0] <= ends[:, 1]).all()


def test_several_outputs_are_calibrated_one_by_one(line: Any) -> None:
    # field note: targets of several steps were refused
    X, y, X_new, _ = line
    both = np.stack([y, 10 * y[::-1]], axis=1)
    for method in ("split", "cv+"):
        model = ConformalRegressor(Ridge(), method=method, random_state=0).fit(X, both)
        ends = model.predict_interval(X_new, [0.5, 0.9])
        assert ends.shape == (60, 2, 2, 2)
        assert model.predict(X_new).shape == (60, 2)
        for k in range(2):
            alone = ConformalRegressor(Ridge(), method=method, random_state=0)
            alone.fit(X, both[:, k])
            np.testing.assert_allclose(
                alone.predict_interval(X_new, [0.5, 0.9]), ends[..., k]
            )


def test_float32_gives_float64_and_the_same_intervals(line: Any) -> None:
    # field note: float32 targets were refused by a consistency check
    X, y, X_new, _ = line
    whole = ConformalRegressor(Ridge(), random_state=0).fit(X, y)
    for scale in (1e-4, 1.0, 1e6):
        model = ConformalRegressor(Ridge(), random_state=0)
        model.fit(np.float32(X), np.float32(scale * y))
        ends = model.predict_interval(np.float32(X_new))
        assert ends.dtype == model.predict(X_new).dtype == np.float64
        np.testing.assert_allclose(
            ends / scale, whole.predict_interval(X_new), rtol=1e-3, atol=1e-3
        )


# -- Groups -------------------------------------------------------------------------


def test_groups_have_quantiles_of_their_own(line: Any) -> None:
    X, y, X_new, _ = line
    frozen = FrozenEstimator(Ridge().fit(X, y))
    inside = np.abs(X_new[:, 0]) < 0.5
    model = ConformalRegressor(frozen, group_by=lambda X: np.abs(X[:, 0]) < 0.5)
    ends = model.fit(X, y).predict_interval(X_new)
    for group in (True, False):
        rows = (np.abs(X[:, 0]) < 0.5) == group
        alone = ConformalRegressor(frozen).fit(X[rows], y[rows])
        expected = alone.predict_interval(X_new[inside == group])
        np.testing.assert_array_equal(ends[inside == group], expected)


def test_a_column_of_a_frame_groups_rows(line: Any) -> None:
    X, y, X_new, _ = line
    names = ["a", "b", "c"]
    frame = pd.DataFrame(X, columns=names).assign(site=np.where(X[:, 0] > 0, "n", "s"))
    encode = make_column_transformer(
        (OneHotEncoder(), ["site"]), remainder="passthrough"
    )
    model = ConformalRegressor(
        make_pipeline(encode, Ridge()), group_by="site", method="cv+", random_state=0
    ).fit(frame, y)
    new = pd.DataFrame(X_new, columns=names).assign(site="n")
    assert model.predict_interval(new).shape == (60, 2)
    assert model.feature_names_in_.tolist() == [*names, "site"]
    with pytest.raises(ValueError, match=r"'n', 's'; got group 'west'"):
        model.predict_interval(new.assign(site="west"))


def test_a_group_too_small_for_the_level_is_named(line: Any) -> None:
    X, y, X_new, _ = line
    X, X_new = X.copy(), X_new.copy()
    X[:, 2], X_new[:, 2] = 0, 0
    X[:5, 2], X_new[0, 2] = 1, 1
    frozen = FrozenEstimator(Ridge().fit(X, y))
    model = ConformalRegressor(frozen, group_by=2).fit(X, y)
    expected = r"0.9 needs at least 9 calibration rows in group 1.0; got 5"
    with pytest.raises(InsufficientCalibrationError, match=expected):
        model.predict_interval(X_new)
    # rows of the other group, and lower levels, are none the worse
    assert model.predict_interval(X_new[1:]).shape == (59, 2)
    assert model.predict_interval(X_new, 0.5).shape == (60, 2)


# -- scikit-learn all around --------------------------------------------------------


def test_it_clones_pickles_and_fits_twice(line: Any) -> None:
    # field note: no conformal peer survived clone, nor a second fit
    X, y, X_new, _ = line
    model = ConformalRegressor(
        Ridge(), conformity_score="quantile", random_state=0,
        quantile_estimators=[QuantileRegressor(quantile=q) for q in (0.1, 0.9)],
    )  # fmt: skip
    ends = clone(model).fit(X, y).predict_interval(X_new)
    again = clone(model).fit(X[:50], y[:50]).fit(X, y)
    np.testing.assert_array_equal(again.predict_interval(X_new), ends)
    copy = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(copy.predict_interval(X_new), ends)


def test_a_search_chooses_by_a_proper_score_of_the_intervals(line: Any) -> None:
    # field note: verbs of uncertainty vanish behind pipelines and searches
    X, y, X_new, _ = line
    noise = np.random.default_rng(0).standard_normal((len(X), 30))
    model = ConformalRegressor(make_pipeline(StandardScaler(), Ridge()), random_state=0)
    search = GridSearchCV(
        model,
        {
            "estimator__ridge__alpha": [1e-3, 1e4],
            "conformity_score": ["absolute"],
            "method": ["split", "cv+"],
        },
        scoring={
            name: get_scorer(name)
            for name in ("neg_winkler_loss", "neg_coverage_error")
        },
        refit="neg_winkler_loss",
    )
    search.fit(np.hstack([X, noise]), y)
    assert search.best_params_["estimator__ridge__alpha"] == 1e-3
    new = np.hstack([X_new, np.zeros((60, 30))])
    assert predict_interval(search, new, 0.8).shape == (60, 2)
    pipeline = make_pipeline(StandardScaler(), model).fit(X, y)
    assert predict_interval(pipeline, X_new, [0.5, 0.8]).shape == (60, 2, 2)


def test_transformed_targets_on_either_side(line: Any) -> None:
    X, y, X_new, y_new = line
    y, y_new = np.exp(y), np.exp(y_new)
    log = {"func": np.log, "inverse_func": np.exp}
    outside = TransformedTargetRegressor(ConformalRegressor(Ridge()), **log)
    inside = ConformalRegressor(TransformedTargetRegressor(Ridge(), **log))
    for model in (outside, inside):
        ends = predict_interval(model.fit(X, y), X_new)
        covered = (ends[:, 0] <= y_new) & (y_new <= ends[:, 1])
        assert covered.mean() > 0.75
    widths = np.diff(predict_interval(outside, X_new), axis=1)
    assert widths.max() > 5 * widths.min()


@pytest.mark.parametrize("method", ["split", "cv+", "jackknife+ab"])
def test_metadata_reaches_the_inner_fit_row_by_row(line: Any, method: Any) -> None:
    # field note: fit parameters were lost inside the cross-conformal loop
    X, y, X_new, _ = line
    weight = (X[:, 1] > 0).astype(float)
    y = np.where(weight > 0, y, 1e3)
    options = {"method": method, "n_resamplings": 5, "random_state": 0}
    model = ConformalRegressor(Ridge(), **options).fit(X, y, sample_weight=weight)
    assert np.abs(model.predict(X_new)).max() < 10
    unweighted = ConformalRegressor(Ridge(), **options).fit(X, y)
    assert np.abs(unweighted.predict(X_new)).max() > 100
    with config_context(enable_metadata_routing=True):
        asking = Ridge().set_fit_request(sample_weight=True)
        routed = ConformalRegressor(asking, **options).fit(X, y, sample_weight=weight)
        cross_validate(
            routed, X, y, params={"sample_weight": weight}, error_score="raise"
        )
    np.testing.assert_allclose(routed.predict(X_new), model.predict(X_new))


def test_a_whole_pipeline_with_text_is_an_estimator() -> None:
    texts = [f"word{i % 7} word{i % 5}" for i in range(60)]
    y = np.arange(60) % 7 + 0.1 * (np.arange(60) % 3)
    model = ConformalRegressor(
        make_pipeline(TfidfVectorizer(), Ridge()), random_state=0
    )
    assert model.fit(texts, y).predict_interval(texts[:4]).shape == (4, 2)


class _OfMapping(Ridge):
    def fit(self, X: Any, y: Any) -> Any:
        return super().fit(X["pixels"], y)

    def predict(self, X: Any) -> Any:
        return super().predict(X["pixels"])


def test_a_mapping_of_arrays_is_parted_by_rows(line: Any) -> None:
    X, y, X_new, _ = line
    site, new_site = X[:, 0] > 0, X_new[:, 0] > 0
    model = ConformalRegressor(_OfMapping(), group_by="site", random_state=0)
    model.fit({"pixels": X, "site": site}, y)
    ends = model.predict_interval({"pixels": X_new, "site": new_site}, 0.5)
    plain = ConformalRegressor(Ridge(), group_by=lambda X: X[:, 0] > 0, random_state=0)
    np.testing.assert_allclose(ends, plain.fit(X, y).predict_interval(X_new, 0.5))


def test_missing_values_are_the_business_of_the_estimator(line: Any) -> None:
    X, y, _, _ = line
    X = np.where(X > 0.9, np.nan, X)
    model = ConformalRegressor(HistGradientBoostingRegressor(max_iter=5))
    assert np.isfinite(model.fit(X, y).predict_interval(X)).all()


def test_parallel_fits_are_the_same_fits(line: Any) -> None:
    X, y, X_new, _ = line
    options = {"method": "cv+", "random_state": 0}
    one = ConformalRegressor(Ridge(), **options).fit(X, y)
    with parallel_config(backend="threading"):
        two = ConformalRegressor(Ridge(), n_jobs=2, **options).fit(X, y)
    np.testing.assert_array_equal(
        one.predict_interval(X_new), two.predict_interval(X_new)
    )


# -- Mistakes -----------------------------------------------------------------------


def test_too_few_rows_for_the_level(line: Any) -> None:
    X, y, X_new, _ = line
    model = ConformalRegressor(Ridge(), random_state=0).fit(X[:30], y[:30])
    expected = r"at least 9 calibration rows; got 6.* raise calibration_fraction"
    with pytest.raises(InsufficientCalibrationError, match=expected):
        model.predict_interval(X_new)


def test_a_level_in_percent_is_guessed(line: Any) -> None:
    X, y, X_new, _ = line
    model = ConformalRegressor(Ridge()).fit(X, y)
    with pytest.raises(ValueError, match=r"For 90 % pass 0\.9"):
        model.predict_interval(X_new, 90)


def test_rows_without_spread_need_a_floor(line: Any) -> None:
    X, y, X_new, _ = line
    nothing = FrozenEstimator(Ridge().fit(X, np.zeros(200)))
    model = ConformalRegressor(
        Ridge(), conformity_score="spread", spread_estimator=nothing, random_state=0
    )
    with pytest.raises(ValueError, match=r"in calibration row 0\. Set spread_floor"):
        model.fit(X, y)
    floored = model.set_params(spread_floor=0.5).fit(X, y)
    plain = ConformalRegressor(Ridge(), random_state=0).fit(X, y)
    np.testing.assert_allclose(
        floored.predict_interval(X_new), plain.predict_interval(X_new)
    )


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"conformity_score": "gamma"}, "'conformity_score' parameter"),
        ({"method": "naive"}, "'method' parameter"),
        ({"calibration_fraction": 1.0}, "'calibration_fraction' parameter"),
        ({"spread_floor": -1.0}, "'spread_floor' parameter"),
        ({"quantile_estimators": [Ridge()]}, "two estimators, .* got 1"),
    ],
)
def test_parameters_are_checked_in_fit(line: Any, options: Any, complaint: str) -> None:
    X, y, _, _ = line
    with pytest.raises(ValueError, match=complaint):
        ConformalRegressor(Ridge(), **options).fit(X, y)


def test_an_estimator_without_spread_says_so(line: Any) -> None:
    X, y, _, _ = line
    model = ConformalRegressor(Ridge(), conformity_score="spread")
    with pytest.raises(AttributeError, match="must offer predict with return_std"):
        model.fit(X, y)
