"""What all scorers share: sign, weights, pickles and metadata routing."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_validate

from uqformer import metrics
from uqformer.scorers import EnsembleScorer, IntervalScorer, ProbabilityScorer


def test_sign_follows_greater_is_better(data, fitted):
    loss = metrics.crps_loss(data[1], fitted.predict_ensemble(data[0]).members)
    assert EnsembleScorer(metrics.crps_loss)(fitted, *data) == loss
    lower = EnsembleScorer(metrics.crps_loss, greater_is_better=False)
    assert lower(fitted, *data) == -loss


def test_score_is_a_plain_float(data, fitted):
    scorer = EnsembleScorer(lambda y_true, members: np.float32(0.5))
    assert type(scorer(fitted, *data)) is float


def test_pickle_scores_alike(data, fitted):
    scorer = IntervalScorer(metrics.winkler_loss, confidence_level=0.7)
    copy = pickle.loads(pickle.dumps(scorer))
    assert copy(fitted, *data) == scorer(fitted, *data)
    assert repr(copy) == repr(scorer)


def test_metric_without_weights_says_so(data, fitted):
    def largest_miss(y_true, members):
        return np.abs(y_true - members).max()

    scorer = EnsembleScorer(largest_miss, greater_is_better=False)
    assert scorer(fitted, *data) < -1
    with pytest.raises(TypeError, match="got largest_miss, which does not"):
        scorer(fitted, *data, sample_weight=np.ones(150))


def test_repr_names_metric_and_sign():
    assert repr(EnsembleScorer(metrics.crps_loss)) == (
        "EnsembleScorer(crps_loss, greater_is_better=True)"
    )
    assert repr(ProbabilityScorer(metrics.brier_loss, greater_is_better=False)) == (
        "ProbabilityScorer(brier_loss, greater_is_better=False)"
    )


class TestWeightsInSearches:
    """Weights given to `fit` of a search weigh the scores too."""

    WEIGHTS = np.r_[np.ones(75), np.zeros(75)]
    EVERYTHING = ((np.arange(150), np.arange(150)),)

    @pytest.fixture
    def scorer(self):
        return EnsembleScorer(metrics.crps_loss, greater_is_better=False)

    @pytest.mark.parametrize("several", [True, False])
    def test_without_routing(self, several, data, scorer, normal_linear):
        search = GridSearchCV(
            normal_linear(),
            {},
            scoring={"crps": scorer} if several else scorer,
            refit="crps" if several else True,
            cv=self.EVERYTHING,
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
    def test_with_routing(self, asked, data, scorer, normal_linear):
        X, y = data
        scorer.set_score_request(sample_weight=asked)
        name = asked if isinstance(asked, str) else "sample_weight"
        with config_context(enable_metadata_routing=True):
            # somebody has to ask, or scikit-learn takes the name for a slip
            model = normal_linear().set_fit_request(sample_weight=asked is False)
            found = cross_validate(
                model,
                X,
                y,
                scoring={"crps": scorer},
                cv=self.EVERYTHING,
                params={name: self.WEIGHTS},
            )["test_crps"][0]
        if asked is False:
            expected = scorer(model.fit(X, y, sample_weight=self.WEIGHTS), X, y)
        else:
            expected = scorer(model.fit(X, y), X, y, sample_weight=self.WEIGHTS)
        assert found == pytest.approx(expected)

    def test_routing_asks_for_a_decision(self, data, scorer, normal_linear):
        options = {"scoring": scorer, "params": {"sample_weight": self.WEIGHTS}}
        with config_context(enable_metadata_routing=True):
            model = normal_linear().set_fit_request(sample_weight=False)
            with pytest.raises(ValueError, match="set_score_request"):
                cross_validate(model, *data, **options)

    def test_metric_without_weights_requests_none(self, scorer):
        def unweighted(y_true, members):
            return 0.0

        assert EnsembleScorer(unweighted).get_metadata_routing().score.requests == {}
        requests = scorer.get_metadata_routing().score.requests
        assert requests == {"sample_weight": None}
