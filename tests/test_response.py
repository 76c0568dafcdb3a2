from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    BayesianRidge,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    RidgeClassifier,
)
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from uqformer._response import (
    ensemble_response,
    interval_response,
    predict_interval,
    proba_response,
    quantile_response,
    spread_response,
)

QUANTILES = np.array([-1.0, 0.0, 2.0])


class Linear(RegressorMixin, BaseEstimator):
    """Least squares whose answers are lopsided shifts of the point."""

    def __init__(self, shift=1.0):
        self.shift = shift

    def fit(self, X, y):
        self.linear_ = LinearRegression().fit(X, y)
        return self

    def predict(self, X, return_std=False):
        mean = self.linear_.predict(X)
        return (mean, np.full_like(mean, self.shift)) if return_std else mean

    def predict_ensemble(self, X):
        point = self.predict(X)
        self.last_members_ = np.stack([point + self.shift * q for q in QUANTILES])
        return SimpleNamespace(members=self.last_members_)

    def predict_quantiles(self, X, quantiles):
        point = self.predict(X)[:, None]
        reach = self.shift * (np.asarray(quantiles) - 0.4)
        return point + reach.reshape(-1, *[1] * (point.ndim - 2))

    def predict_interval(self, X, confidence_level=0.9):
        levels = np.asarray(confidence_level)
        point = self.predict(X)
        if levels.ndim:  # (n_samples, n_levels[, n_outputs])
            point = np.stack([point] * len(levels), axis=1)
            levels = levels.reshape(-1, *[1] * (point.ndim - 2))
        return np.stack(
            [point - self.shift * levels, point + 2 * self.shift * levels], axis=1
        )


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    return X, np.exp(X @ [0.5, -0.2, 0.1] + 0.1 * rng.normal(size=30))


@pytest.fixture
def two_outputs(data):
    X, y = data
    return X, np.stack([y, 10 - y**2], axis=1)


def search(estimator, **options):
    return GridSearchCV(estimator, {}, cv=2, scoring=lambda *_: 0.0, **options)


WRAPPERS = {
    "bare": lambda e: e,
    "pipeline": lambda e: make_pipeline(StandardScaler(), e),
    "passthrough": lambda e: Pipeline([("a", "passthrough"), ("b", None), ("c", e)]),
    "one step": lambda e: make_pipeline(e),
    "search": search,
    "random search": lambda e: RandomizedSearchCV(
        e, {}, n_iter=1, cv=2, scoring=lambda *_: 0.0
    ),
    "search of pipeline": lambda e: search(make_pipeline(StandardScaler(), e)),
    "pipeline of search": lambda e: make_pipeline(StandardScaler(), search(e)),
    "pipeline of pipeline": lambda e: make_pipeline(
        StandardScaler(), make_pipeline(StandardScaler(), search(e))
    ),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
class TestWrappers:
    def test_answers_are_those_of_the_innermost(self, wrap, data):
        # least squares does not care for the scale of X, so all wraps predict alike
        X, y = data
        wrapped, bare = wrap(Linear()).fit(X, y), Linear().fit(X, y)
        np.testing.assert_allclose(
            interval_response(wrapped, X, 0.8), bare.predict_interval(X, 0.8)
        )
        np.testing.assert_allclose(
            ensemble_response(wrapped, X), bare.predict_ensemble(X).members
        )
        np.testing.assert_allclose(
            quantile_response(wrapped, X, [0.1, 0.9]),
            bare.predict_quantiles(X, [0.1, 0.9]),
        )
        for ours, theirs in zip(
            spread_response(wrapped, X), bare.predict(X, return_std=True), strict=True
        ):
            np.testing.assert_allclose(ours, theirs)

    def test_freezing_changes_nothing(self, wrap, data):
        X, y = data
        fitted = wrap(Linear()).fit(X, y)
        frozen = make_pipeline(FrozenEstimator(fitted)).fit(X, y)
        np.testing.assert_array_equal(
            interval_response(frozen, X, 0.8), interval_response(fitted, X, 0.8)
        )
        np.testing.assert_array_equal(
            ensemble_response(frozen, X), ensemble_response(fitted, X)
        )
        np.testing.assert_array_equal(
            spread_response(frozen, X), spread_response(fitted, X)
        )

    @pytest.mark.parametrize("outside", [True, False])
    def test_targets_are_mapped_back_in_either_order(self, wrap, outside, data):
        X, y = data
        if outside:
            model = TransformedTargetRegressor(
                wrap(Linear()), func=np.log, inverse_func=np.exp
            )
        else:
            inner = TransformedTargetRegressor(
                Linear(), func=np.log, inverse_func=np.exp
            )
            model = wrap(inner)
        bare = Linear().fit(X, np.log(y))
        model.fit(X, y)
        np.testing.assert_allclose(
            interval_response(model, X, 0.8), np.exp(bare.predict_interval(X, 0.8))
        )
        np.testing.assert_allclose(
            ensemble_response(model, X), np.exp(bare.predict_ensemble(X).members)
        )
        np.testing.assert_allclose(
            quantile_response(model, X, [0.1, 0.5, 0.9]),
            np.exp(bare.predict_quantiles(X, [0.1, 0.5, 0.9])),
        )

    def test_probabilities_come_with_their_classes(self, wrap, data):
        X, y = data
        names = np.where(y > 1, "large", "small")
        wrapped = wrap(LogisticRegression()).fit(X, names)
        proba, classes = proba_response(wrapped, X)
        assert classes.tolist() == ["large", "small"]
        np.testing.assert_allclose(proba, wrapped.predict_proba(X))
        frozen, classes = proba_response(FrozenEstimator(wrapped), X)
        assert classes.tolist() == ["large", "small"]
        np.testing.assert_array_equal(frozen, proba)


def test_falling_map_keeps_the_lower_end_first(data):
    X, y = data
    model = TransformedTargetRegressor(
        Linear(), func=np.negative, inverse_func=np.negative
    ).fit(X, y)
    point = LinearRegression().fit(X, y).predict(X)
    # shifts of -1 and +2 times the level turn into -2 and +1
    np.testing.assert_allclose(
        interval_response(model, X, 0.5), np.stack([point - 1.0, point + 0.5], axis=1)
    )
    np.testing.assert_allclose(
        ensemble_response(model, X), point - QUANTILES[:, None] * np.ones(len(y))
    )


@pytest.mark.parametrize("quantiles", [[0.2], [0.9, 0.1, 0.5], [0.3, 0.7]])
def test_falling_map_turns_quantiles_around(quantiles, data):
    X, y = data
    model = TransformedTargetRegressor(
        Linear(), func=np.negative, inverse_func=np.negative
    ).fit(X, y)
    bare = Linear().fit(X, -y)
    np.testing.assert_allclose(
        quantile_response(model, X, quantiles),
        -bare.predict_quantiles(X, 1 - np.array(quantiles)),
    )


def test_nested_maps_are_undone_inside_first(data):
    X, y = data
    inner = TransformedTargetRegressor(Linear(), func=np.log, inverse_func=np.exp)
    outer = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), inner),
        func=lambda t: 3 * t,
        inverse_func=lambda t: t / 3,
    ).fit(X, y)
    members = Linear().fit(X, np.log(3 * y)).predict_ensemble(X).members
    np.testing.assert_allclose(ensemble_response(outer, X), np.exp(members) / 3)


def test_several_levels_are_mapped_one_by_one(data):
    X, y = data
    model = TransformedTargetRegressor(
        Linear(), func=np.negative, inverse_func=np.negative
    ).fit(X, y)
    both = interval_response(model, X, [0.5, 0.9])
    assert both.shape == (30, 2, 2)
    for k, level in enumerate([0.5, 0.9]):
        np.testing.assert_allclose(both[..., k], interval_response(model, X, level))


@pytest.mark.parametrize("level", [0.8, [0.5, 0.8]])
def test_each_output_is_mapped_by_its_own_scale(two_outputs, level):
    X, y = two_outputs
    scaler = StandardScaler().fit(y)
    model = TransformedTargetRegressor(Linear(), transformer=StandardScaler())
    model.fit(X, y)
    bare = Linear().fit(X, scaler.transform(y))
    np.testing.assert_allclose(
        interval_response(model, X, level),
        bare.predict_interval(X, level) * scaler.scale_ + scaler.mean_,
    )
    np.testing.assert_allclose(
        ensemble_response(model, X),
        bare.predict_ensemble(X).members * scaler.scale_ + scaler.mean_,
    )
    np.testing.assert_allclose(
        quantile_response(model, X, [0.8, 0.3]),
        bare.predict_quantiles(X, [0.8, 0.3]) * scaler.scale_ + scaler.mean_,
    )


def test_members_get_back_outputs_that_a_transformer_had_merged(two_outputs):
    X, y = two_outputs

    class FirstComponent(PCA):
        """One column, handed on as a flat target."""

        def transform(self, X):
            return super().transform(X)[:, 0]

    model = TransformedTargetRegressor(
        Linear(), transformer=FirstComponent(1), check_inverse=False
    ).fit(X, y)
    members = ensemble_response(model, X)
    assert members.shape == (3, 30, 2)
    np.testing.assert_allclose(members[1], model.predict(X))


def test_transformers_that_work_in_place_do_not_touch_the_members(data):
    X, y = data
    model = TransformedTargetRegressor(
        Linear(), transformer=StandardScaler(copy=False)
    ).fit(X, y.copy())
    ensemble_response(model, X)
    inner = model.regressor_.last_members_.copy()
    assert not np.allclose(inner, ensemble_response(model, X))
    np.testing.assert_array_equal(model.regressor_.last_members_, inner)


def test_outer_predict_interval_is_asked_first(data):
    class Proud(Pipeline):
        def predict_interval(self, X, confidence_level):
            return np.full((len(X), 2), confidence_level)

    X, y = data
    model = Proud([("scale", StandardScaler()), ("last", Linear())]).fit(X, y)
    np.testing.assert_array_equal(interval_response(model, X, 0.8), 0.8)


def test_estimator_without_the_method_is_named(data):
    model = make_pipeline(StandardScaler(), LinearRegression()).fit(*data)
    sentence = "must offer {}; got LinearRegression"
    with pytest.raises(AttributeError, match=sentence.format("predict_interval")):
        interval_response(model, data[0], 0.9)
    with pytest.raises(AttributeError, match=sentence.format("predict_ensemble")):
        ensemble_response(model, data[0])
    with pytest.raises(
        AttributeError, match=sentence.format("predict with return_std")
    ):
        spread_response(model, data[0])
    with pytest.raises(AttributeError, match=sentence.format("predict_quantiles")):
        quantile_response(model, data[0], [0.5])
    with pytest.raises(AttributeError, match=sentence.format("predict_proba")):
        proba_response(model, data[0])


def test_a_refit_parameter_alone_makes_no_search():
    with pytest.raises(AttributeError, match="got LogisticRegressionCV, which does"):
        interval_response(LogisticRegressionCV(), [[0.0]], 0.9)


def test_search_needs_refit(data):
    model = search(Linear(), refit=False).fit(*data)
    for ask in (ensemble_response, spread_response):
        with pytest.raises(AttributeError, match="refit=True to predict; got refit=F"):
            ask(model, data[0])


@pytest.mark.parametrize(
    "model",
    [
        search(Linear()),
        TransformedTargetRegressor(Linear()),
        make_pipeline(StandardScaler(), Linear()),
    ],
    ids=["search", "targets", "pipeline"],
)
def test_unfitted_wrappers_say_so(model, data):
    with pytest.raises(NotFittedError):
        interval_response(model, data[0], 0.9)


def test_standard_deviation_has_no_way_back_through_targets(data):
    X, y = data
    model = TransformedTargetRegressor(
        make_pipeline(StandardScaler(), BayesianRidge()),
        func=np.log,
        inverse_func=np.exp,
    )
    with pytest.raises(TypeError, match="got Pipeline with one inside"):
        spread_response(make_pipeline(StandardScaler(), model).fit(X, y), X)


def test_answer_of_another_shape_is_refused(data):
    class Tuple(Linear):
        def predict_interval(self, X, confidence_level=0.9):
            return np.zeros((len(X), 3))

    with pytest.raises(ValueError, match=r"Tuple\.predict_interval must return.*\(30"):
        interval_response(Tuple().fit(*data), data[0], 0.9)


def test_quantiles_of_another_shape_are_refused(data):
    class Flat(Linear):
        def predict_quantiles(self, X, quantiles):
            return self.predict(X)

    with pytest.raises(ValueError, match=r"Flat\.predict_quantiles must.*2 quantiles"):
        quantile_response(Flat().fit(*data), data[0], [0.1, 0.9])


class TestProbabilities:
    def test_unfitted_says_so(self, data):
        for model in (
            LogisticRegression(),
            make_pipeline(StandardScaler(), LogisticRegression()),
        ):
            with pytest.raises(NotFittedError):
                proba_response(model, data[0])

    def test_classifier_without_them_is_helped(self, data):
        X, y = data
        model = search(RidgeClassifier()).fit(X, y > 1)
        with pytest.raises(AttributeError, match=r"got RidgeC.*CalibratedClassifierCV"):
            proba_response(model, X)

    def test_classes_are_needed(self, data):
        model = SimpleNamespace(predict_proba=lambda X: np.ones((len(X), 1)))
        with pytest.raises(AttributeError, match="in classes_; got SimpleNamespace"):
            proba_response(model, data[0])

    def test_one_matrix_for_one_target(self, data):
        X, y = data
        model = KNeighborsClassifier().fit(X, np.stack([y > 1, y // 0.5], axis=1))
        with pytest.raises(ValueError, match=r"KNeighborsClassifier.*got a list of 2"):
            proba_response(model, X)

    def test_a_column_for_each_class(self, data):
        model = SimpleNamespace(
            predict_proba=lambda X: np.ones(len(X)), classes_=np.array([0, 1])
        )
        with pytest.raises(ValueError, match=r"shape \(30,\) for 2 classes_"):
            proba_response(model, data[0])


def test_public_door_checks_the_level_and_defaults_to_nine_tenths(data):
    X, y = data
    model = make_pipeline(FunctionTransformer(), Linear()).fit(X, y)
    np.testing.assert_array_equal(
        predict_interval(model, X), interval_response(model, X, 0.9)
    )
    with pytest.raises(ValueError, match=r"pass 0\.95"):
        predict_interval(model, X, 95)
