import numpy as np
import pytest
from sklearn.metrics import brier_score_loss

from uqformer.metrics import brier_decomposition, brier_loss


def murphy(y, proba):
    """Murphy's split for the positive class, by the distinct forecasts, doubled."""
    reliability = resolution = 0.0
    for value in np.unique(proba):
        rows = proba == value
        reliability += rows.mean() * (value - y[rows].mean()) ** 2
        resolution += rows.mean() * (y[rows].mean() - y.mean()) ** 2
    return 2 * reliability, 2 * resolution, 2 * y.mean() * (1 - y.mean())


class TestBrierLoss:
    def test_by_hand(self):
        proba = [[0.5, 0.3, 0.2], [0.1, 0.9, 0.0]]
        first, second = 0.5**2 + 0.3**2 + 0.2**2, 0.1**2 + 0.9**2 + 1
        found = brier_loss([0, 2], proba)
        assert found == pytest.approx((first + second) / 2)
        weighted = brier_loss([0, 2], proba, sample_weight=[3, 1])
        assert weighted == pytest.approx((3 * first + second) / 4)

    def test_two_classes_cost_twice_what_sklearn_says(self, two_classes):
        y, proba = two_classes
        assert brier_loss(y, proba) == pytest.approx(2 * brier_score_loss(y, proba))

    @pytest.mark.parametrize(("proba", "loss"), [(1.0, 0.0), (0.0, 2.0), (0.5, 0.5)])
    def test_ends_of_the_scale(self, proba, loss):
        assert brier_loss([1], [proba]) == loss

    def test_it_is_least_for_the_true_probabilities(self):
        true = np.array([0.5, 0.3, 0.2])
        y = np.random.default_rng(0).choice(3, p=true, size=20_000)

        def loss(proba):
            return brier_loss(y, np.tile(proba, (len(y), 1)))

        others = ([0.6, 0.25, 0.15], [0.4, 0.35, 0.25], [0.5, 0.2, 0.3], [1, 0, 0])
        assert all(loss(true) < loss(other) for other in others)


class TestDecomposition:
    @pytest.mark.parametrize("weighted", [False, True])
    def test_the_parts_make_up_the_loss(self, classes, weighted):
        y, proba = classes
        weights = np.random.default_rng(0).uniform(size=300) if weighted else None
        parts = brier_decomposition(y, proba, sample_weight=weights)
        assert min(parts.values()) > 0
        total = parts["reliability"] - parts["resolution"] + parts["uncertainty"]
        loss = brier_loss(y, proba, sample_weight=weights)
        assert total == pytest.approx(loss, rel=1e-12)

    def test_few_forecasts_give_the_classical_split(self):
        rng = np.random.default_rng(1)
        proba = rng.choice([0.1, 0.4, 0.9], size=900)
        y = (rng.uniform(size=900) < 0.2 + 0.5 * proba).astype(int)
        parts = brier_decomposition(y, proba)
        expected = murphy(y, proba)
        assert list(parts.values()) == pytest.approx(expected)

    def test_the_climate_has_neither_fault_nor_merit(self):
        y = np.array([0, 0, 1, 2])
        parts = brier_decomposition(y, np.tile([0.5, 0.25, 0.25], (4, 1)))
        assert parts["reliability"] == pytest.approx(0)
        assert parts["resolution"] == pytest.approx(0)
        assert parts["uncertainty"] == pytest.approx(1 - 0.25 - 2 / 16)

    def test_perfect_forecasts_resolve_everything(self):
        parts = brier_decomposition([0, 1, 1, 2], np.eye(3)[[0, 1, 1, 2]])
        assert parts["reliability"] == 0
        assert parts["resolution"] == pytest.approx(parts["uncertainty"])

    def test_a_rising_map_moves_reliability_alone(self, two_classes):
        y, proba = two_classes
        plain = brier_decomposition(y, proba)
        bent = brier_decomposition(y, proba**3)
        assert bent["resolution"] == pytest.approx(plain["resolution"])
        assert bent["uncertainty"] == plain["uncertainty"]
        assert bent["reliability"] != pytest.approx(plain["reliability"], rel=0.05)

    def test_reliability_falls_to_0_with_calibrated_rows(self):
        rng = np.random.default_rng(2)
        found = []
        for n_samples in (100, 20_000):
            proba = rng.uniform(size=n_samples)
            y = (rng.uniform(size=n_samples) < proba).astype(int)
            found.append(brier_decomposition(y, proba)["reliability"])
        assert found[1] < 0.002 < found[0]

    def test_weights_count_as_repeats(self, classes):
        y, proba = classes
        weights = np.arange(300) % 3
        repeated = brier_decomposition(
            np.repeat(y, weights), proba.repeat(weights, axis=0)
        )
        found = brier_decomposition(y, proba, sample_weight=weights)
        assert found == pytest.approx(repeated)


@pytest.mark.parametrize("metric", [brier_loss, brier_decomposition])
def test_labels_say_which_column_is_which(metric, classes):
    y, proba = classes
    names = np.array(["d", "b", "a", "c"])
    assert metric(names[y], proba, labels=names) == pytest.approx(metric(y, proba))


@pytest.mark.parametrize("metric", [brier_loss, brier_decomposition])
def test_one_row_and_absent_classes(metric):
    assert metric(["b"], [[0.2, 0.7, 0.1]], labels=["a", "b", "c"])
    with pytest.raises(ValueError, match="NaN"):
        metric([1], [np.nan])
