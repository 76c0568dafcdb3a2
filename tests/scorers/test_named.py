"""The table of scorers, and the door to it."""

import inspect
import pickle

import pytest
from sklearn.metrics import check_scoring

from uqformer import metrics
from uqformer.scorers import SCORERS, ProbabilityScorer, get_scorer

# more coverage than asked for is not better; the other takes X besides
UNSCORED = {"coverage_score", "worst_slab_coverage_score"}


@pytest.fixture
def example(request, data, fitted, labelled, classifier):
    """A model and rows that suit the scorer of the test's `name`."""
    name = request.node.callspec.params["name"]
    if isinstance(SCORERS[name], ProbabilityScorer):
        return classifier, *labelled
    return fitted, *data


@pytest.mark.parametrize("name", SCORERS)
class TestManners:
    def test_pickle(self, name, example):
        scorer = pickle.loads(pickle.dumps(SCORERS[name]))
        assert scorer(*example) == SCORERS[name](*example)
        assert repr(scorer) == repr(SCORERS[name])

    def test_sklearn_takes_it_for_a_scorer(self, name, example):
        assert check_scoring(example[0], SCORERS[name]) is SCORERS[name]

    def test_twice_the_same_number(self, name, example):
        assert SCORERS[name](*example) == SCORERS[name](*example)

    def test_losses_are_negative_names(self, name):
        assert name.startswith("neg_") != SCORERS[name].greater_is_better
        assert name.endswith("_score") == SCORERS[name].greater_is_better

    def test_percent_is_guessed(self, name):
        with pytest.raises(ValueError, match=r"pass 0\.95"):
            get_scorer(name, confidence_level=95)


def test_every_metric_of_a_prediction_has_a_scorer():
    names = [
        name
        for name in metrics.__all__
        if name.endswith(("_score", "_loss", "_error"))
        and "y_true" in inspect.signature(getattr(metrics, name)).parameters
    ]
    found = {name.removeprefix("neg_") for name in SCORERS}
    assert set(names) - UNSCORED <= found
    assert found - set(names) == {"log_loss", "mean_interval_width"}


def test_got_scorers_do_not_share_their_settings():
    get_scorer("neg_winkler_loss", confidence_level=0.5).set_score_request(
        sample_weight=True
    )
    assert SCORERS["neg_winkler_loss"].confidence_level == 0.9
    requests = SCORERS["neg_winkler_loss"].get_metadata_routing().score.requests
    assert requests == {"sample_weight": None}


def test_no_level_leaves_what_the_table_says():
    assert get_scorer("neg_winkler_loss").confidence_level == 0.9
    levels = get_scorer("neg_weighted_interval_loss").confidence_level
    assert levels == (0.5, 0.8, 0.95)


def test_unknown_name_is_guessed():
    with pytest.raises(ValueError, match="Did you mean 'neg_crps_loss'"):
        get_scorer("crps_loss")
    with pytest.raises(ValueError, match=r"name='xyz'\. Try another"):
        get_scorer("xyz")
