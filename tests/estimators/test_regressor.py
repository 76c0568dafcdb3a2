"""The verbs of StochasticAttentionRegressor: shapes, agreement, settings, tools."""

import copy
import pickle
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.estimators.conftest import texts, tiny
from uqformer import predict_interval
from uqformer.backbones import FrozenBackbone
from uqformer.exceptions import CalibrationWarning, InsufficientCalibrationError
from uqformer.scorers import get_scorer

Data = tuple[np.ndarray, np.ndarray]


# -- Shapes and dtypes --------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [None, 1, 3])
@pytest.mark.parametrize("interval", ["conformal", "ensemble"])
def test_shapes(heteroscedastic: Data, n_outputs: int | None, interval: str) -> None:
    X, y = heteroscedastic
    tail = () if n_outputs is None else (n_outputs,)
    target = y if n_outputs is None else np.column_stack([y * k for k in range(1, 4)])
    if n_outputs == 1:
        target = target[:, :1]
    model = tiny(interval=interval).fit(X, target)
    shapes = {
        (7, *tail): model.predict(X[:7]),
        (7, 2, *tail): model.predict_interval(X[:7], 0.5),
        (7, 2, 3, *tail): model.predict_interval(X[:7], [0.5, 0.6, 0.7]),
        (7, 4, *tail): model.predict_quantiles(X[:7], [0.2, 0.3, 0.5, 0.9]),
        (4, 7, *tail): model.predict_ensemble(X[:7]).members,
    }
    for shape, array in shapes.items():
        assert array.shape == shape
        assert array.dtype == np.float64
    point, std = model.predict(X[:7], return_std=True)
    assert point.shape == std.shape == model.predict_std(X[:7]).shape == (7, *tail)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float16])
def test_float64_comes_out_whatever_came_in(heteroscedastic: Data, dtype: Any) -> None:
    X, y = heteroscedastic
    X, y = (10 * X).astype(dtype), (10 * y).astype(dtype)
    model = tiny().fit(X, y)
    for array in (
        model.predict(X),
        model.predict_std(X),
        model.predict_interval(X, 0.5),
        model.predict_quantiles(X, [0.3]),
        model.predict_ensemble(X).members,
    ):
        assert array.dtype == np.float64


def test_one_row(fitted: Any, heteroscedastic: Data) -> None:
    row = heteroscedastic[0][:1]
    assert fitted.predict(row).shape == (1,)
    assert fitted.predict_interval(row, 0.5).shape == (1, 2)


def test_frames_keep_their_names(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = tiny().fit(frame, pd.Series(y))
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    np.testing.assert_array_equal(model.predict(frame), tiny().fit(X, y).predict(X))
    with pytest.raises(ValueError, match=r"feature names"):
        model.predict(frame.rename(columns={"a": "z"}))


# -- What the numbers mean ----------------------------------------------------------


def test_the_point_is_the_exact_pass(fitted: Any, heteroscedastic: Data) -> None:
    X, _ = heteroscedastic
    exact = copy.copy(fitted).set_params(n_draws=None).predict_ensemble(X)
    np.testing.assert_allclose(exact.mean(), fitted.predict(X), rtol=1e-6)
    assert exact.std().max() < 1e-6


def test_mean_point_and_spreads(fitted: Any, heteroscedastic: Data) -> None:
    X, _ = heteroscedastic
    members = fitted.predict_ensemble(X)
    about_exact = np.sqrt(((members.members - fitted.predict(X)) ** 2).mean(axis=0))
    np.testing.assert_allclose(fitted.predict_std(X), about_exact, rtol=1e-6)
    average = copy.copy(fitted).set_params(point="mean")
    point, std = average.predict(X, return_std=True)
    np.testing.assert_allclose(point, members.mean(), rtol=1e-6)
    np.testing.assert_allclose(std, members.std(), rtol=1e-4)
    np.testing.assert_allclose(average.predict(X), point)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_moments_give_nearly_the_spread_of_many_members(
    heteroscedastic: Data, n_outputs: int
) -> None:
    X, y = heteroscedastic
    target = y if n_outputs == 1 else np.column_stack([y, 1e3 * y**2])
    model = tiny(n_draws=256, n_members=200).fit(X, target)
    derived = model.predict_std(X, method="moments")
    assert derived.shape == target.shape
    assert derived.dtype == np.float64
    # the spread of 200 members errs by 5 %, alike in all rows
    ratio = derived / model.predict_std(X)
    assert ratio.mean() == pytest.approx(1, abs=0.2)
    assert ratio.std() < 0.2
    small = copy.copy(model).set_params(predict_batch_size=7, point="mean")
    np.testing.assert_allclose(small.predict_std(X, method="moments"), derived, 1e-4)
    none = copy.deepcopy(model).set_params(n_draws=None)
    assert not none.predict_std(X, method="moments").any()
    with pytest.raises(ValueError, match=r"'members' or 'moments'; got method='exact'"):
        model.predict_std(X, method="exact")


def test_moments_of_a_guest_that_takes_arrays_by_name(reader: Any) -> None:
    X, codes = texts(60)
    reader.head = torch.nn.Linear(8, 1)
    before = copy.deepcopy(reader.state_dict())
    model = tiny(backbone=FrozenBackbone(reader), backbone_params=None, n_draws=1024)
    model.set_params(n_members=100).fit(X, codes * 1.5)
    derived, spread = model.predict_std(X, method="moments"), model.predict_std(X)
    assert derived.mean() == pytest.approx(spread.mean(), rel=0.2)
    assert np.corrcoef(derived, spread)[0, 1] > 0.9
    assert all((reader.state_dict()[k] == v).all() for k, v in before.items())
    assert all(parameter.grad is None for parameter in reader.parameters())


@pytest.mark.parametrize("interval", ["conformal", "ensemble"])
def test_interval_ends_are_quantiles(heteroscedastic: Data, interval: str) -> None:
    X, y = heteroscedastic
    model = tiny(interval=interval).fit(X, y)
    levels = np.array([0.8, 0.2, 0.5])
    ends = model.predict_interval(X, levels)
    for side, quantiles in enumerate([(1 - levels) / 2, (1 + levels) / 2]):
        np.testing.assert_allclose(
            ends[:, side], model.predict_quantiles(X, quantiles), rtol=1e-10
        )
    quantiles = model.predict_quantiles(X, np.linspace(0.1, 0.9, 17))
    assert (np.diff(quantiles, axis=1) >= 0).all()
    single = model.predict_quantiles(X, 0.5)
    assert single.shape == (len(X),)


def test_the_median_of_a_conformal_model_is_its_point(
    fitted: Any, heteroscedastic: Data
) -> None:
    X, _ = heteroscedastic
    np.testing.assert_array_equal(
        fitted.predict_quantiles(X, [0.5])[:, 0], fitted.predict(X)
    )


def test_rows_do_not_depend_on_their_batch(fitted: Any, heteroscedastic: Data) -> None:
    X, _ = heteroscedastic
    small = copy.copy(fitted).set_params(predict_batch_size=7)
    for verb in ("predict", "predict_std", "predict_interval"):
        arguments = (X, 0.5) if verb == "predict_interval" else (X,)
        np.testing.assert_allclose(
            getattr(small, verb)(*arguments),
            getattr(fitted, verb)(*arguments),
            rtol=2e-5,
            atol=1e-5,
        )


def test_more_members_begin_with_the_same_ones(
    fitted: Any, heteroscedastic: Data
) -> None:
    X, _ = heteroscedastic
    more = copy.copy(fitted).set_params(n_members=7).predict_ensemble(X)
    np.testing.assert_allclose(
        more.members[:4], fitted.predict_ensemble(X).members, rtol=1e-5, atol=1e-6
    )


# -- Settings that act at prediction ------------------------------------------------


def test_fewer_draws_spread_wider_without_a_refit(
    fitted: Any, heteroscedastic: Data
) -> None:
    X, _ = heteroscedastic
    model = copy.deepcopy(fitted)
    spreads = [
        model.set_params(n_draws=n, n_members=20).predict_std(X).mean()
        for n in (1, 16, 256)
    ]
    assert spreads[0] > 2 * spreads[1] > 4 * spreads[2]
    assert model.n_draws_ == 256


def test_changed_settings_calibrate_anew(fitted: Any, heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    changed = copy.deepcopy(fitted).set_params(n_draws=2, n_members=6, layers=[0])
    fresh = tiny(n_draws=2, n_members=6, layers=[0]).fit(X, y)
    np.testing.assert_allclose(
        changed.predict_interval(X, 0.6), fresh.predict_interval(X, 0.6), rtol=1e-5
    )


def test_auto_may_be_asked_for_after_fit(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    with pytest.warns(CalibrationWarning, match=r"spreads the members less"):
        later = tiny().fit(X, y).set_params(n_draws="auto").n_draws_
    with pytest.warns(CalibrationWarning, match=r"spreads the members less"):
        model = tiny(n_draws="auto").fit(X, y)
    assert model.n_draws_ == later == 1 == model.search_.n_draws
    assert set(model.fit_times_) == {"training", "search", "conformal"}


def test_exact_softmax_gives_intervals_of_one_width(
    fitted: Any, heteroscedastic: Data
) -> None:
    plain = copy.deepcopy(fitted).set_params(n_draws=None)
    widths = np.diff(plain.predict_interval(heteroscedastic[0], 0.5))
    np.testing.assert_allclose(widths, widths.mean())
    assert plain.n_draws_ is None


def test_a_setting_is_checked_when_it_is_used(
    fitted: Any, heteroscedastic: Data
) -> None:
    X, _ = heteroscedastic
    with pytest.raises(ValueError, match=r"'n_members' parameter .* Got 0 instead"):
        copy.copy(fitted).set_params(n_members=0).predict(X)
    with pytest.raises(ValueError, match=r"layers .*9"):
        copy.deepcopy(fitted).set_params(layers=[9]).predict_std(X)


# -- Guests -------------------------------------------------------------------------


def test_a_guest_is_calibrated_and_not_trained(
    guest: Any, heteroscedastic: Data
) -> None:
    X, y = heteroscedastic
    guest.train()
    before = copy.deepcopy(guest.state_dict())
    model = tiny(backbone=FrozenBackbone(guest), backbone_params=None).fit(X, y)
    assert model.module_ is guest
    assert guest.training
    assert not hasattr(model, "history_")
    assert all((guest.state_dict()[k] == v).all() for k, v in before.items())
    guest.eval()
    assert clone(model).backbone.module is guest
    # all 80 rows calibrate: a third of them choose, two thirds are scored
    sizes = (len(model.calibration_.validation), len(model.calibration_.calibration))
    assert sizes == (27, 53)


def test_a_bare_module_is_copied(guest: Any, heteroscedastic: Data) -> None:
    before = copy.deepcopy(guest.state_dict())
    model = tiny(backbone=guest, backbone_params=None).fit(*heteroscedastic)
    assert model.module_ is not guest
    assert all((guest.state_dict()[k] == v).all() for k, v in before.items())


# -- scikit-learn's tools -----------------------------------------------------------


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning")
def test_grid_search_over_a_pipeline(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    pipeline = make_pipeline(StandardScaler(), tiny())
    search = GridSearchCV(
        pipeline,
        {"stochasticattentionregressor__n_draws": [2, 64]},
        scoring=get_scorer("neg_winkler_loss", confidence_level=0.5),
        cv=2,
        n_jobs=2,
        error_score="raise",
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert predict_interval(search, X, 0.5).shape == (len(X), 2)
    point, std = search.best_estimator_.predict(X, return_std=True)
    assert point.shape == std.shape


def test_transformed_targets_are_mapped_back(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    y = np.exp(y)
    model = TransformedTargetRegressor(tiny(), func=np.log, inverse_func=np.exp)
    ends = predict_interval(model.fit(X, y), X, 0.5)
    inner = model.regressor_.predict_interval(X, 0.5)
    np.testing.assert_allclose(ends, np.exp(inner))


def test_cross_val_predict_clone_and_copies(
    fitted: Any, heteroscedastic: Data, tmp_path: Any
) -> None:
    X, y = heteroscedastic
    assert cross_val_predict(tiny(), X, y, cv=2).shape == y.shape
    assert not hasattr(clone(fitted), "module_")
    joblib.dump(fitted, tmp_path / "model.joblib")
    for twin in (
        pickle.loads(pickle.dumps(fitted)),
        joblib.load(tmp_path / "model.joblib"),
    ):
        np.testing.assert_array_equal(
            twin.predict_interval(X, 0.5), fitted.predict_interval(X, 0.5)
        )


def test_too_high_a_level_says_how_many_rows_it_needs(
    fitted: Any, heteroscedastic: Data
) -> None:
    X, _ = heteroscedastic
    with pytest.raises(InsufficientCalibrationError, match=r"at least 99 .* got 16"):
        fitted.predict_interval(X, 0.99)
    bare = tiny(interval="ensemble").fit(*heteroscedastic)
    with pytest.raises(InsufficientCalibrationError, match=r"kept none"):
        bare.set_params(interval="conformal").predict_interval(X, 0.5)
