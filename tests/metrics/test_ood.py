import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import average_precision_score

from uqformer.metrics import ood_aupr_score, ood_auroc_score, ood_fpr_at_tpr_error

METRICS = [ood_auroc_score, ood_aupr_score, ood_fpr_at_tpr_error]


@pytest.mark.parametrize("shift", [0.0, 1.0, 2.5])
def test_two_normals_have_closed_forms(shift):
    grid = norm.ppf((np.arange(4000) + 0.5) / 4000)
    auroc = ood_auroc_score(grid, grid + shift)
    assert auroc == pytest.approx(norm.cdf(shift / np.sqrt(2)), abs=1e-3)
    for tpr in (0.8, 0.95):
        let_through = ood_fpr_at_tpr_error(grid, grid + shift, tpr=tpr)
        assert let_through == pytest.approx(norm.cdf(norm.ppf(tpr) - shift), abs=1e-3)


def test_aupr_has_outsiders_for_positives():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(size=80), rng.normal(size=20) + 1
    expected = average_precision_score(
        np.r_[np.zeros(80), np.ones(20)], np.r_[inside, outside]
    )
    assert ood_aupr_score(inside, outside) == pytest.approx(expected)


def test_larger_is_stranger():
    inside, outside = [0.0, 1.0, 2.0], [3.0, 4.0]
    assert ood_auroc_score(inside, outside) == 1
    assert ood_aupr_score(inside, outside) == 1
    assert ood_fpr_at_tpr_error(inside, outside) == 0
    assert ood_auroc_score(outside, inside) == 0
    assert ood_fpr_at_tpr_error(outside, inside) == 1


@pytest.mark.parametrize("metric", METRICS)
def test_sizes_may_differ_down_to_one(metric):
    assert 0 <= metric([0.5], [0.1, 0.5, 0.9]) <= 1
    assert ood_auroc_score([0.5], [0.5]) == 0.5


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("bad", "sentence"),
    [([], "sample"), ([np.nan], "NaN"), ([np.inf], "infinity"), (np.eye(2), "1d")],
)
def test_bad_scores_are_refused(metric, bad, sentence):
    for pair in ((bad, [0.0]), ([0.0], bad)):
        with pytest.raises(ValueError, match=sentence):
            metric(*pair)
