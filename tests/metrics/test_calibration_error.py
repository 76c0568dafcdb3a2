import numpy as np
import pytest

from uqformer.metrics import (
    calibration_bins,
    classwise_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
)
from uqformer.metrics._calibration_error import _debiased_square


def by_hand(scores, hits, n_bins, norm):
    """The ten-line loop that everybody writes, with the last bin closed."""
    gaps, shares = [], []
    for k in range(n_bins):
        rows = (k / n_bins <= scores) & (scores < (k + 1) / n_bins)
        if k == n_bins - 1:
            rows |= scores == 1
        if rows.any():
            gaps.append(abs(hits[rows].mean() - scores[rows].mean()))
            shares.append(rows.mean())
    gaps, shares = np.array(gaps), np.array(shares)
    l1, l2 = (shares * gaps).sum(), np.sqrt((shares * gaps**2).sum())
    return {"l1": l1, "l2": l2, "max": gaps.max()}[norm]


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("n_bins", [1, 7, 15])
def test_it_agrees_with_a_loop(classes, norm, n_bins):
    y, proba = classes
    expected = by_hand(proba.max(axis=1), proba.argmax(axis=1) == y, n_bins, norm)
    found = expected_calibration_error(y, proba, n_bins=n_bins, norm=norm)
    assert found == pytest.approx(expected)


def test_the_largest_has_a_name_of_its_own(classes):
    y, proba = classes
    for strategy in ("uniform", "quantile"):
        assert maximum_calibration_error(y, proba, strategy=strategy) == (
            expected_calibration_error(y, proba, strategy=strategy, norm="max")
        )


class TestEdges:
    """What has tripped others up (torchmetrics#3510, #1646, #1744, #1907).

    Confidences of 0 and 1, one class, one row, constant scores, NaN.
    """

    def test_confidence_of_1_has_no_bin_of_its_own(self):
        # one wrong at 1, one right at 0.95: together 0.5 right at 0.975
        found = expected_calibration_error([0, 1], [1.0, 0.95])
        assert found == pytest.approx(0.475)

    def test_probability_of_0(self):
        assert expected_calibration_error([0, 1], [0.0, 0.0], pos_label=1) == 0.5

    @pytest.mark.parametrize(("proba", "error"), [(1.0, 0.0), (0.0, 1.0)])
    def test_sure_and_always_right_or_wrong(self, proba, error):
        y = np.ones(10, dtype=int)
        assert expected_calibration_error(y, np.full(10, proba)) == error

    def test_one_class(self):
        assert expected_calibration_error(["a", "a"], [[1.0], [1.0]]) == 0

    @pytest.mark.parametrize("strategy", ["uniform", "quantile"])
    def test_one_row(self, strategy):
        found = expected_calibration_error([1], [0.75], strategy=strategy)
        assert found == 0.25

    @pytest.mark.parametrize("strategy", ["uniform", "quantile"])
    def test_constant_scores(self, strategy):
        found = expected_calibration_error(
            [0, 1, 1, 1], np.full(4, 0.875), strategy=strategy
        )
        assert found == 0.125

    def test_nan(self):
        with pytest.raises(ValueError, match="NaN"):
            expected_calibration_error([0, 1], [0.5, np.nan])


def test_torchmetrics_agrees_but_for_its_bin_beyond_1(classes):
    """torchmetrics 1.9 puts a confidence of exactly 1 into a bin of its own."""
    functional = pytest.importorskip("torchmetrics.functional.classification")
    torch = pytest.importorskip("torch")
    y, proba = classes
    for norm in ("l1", "l2", "max"):
        theirs = functional.multiclass_calibration_error(
            torch.tensor(proba), torch.tensor(y), 4, n_bins=15, norm=norm
        )
        ours = expected_calibration_error(y, proba, norm=norm)
        assert ours == pytest.approx(float(theirs), abs=1e-6)
    theirs = functional.binary_calibration_error(
        torch.tensor([1.0, 0.95]), torch.tensor([0, 1]), n_bins=15
    )
    assert float(theirs) == pytest.approx(0.525)
    assert expected_calibration_error(
        [0, 1], [1.0, 0.95], pos_label=1
    ) == pytest.approx(0.475)


def test_netcal_agrees(classes):
    netcal = pytest.importorskip("netcal.metrics")
    y, proba = classes
    assert expected_calibration_error(y, proba) == pytest.approx(
        netcal.ECE(15).measure(proba, y)
    )


@pytest.mark.parametrize(
    ("name", "error"), [("cifar10", 0.033), ("mnist", 0.003), ("20news", 0.201)]
)
def test_known_numbers_of_real_models(probs_dir, name, error):
    with np.load(probs_dir / f"{name}_test_probs.npz") as file:
        found = expected_calibration_error(file["labels"], file["probs"])
    assert found == pytest.approx(error, abs=5e-4)


def test_two_classes_may_come_as_one_column(two_classes):
    y, proba = two_classes
    both = np.stack([1 - proba, proba], axis=1)
    for pos_label in (None, 1):
        assert expected_calibration_error(
            y, proba, pos_label=pos_label
        ) == expected_calibration_error(y, both, pos_label=pos_label)


def test_columns_may_come_in_any_order(classes):
    y, proba = classes
    names = np.array(["d", "b", "a", "c"])
    found = expected_calibration_error(names[y], proba, labels=names)
    assert found == expected_calibration_error(y, proba)


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize(
    "metric", [expected_calibration_error, classwise_calibration_error]
)
def test_weights_count_as_repeats(classes, metric, norm, strategy):
    y, proba = classes
    weights = np.arange(300) % 3
    options = {"strategy": strategy, "norm": norm, "n_bins": 5}
    assert metric(y, proba, sample_weight=weights, **options) == pytest.approx(
        metric(np.repeat(y, weights), proba.repeat(weights, axis=0), **options)
    )


class TestClasswise:
    def test_it_is_the_mean_over_classes(self, classes):
        y, proba = classes
        alone = [expected_calibration_error(y, proba, pos_label=k) for k in range(4)]
        assert classwise_calibration_error(y, proba) == pytest.approx(np.mean(alone))

    def test_a_class_without_rows_counts(self):
        proba = np.array([[0.5, 0.25, 0.25]] * 4)
        # 0.5, 0.25 right for the first two; the third never comes true
        found = classwise_calibration_error([0, 0, 1, 1], proba, labels=[0, 1, 2])
        assert found == pytest.approx((0 + 0.25 + 0.25) / 3)

    def test_it_sees_what_the_top_label_hides(self):
        # the class predicted is right as often as said, the others are swapped
        proba = np.tile([0.6, 0.3, 0.1], (10, 1))
        y = [0] * 6 + [1] + [2] * 3
        assert expected_calibration_error(y, proba) == pytest.approx(0)
        assert classwise_calibration_error(y, proba) == pytest.approx(0.4 / 3)


class TestDebiased:
    """Kumar, Liang and Ma (2019), definition 5.1."""

    @staticmethod
    def draw(gap, seed, n_samples=60):
        rng = np.random.default_rng(seed)
        proba = rng.choice([0.3, 0.5, 0.7], size=n_samples)
        return (rng.uniform(size=n_samples) < proba + gap).astype(int), proba

    def test_by_hand(self):
        y, proba = [0, 0, 1, 0, 1, 1], [0.25] * 3 + [0.75] * 3
        # shares 1/2; squared gaps (1/3 - 1/4)^2; noise (2/9) / 2
        square = (1 / 3 - 1 / 4) ** 2 - 1 / 9
        bins = calibration_bins(y, proba, n_bins=2, pos_label=1)
        assert bins.accuracy.tolist() == pytest.approx([1 / 3, 2 / 3])
        assert _debiased_square(bins) == pytest.approx(square)
        found = expected_calibration_error(
            y, proba, n_bins=2, pos_label=1, norm="l2", debiased=True
        )
        assert found == 0

    @pytest.mark.parametrize("gap", [0.0, 0.1, 0.25])
    def test_the_square_is_unbiased(self, gap):
        squares = []
        for seed in range(2000):
            bins = calibration_bins(*self.draw(gap, seed), n_bins=10, pos_label=1)
            squares.append(_debiased_square(bins))
        margin = 4 * np.std(squares) / np.sqrt(len(squares))
        assert margin < 0.003
        assert np.mean(squares) == pytest.approx(gap**2, abs=margin)

    def test_the_plain_square_is_not(self):
        plain = [
            expected_calibration_error(
                *self.draw(0.0, seed), n_bins=10, pos_label=1, norm="l2"
            )
            ** 2
            for seed in range(200)
        ]
        assert np.mean(plain) > 0.008

    def test_single_rows_count_as_0(self):
        found = expected_calibration_error(
            [1, 0], [0.1, 0.9], pos_label=1, norm="l2", debiased=True
        )
        assert found == 0

    def test_a_large_error_is_hardly_changed(self):
        y, proba = self.draw(0.0, 0, n_samples=4000)
        options = {"pos_label": 1, "norm": "l2"}
        plain = expected_calibration_error(y, 1 - proba, **options)
        found = expected_calibration_error(y, 1 - proba, debiased=True, **options)
        assert 0.99 * plain < found < plain

    def test_another_norm_is_refused(self):
        with pytest.raises(ValueError, match=r"needs norm='l2'.*got norm='l1'"):
            expected_calibration_error([0, 1], [0.5, 0.5], debiased=True)


def test_unknown_norm_is_named():
    with pytest.raises(ValueError, match="got norm='l3'"):
        expected_calibration_error([0, 1], [0.5, 0.5], norm="l3")
