import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from uqformer.metrics import calibration_bins


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("pos_label", [None, 0, 3])
def test_bins_agree_with_a_loop(classes, strategy, pos_label):
    y, proba = classes
    bins = calibration_bins(y, proba, n_bins=6, strategy=strategy, pos_label=pos_label)
    if pos_label is None:
        scores, hits = proba.max(axis=1), proba.argmax(axis=1) == y
    else:
        scores, hits = proba[:, pos_label], y == pos_label
    assert len(bins.edges) == 7
    for k, (low, high) in enumerate(zip(bins.edges[:-1], bins.edges[1:], strict=True)):
        rows = (low <= scores) & (scores < high)
        assert bins.count[k] == rows.sum()
        assert bins.share[k] == pytest.approx(rows.mean())
        if rows.any():
            assert bins.confidence[k] == pytest.approx(scores[rows].mean())
            assert bins.accuracy[k] == pytest.approx(hits[rows].mean())
        else:
            assert np.isnan([bins.confidence[k], bins.accuracy[k]]).all()


def test_two_classes_agree_with_sklearn(two_classes):
    y, proba = two_classes
    bins = calibration_bins(y, proba, n_bins=8, pos_label=1)
    accuracy, confidence = calibration_curve(y, proba, n_bins=8)
    filled = bins.count > 0
    np.testing.assert_allclose(bins.accuracy[filled], accuracy)
    np.testing.assert_allclose(bins.confidence[filled], confidence)


def test_the_last_bin_is_closed():
    bins = calibration_bins([1, 0, 1], [1.0, 0.0, 0.5], n_bins=2, pos_label=1)
    np.testing.assert_array_equal(bins.count, [1, 2])
    np.testing.assert_array_equal(bins.accuracy, [0, 1])
    np.testing.assert_array_equal(bins.confidence, [0, 0.75])


def test_constant_scores_fill_one_bin():
    y, proba = [0, 1, 1, 1], np.full(4, 0.75)
    uniform = calibration_bins(y, proba, n_bins=15)
    assert (uniform.count > 0).sum() == 1
    quantile = calibration_bins(y, proba, n_bins=15, strategy="quantile")
    np.testing.assert_array_equal(quantile.edges, [0, 1])
    np.testing.assert_array_equal(quantile.accuracy, [0.75])


def test_one_row():
    for strategy in ("uniform", "quantile"):
        bins = calibration_bins([1], [0.75], strategy=strategy)
        assert bins.count.sum() == 1
        assert np.nansum(bins.confidence) == 0.75


def test_weights_are_repeats_but_count_as_no_more_rows(classes):
    y, proba = classes
    weights = np.arange(300) % 3
    weighted = calibration_bins(y, proba, strategy="quantile", sample_weight=weights)
    repeated = calibration_bins(
        np.repeat(y, weights), proba.repeat(weights, axis=0), strategy="quantile"
    )
    for name in ("edges", "confidence", "accuracy", "share"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name))
    assert (weighted.count < repeated.count).all()
    assert weighted.count.sum() < 200  # 200 rows have a weight


def test_equal_weights_count_rows(classes):
    y, proba = classes
    bins = calibration_bins(y, proba, sample_weight=np.full(300, 0.3))
    np.testing.assert_allclose(bins.count, calibration_bins(y, proba).count)


@pytest.mark.parametrize("n_bins", [0, 2.5, True])
def test_bad_numbers_of_bins_are_refused(n_bins):
    with pytest.raises(ValueError, match="n_bins must be an int of at least 1"):
        calibration_bins([0, 1], [0.5, 0.5], n_bins=n_bins)
