import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from uqformer.metrics import (
    failure_aupr_score,
    failure_auroc_score,
    fpr_at_tpr_error,
)

METRICS = [failure_auroc_score, failure_aupr_score, fpr_at_tpr_error]


@pytest.fixture
def judged(classes):
    """Labels, probabilities, failures, and entropies as the uncertainty."""
    y, proba = classes
    entropy = -(proba * np.log(proba + 1e-300)).sum(axis=1)
    return y, proba, proba.argmax(axis=1) != y, entropy


def test_auroc_counts_pairs(judged):
    y, proba, wrong, entropy = judged
    ours = failure_auroc_score(y, proba, uncertainty=entropy.round(1))
    bad, good = entropy.round(1)[wrong][:, None], entropy.round(1)[~wrong]
    pairs = (bad > good) + 0.5 * (bad == good)
    assert ours == pytest.approx(pairs.mean())


def test_aupr_is_the_average_precision_of_failures(judged):
    y, proba, wrong, entropy = judged
    ours = failure_aupr_score(y, proba, uncertainty=entropy)
    assert ours == pytest.approx(average_precision_score(wrong, entropy))


@pytest.mark.parametrize("tpr", [0.5, 0.8, 0.95])
def test_fpr_by_hand(judged, tpr):
    y, proba, wrong, entropy = judged
    right = np.sort(entropy[~wrong])
    threshold = right[int(np.ceil(tpr * len(right))) - 1]
    assert np.mean(entropy[~wrong] <= threshold) >= tpr
    found = fpr_at_tpr_error(y, proba, tpr=tpr, uncertainty=entropy)
    assert found == pytest.approx(np.mean(entropy[wrong] <= threshold))


def test_ends_of_the_scale():
    y, proba = [1, 1, 1, 0], [0.9, 0.8, 0.7, 0.6]
    known, hidden = [0, 0, 0, 1], [0, 0, 0, -1]
    assert failure_auroc_score(y, proba, uncertainty=known) == 1
    assert failure_aupr_score(y, proba, uncertainty=known) == 1
    assert fpr_at_tpr_error(y, proba, uncertainty=known) == 0
    assert failure_auroc_score(y, proba, uncertainty=hidden) == 0
    assert failure_aupr_score(y, proba, uncertainty=hidden) == 0.25
    assert fpr_at_tpr_error(y, proba, uncertainty=hidden) == 1


def test_random_doubt_gives_the_chance_levels(judged):
    y, proba, wrong, _ = judged
    rng = np.random.default_rng(0)
    found = np.array(
        [
            [metric(y, proba, uncertainty=rng.normal(size=300)) for metric in METRICS]
            for _ in range(200)
        ]
    )
    chance = [0.5, wrong.mean(), 0.95]
    margins = 4 * found.std(axis=0) / np.sqrt(200)
    # average precision and the reached rate are a little above by their definition
    slack = [0, 0.02, 0.01]
    assert (np.abs(found.mean(axis=0) - chance) <= margins + slack).all()


@pytest.mark.parametrize("metric", METRICS)
def test_the_largest_probability_is_the_default(metric, judged):
    y, proba, _, _ = judged
    found = metric(y, proba)
    assert found == metric(y, proba, uncertainty=-proba.max(axis=1))
    assert found == pytest.approx(metric(y, proba, uncertainty=1 - proba.max(axis=1)))


@pytest.mark.parametrize("metric", METRICS)
def test_only_the_order_counts(metric, judged):
    y, proba, _, entropy = judged
    assert metric(y, proba, uncertainty=entropy) == pytest.approx(
        metric(y, proba, uncertainty=np.exp(5 * entropy))
    )


@pytest.mark.parametrize("metric", METRICS)
def test_weights_count_as_repeats(metric, judged):
    y, proba, _, entropy = judged
    weights = np.arange(300) % 3
    found = metric(y, proba, uncertainty=entropy, sample_weight=weights)
    repeated = metric(
        np.repeat(y, weights),
        proba.repeat(weights, axis=0),
        uncertainty=np.repeat(entropy, weights),
    )
    assert found == pytest.approx(repeated)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("y", "kind"), [([1, 1], "right"), ([0, 0], "wrong")])
def test_one_kind_alone_cannot_be_told_apart(metric, y, kind):
    with pytest.raises(ValueError, match=f"got only {kind} ones in 2 rows"):
        metric(y, [0.9, 0.8])
    with pytest.raises(ValueError, match=f"only {kind} ones"):
        metric([*y, 1 - y[0]], [0.9, 0.8, 0.8], sample_weight=[1, 1, 0])


@pytest.mark.parametrize("tpr", [0.0, 1.0, 95])
def test_tpr_is_a_share(tpr):
    with pytest.raises(ValueError, match="tpr must lie strictly between 0 and 1"):
        fpr_at_tpr_error([1, 0], [0.9, 0.8], tpr=tpr)
