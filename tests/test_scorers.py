import pickle
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn import config_context
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import BayesianRidge, LinearRegression
from sklearn.metrics import check_scoring
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    cross_val_score,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer import metrics
from uqformer.scorers import (
    SCORERS,
    EnsembleScorer,
    IntervalScorer,
    get_scorer,
)

MULTI_OUTPUT = sorted(set(SCORERS) - {"neg_gaussian_nll_loss"})


def define_normal_linear():
    """Define the toy in a function: other processes get such a class by value."""

    class NormalLinear(RegressorMixin, BaseEstimator):
        """Least squares with normal noise, its residuals' deviation times `factor`."""

        def __init__(self, factor=1.0):
            self.factor = factor

        def fit(self, X, y, sample_weight=None):
            self.linear_ = LinearRegression().fit(X, y, sample_weight)
            self.std_ = self.factor * np.std(y - self.linear_.predict(X), axis=0)
            return self

        def predict(self, X, return_std=False):
            mean = self.linear_.predict(X)
            return (mean, np.full_like(mean, self.std_)) if return_std else mean

        def predict_ensemble(self, X):
            grid = norm.ppf((np.arange(40) + 0.5) / 40)
            noise = np.multiply.outer(grid, self.std_)
            return SimpleNamespace(members=self.predict(X) + noise[:, None])

        def predict_interval(self, X, confidence_level=0.9):
            reach = self.std_ * norm.ppf((1 + confidence_level) / 2)
            return np.stack([self.predict(X) - reach, self.predict(X) + reach], axis=1)

    return NormalLinear


NormalLinear = define_normal_linear()


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    return X, X @ [1.0, 2.0, 3.0] + rng.normal(size=150)


@pytest.fixture
def fitted(data):
    return NormalLinear().fit(*data)


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

    def test_point_and_spread(self, data, fitted):
        X, y = data
        number = metrics.gaussian_nll_loss(y, *fitted.predict(X, return_std=True))
        found = get_scorer("neg_gaussian_nll_loss")(fitted, X, y)
        assert found == pytest.approx(-number)

    def test_score_keeps_its_sign(self, data, fitted):
        scorer = IntervalScorer(metrics.coverage_score, confidence_level=0.7)
        assert 0.6 < scorer(fitted, *data) < 0.8

    @pytest.mark.parametrize("name", SCORERS)
    def test_weights_reach_the_metric(self, name, data, fitted):
        X, y = data
        weights = (np.arange(len(y)) < 40).astype(float)
        weighted = SCORERS[name](fitted, X, y, sample_weight=weights)
        if name == "neg_pit_wasserstein_error":
            # jitter is drawn row by row, so the first rows keep theirs
            assert weighted != SCORERS[name](fitted, X, y)
        else:
            assert weighted == pytest.approx(SCORERS[name](fitted, X[:40], y[:40]))

    def test_metric_without_weights_says_so(self, data, fitted):
        def largest_miss(y_true, members):
            return np.abs(y_true - members).max()

        scorer = EnsembleScorer(largest_miss, greater_is_better=False)
        assert scorer(fitted, *data) < -1
        with pytest.raises(TypeError, match="got largest_miss, which does not"):
            scorer(fitted, *data, sample_weight=np.ones(150))

    @pytest.mark.parametrize("name", MULTI_OUTPUT)
    def test_several_outputs_give_one_number(self, name, data):
        X, y = data
        y = np.stack([y, 2 * y], axis=1)
        score = SCORERS[name](NormalLinear().fit(X, y), X, y)
        assert type(score) is float
        assert score < 0


@pytest.mark.parametrize("name", SCORERS)
class TestManners:
    def test_pickle(self, name, data, fitted):
        scorer = pickle.loads(pickle.dumps(SCORERS[name]))
        assert scorer(fitted, *data) == SCORERS[name](fitted, *data)
        assert repr(scorer) == repr(SCORERS[name])

    def test_sklearn_takes_it_for_a_scorer(self, name, fitted):
        assert check_scoring(fitted, SCORERS[name]) is SCORERS[name]

    def test_twice_the_same_number(self, name, data, fitted):
        assert SCORERS[name](fitted, *data) == SCORERS[name](fitted, *data)

    def test_losses_are_negative_names(self, name):
        assert name.startswith("neg_")
        assert not SCORERS[name].greater_is_better


@pytest.mark.parametrize("name", SCORERS)
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
    wrapped = wrap(NormalLinear()).fit(*data)
    expected = pytest.approx(SCORERS[name](fitted, *data))
    assert SCORERS[name](wrapped, *data) == expected
    assert SCORERS[name](FrozenEstimator(wrapped), *data) == expected


@pytest.mark.parametrize("name", ["neg_winkler_loss", "neg_crps_loss"])
def test_transformed_targets_are_scored_in_units_of_y(name, data, fitted):
    X, y = data
    model = TransformedTargetRegressor(
        NormalLinear(), func=lambda t: t / 100, inverse_func=lambda t: 100 * t
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


PROPER = [
    "neg_winkler_loss",
    "neg_crps_loss",
    "neg_energy_loss",
    "neg_gaussian_nll_loss",
]


class TestSearches:
    """The right spread wins by every proper score, whatever is around the model."""

    GRID = [0.3, 1.0, 3.0]

    @pytest.mark.parametrize("name", PROPER)
    def test_grid_search_finds_the_right_spread(self, name, data):
        search = GridSearchCV(
            NormalLinear(), {"factor": self.GRID}, scoring=SCORERS[name], cv=3
        ).fit(*data)
        assert search.best_params_ == {"factor": 1.0}
        assert search.score(*data) == SCORERS[name](search.best_estimator_, *data)

    def test_many_scores_at_once_in_a_pipeline(self, data):
        search = GridSearchCV(
            make_pipeline(StandardScaler(), NormalLinear()),
            {"normallinear__factor": self.GRID},
            scoring=SCORERS,
            refit="neg_crps_loss",
            cv=3,
        ).fit(*data)
        assert search.best_params_ == {"normallinear__factor": 1.0}
        for name in SCORERS:
            assert np.isfinite(search.cv_results_[f"mean_test_{name}"]).all()

    @pytest.mark.parametrize("scoring", [SCORERS, SCORERS["neg_crps_loss"]])
    def test_other_processes_score_alike(self, scoring, data):
        here, there = (
            GridSearchCV(
                make_pipeline(StandardScaler(), NormalLinear()),
                {"normallinear__factor": self.GRID},
                scoring=scoring,
                refit="neg_crps_loss" if scoring is SCORERS else True,
                cv=2,
                n_jobs=n_jobs,
            ).fit(*data)
            for n_jobs in (1, 2)
        )
        for key in here.cv_results_:
            if key.startswith("mean_test"):
                np.testing.assert_allclose(
                    here.cv_results_[key], there.cv_results_[key]
                )

    def test_cross_val_score(self, data):
        X, y = data
        cv = KFold(3)
        scores = cross_val_score(
            NormalLinear(), X, y, scoring=get_scorer("neg_crps_loss"), cv=cv
        )
        by_hand = [
            SCORERS["neg_crps_loss"](
                NormalLinear().fit(X[train], y[train]), X[test], y[test]
            )
            for train, test in cv.split(X)
        ]
        np.testing.assert_allclose(scores, by_hand)


class TestWeightsInSearches:
    """Weights given to `fit` of a search weigh the scores too."""

    WEIGHTS = np.r_[np.ones(75), np.zeros(75)]

    @pytest.mark.parametrize("several", [True, False])
    def test_without_routing(self, several, data):
        scorer = SCORERS["neg_crps_loss"]
        search = GridSearchCV(
            NormalLinear(),
            {},
            scoring={"crps": scorer} if several else scorer,
            refit="crps" if several else True,
            cv=[(np.arange(150), np.arange(150))],
        )
        with warnings.catch_warnings():
            # a scorer that cannot weigh would be warned of
            warnings.simplefilter("error")
            search.fit(*data, sample_weight=self.WEIGHTS)
        key = "mean_test_crps" if several else "mean_test_score"
        expected = scorer(search.best_estimator_, *data, sample_weight=self.WEIGHTS)
        assert search.cv_results_[key][0] == pytest.approx(expected)
        assert expected != pytest.approx(scorer(search.best_estimator_, *data))

    @pytest.mark.parametrize("asked", [True, False, "importance"])
    def test_with_routing(self, asked, data):
        X, y = data
        everything = [(np.arange(150), np.arange(150))]
        scorer = get_scorer("neg_crps_loss").set_score_request(sample_weight=asked)
        name = asked if isinstance(asked, str) else "sample_weight"
        with config_context(enable_metadata_routing=True):
            # somebody has to ask, or scikit-learn takes the name for a slip
            model = NormalLinear().set_fit_request(sample_weight=asked is False)
            found = cross_validate(
                model,
                X,
                y,
                scoring={"crps": scorer},
                cv=everything,
                params={name: self.WEIGHTS},
            )["test_crps"][0]
        if asked is False:
            expected = scorer(model.fit(X, y, sample_weight=self.WEIGHTS), X, y)
        else:
            expected = scorer(model.fit(X, y), X, y, sample_weight=self.WEIGHTS)
        assert found == pytest.approx(expected)

    def test_routing_asks_for_a_decision(self, data):
        options = {
            "scoring": get_scorer("neg_crps_loss"),
            "params": {"sample_weight": self.WEIGHTS},
        }
        with config_context(enable_metadata_routing=True):
            model = NormalLinear().set_fit_request(sample_weight=False)
            with pytest.raises(ValueError, match="set_score_request"):
                cross_validate(model, *data, **options)

    def test_metric_without_weights_requests_none(self):
        def unweighted(y_true, members):
            return 0.0

        routing = EnsembleScorer(unweighted).get_metadata_routing()
        assert routing.score.requests == {}
        routing = EnsembleScorer(metrics.crps_loss).get_metadata_routing()
        assert routing.score.requests == {"sample_weight": None}


def test_repr_names_metric_level_and_sign():
    assert repr(get_scorer("neg_winkler_loss", confidence_level=0.5)) == (
        "IntervalScorer(winkler_loss, confidence_level=0.5, greater_is_better=False)"
    )
    assert repr(EnsembleScorer(metrics.crps_loss)) == (
        "EnsembleScorer(crps_loss, greater_is_better=True)"
    )


def test_metric_without_level_is_called_without(data, fitted):
    def share_below(y_true, y_interval):
        return np.mean(y_true < y_interval[:, 0])

    assert 0 < IntervalScorer(share_below, confidence_level=0.6)(fitted, *data) < 0.4


def test_got_scorers_do_not_share_their_settings():
    get_scorer("neg_winkler_loss", confidence_level=0.5).set_score_request(
        sample_weight=True
    )
    assert SCORERS["neg_winkler_loss"].confidence_level == 0.9
    requests = SCORERS["neg_winkler_loss"].get_metadata_routing().score.requests
    assert requests == {"sample_weight": None}


def test_unknown_name_is_guessed():
    with pytest.raises(ValueError, match="Did you mean 'neg_crps_loss'"):
        get_scorer("crps_loss")
    with pytest.raises(ValueError, match=r"name='xyz'\. Try another"):
        get_scorer("xyz")


@pytest.mark.parametrize("name", SCORERS)
def test_percent_is_guessed(name):
    with pytest.raises(ValueError, match=r"pass 0\.95"):
        get_scorer(name, confidence_level=95)


def test_level_is_checked_at_once():
    with pytest.raises(ValueError, match="confidence_level must lie"):
        IntervalScorer(metrics.winkler_loss, confidence_level=1.0)
