"""Scorers of regressors: the number is the metric's, whatever is around the model."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer import metrics
from uqformer.scorers import (
    SCORERS,
    IntervalScorer,
    ProbabilityScorer,
    QuantileScorer,
    get_scorer,
)

NAMES = [name for name in SCORERS if not isinstance(SCORERS[name], ProbabilityScorer)]
PROPER = [
    "neg_crps_loss",
    "neg_crps_normal_loss",
    "neg_energy_loss",
    "neg_gaussian_nll_loss",
    "neg_pinball_loss",
    "neg_weighted_interval_loss",
    "neg_winkler_loss",
]
# the one takes a single output, the other may turn out positive
ONE_NEGATIVE_NUMBER = sorted(
    set(NAMES) - {"neg_weighted_interval_loss", "neg_gaussian_nll_loss"}
)


class TestSingleScorers:
    """The number is that of the metric, with its sign."""

    def test_interval_metrics(self, data, fitted):
        X, y = data
        interval = fitted.predict_interval(X, 0.7)
        numbers = {
            "neg_winkler_loss": metrics.winkler_loss(y, interval, confidence_level=0.7),
            "neg_coverage_error": metrics.coverage_error(
                y, interval, confidence_level=0.7
            ),
            "neg_mean_interval_width": metrics.mean_interval_width(interval),
        }
        for name, number in numbers.items():
            found = get_scorer(name, confidence_level=0.7)(fitted, X, y)
            assert found == pytest.approx(-number)

    @pytest.mark.parametrize("levels", [(0.5, 0.8, 0.95), (0.6,), 0.6])
    def test_several_levels(self, levels, data, fitted):
        X, y = data
        number = metrics.weighted_interval_loss(
            y, fitted.predict_interval(X, levels), confidence_level=levels
        )
        scorer = get_scorer("neg_weighted_interval_loss", confidence_level=levels)
        assert scorer(fitted, X, y) == pytest.approx(-number)

    def test_ensemble_metrics(self, data, fitted):
        X, y = data
        members = fitted.predict_ensemble(X).members
        numbers = {
            "neg_crps_loss": metrics.crps_loss(y, members),
            "neg_energy_loss": metrics.energy_loss(y, members),
            "neg_pit_wasserstein_error": metrics.pit_wasserstein_error(
                y, members, random_state=0
            ),
        }
        for name, number in numbers.items():
            assert get_scorer(name)(fitted, X, y) == pytest.approx(-number)

    def test_quantile_metrics(self, data, fitted):
        X, y = data
        quantiles = [0.2, 0.7]
        predicted = fitted.predict_quantiles(X, quantiles)
        for metric in (metrics.pinball_loss, metrics.quantile_calibration_error):
            number = metric(y, predicted, quantiles=quantiles)
            scorer = QuantileScorer(metric, quantiles=quantiles)
            assert scorer(fitted, X, y) == pytest.approx(number)

    def test_point_and_spread(self, data, fitted):
        X, y = data
        prediction = fitted.predict(X, return_std=True)
        for metric in (metrics.gaussian_nll_loss, metrics.crps_normal_loss):
            found = get_scorer(f"neg_{metric.__name__}")(fitted, X, y)
            assert found == pytest.approx(-metric(y, *prediction))

    def test_score_keeps_its_sign(self, data, fitted):
        scorer = IntervalScorer(metrics.coverage_score, confidence_level=0.7)
        assert 0.6 < scorer(fitted, *data) < 0.8

    @pytest.mark.parametrize("name", NAMES)
    def test_weights_reach_the_metric(self, name, data, fitted):
        X, y = data
        weights = (np.arange(len(y)) < 40).astype(float)
        weighted = SCORERS[name](fitted, X, y, sample_weight=weights)
        if name == "neg_pit_wasserstein_error":
            # jitter is drawn row by row, so the first rows keep theirs
            assert weighted != SCORERS[name](fitted, X, y)
        else:
            assert weighted == pytest.approx(SCORERS[name](fitted, X[:40], y[:40]))

    @pytest.mark.parametrize("name", ONE_NEGATIVE_NUMBER)
    def test_several_outputs_give_one_number(self, name, data, normal_linear):
        X, y = data
        y = np.stack([y, 2 * y], axis=1)
        score = SCORERS[name](normal_linear().fit(X, y), X, y)
        assert type(score) is float
        assert score < 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda e: make_pipeline(StandardScaler(), e),
        lambda e: GridSearchCV(e, {}, cv=2),
        lambda e: make_pipeline(StandardScaler(), GridSearchCV(e, {}, cv=2)),
    ],
    ids=["pipeline", "search", "both"],
)
def test_wrappers_are_looked_through(name, wrap, data, fitted):
    """Verbs that scikit-learn does not know vanish behind wrappers (crepes#43)."""
    wrapped = wrap(clone(fitted)).fit(*data)
    expected = pytest.approx(SCORERS[name](fitted, *data))
    assert SCORERS[name](wrapped, *data) == expected
    assert SCORERS[name](FrozenEstimator(wrapped), *data) == expected


@pytest.mark.parametrize(
    "name", ["neg_winkler_loss", "neg_crps_loss", "neg_pinball_loss"]
)
@pytest.mark.parametrize("factor", [100, -100])
def test_transformed_targets_are_scored_in_units_of_y(name, factor, data, fitted):
    X, y = data
    model = TransformedTargetRegressor(
        clone(fitted), func=lambda t: t / factor, inverse_func=lambda t: factor * t
    )
    assert SCORERS[name](model.fit(X, y), X, y) == pytest.approx(
        SCORERS[name](fitted, X, y)
    )


def test_transformed_targets_have_no_standard_deviation(data):
    model = TransformedTargetRegressor(BayesianRidge()).fit(*data)
    with pytest.raises(TypeError, match="TransformedTargetRegressor"):
        SCORERS["neg_gaussian_nll_loss"](model, *data)


@pytest.mark.parametrize(
    "estimator", [BayesianRidge(), GaussianProcessRegressor(optimizer=None, alpha=1.0)]
)
def test_regressors_of_sklearn_have_a_likelihood(estimator, data):
    score = SCORERS["neg_gaussian_nll_loss"](clone(estimator).fit(*data), *data)
    assert np.isfinite(score)


class TestSearches:
    """The right spread wins by every proper score, whatever is around the model."""

    GRID = (0.3, 1.0, 3.0)

    @pytest.mark.parametrize("name", PROPER)
    def test_grid_search_finds_the_right_spread(self, name, data, normal_linear):
        search = GridSearchCV(
            normal_linear(), {"factor": self.GRID}, scoring=SCORERS[name], cv=3
        ).fit(*data)
        assert search.best_params_ == {"factor": 1.0}
        assert search.score(*data) == SCORERS[name](search.best_estimator_, *data)

    def test_other_processes_score_alike(self, data, normal_linear):
        scoring = {name: SCORERS[name] for name in NAMES}
        here, there = (
            GridSearchCV(
                make_pipeline(StandardScaler(), normal_linear()),
                {"normallinear__factor": self.GRID},
                scoring=scoring,
                refit="neg_crps_loss",
                cv=2,
                n_jobs=n_jobs,
            ).fit(*data)
            for n_jobs in (1, 2)
        )
        assert here.best_params_ == {"normallinear__factor": 1.0}
        for name in NAMES:
            scores = here.cv_results_[f"mean_test_{name}"]
            assert np.isfinite(scores).all()
            np.testing.assert_allclose(there.cv_results_[f"mean_test_{name}"], scores)

    def test_cross_val_score(self, data, normal_linear):
        X, y = data
        cv = KFold(3)
        scores = cross_val_score(
            normal_linear(), X, y, scoring=get_scorer("neg_crps_loss"), cv=cv
        )
        by_hand = [
            SCORERS["neg_crps_loss"](
                normal_linear().fit(X[train], y[train]), X[test], y[test]
            )
            for train, test in cv.split(X)
        ]
        np.testing.assert_allclose(scores, by_hand)


def test_repr_names_levels_and_quantiles():
    assert repr(get_scorer("neg_winkler_loss", confidence_level=0.5)) == (
        "IntervalScorer(winkler_loss, confidence_level=0.5, greater_is_better=False)"
    )
    assert repr(QuantileScorer(metrics.pinball_loss, quantiles=np.array([0.5]))) == (
        "QuantileScorer(pinball_loss, quantiles=(0.5,), greater_is_better=True)"
    )


def test_metric_without_level_is_called_without(data, fitted):
    def share_below(y_true, y_interval):
        return np.mean(y_true < y_interval[:, 0])

    assert 0 < IntervalScorer(share_below, confidence_level=0.6)(fitted, *data) < 0.4


def test_settings_are_checked_at_once():
    with pytest.raises(ValueError, match="confidence_level must lie"):
        IntervalScorer(metrics.winkler_loss, confidence_level=1.0)
    with pytest.raises(ValueError, match="quantiles must lie"):
        QuantileScorer(metrics.pinball_loss, quantiles=[0.1, 1.0])
