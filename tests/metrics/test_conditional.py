import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from uqformer.metrics import coverage_by_group, coverage_by_width, coverage_score


@pytest.fixture
def drawn():
    """Targets (300,), intervals (300, 2) of four widths, and names (300,) of groups."""
    rng = np.random.default_rng(0)
    reach = rng.choice([0.5, 1.0, 1.5, 2.0], size=300)
    groups = np.where(rng.uniform(size=300) < 0.2, "few", "many")
    return rng.normal(size=300), np.stack([-reach, reach], axis=1), groups


def test_groups_are_counted_like_in_pandas(drawn):
    y, interval, groups = drawn
    table = coverage_by_group(y, interval, groups)
    covered = pd.Series((interval[:, 0] <= y) & (y <= interval[:, 1]))
    expected = covered.groupby(groups).agg(["mean", "size"])
    assert table.group.tolist() == expected.index.tolist()
    np.testing.assert_allclose(table.coverage, expected["mean"])
    np.testing.assert_array_equal(table.count, expected["size"])
    mean = np.average(table.coverage, weights=table.count)
    assert mean == pytest.approx(coverage_score(y, interval))


@pytest.mark.parametrize("level", [0.5, 0.95])
@pytest.mark.parametrize(("n_covered", "n_rows"), [(0, 7), (7, 7), (3, 7), (1, 1)])
def test_bounds_are_those_of_clopper_and_pearson(n_covered, n_rows, level):
    y = np.where(np.arange(n_rows) < n_covered, 0.0, 9.0)
    interval = np.tile([-1.0, 1.0], (n_rows, 1))
    table = coverage_by_group(y, interval, np.zeros(n_rows), bound_level=level)
    exact = binomtest(n_covered, n_rows).proportion_ci(level, method="exact")
    assert table.lower[0] == pytest.approx(exact.low)
    assert table.upper[0] == pytest.approx(exact.high)


@pytest.mark.parametrize(
    "groups", [[2, 1, 2], pd.Series(["b", "a", "b"]), pd.Categorical(["b", "a", "b"])]
)
def test_labels_of_any_one_kind(groups):
    table = coverage_by_group([0.0, 0.0, 9.0], [[-1.0, 1.0]] * 3, groups)
    assert table.group.tolist() == sorted(set(groups))
    np.testing.assert_array_equal(table.coverage, [1, 0.5])


def test_table_becomes_a_data_frame(drawn):
    table = coverage_by_group(*drawn)
    columns = {name: getattr(table, name) for name in table.__slots__}
    frame = pd.DataFrame(columns).set_index("group")
    assert frame.loc["few", "count"] == (drawn[2] == "few").sum()


class TestByWidth:
    def test_equal_widths_stay_together(self, drawn):
        y, interval, _ = drawn
        for n_bins in (4, 12):
            table = coverage_by_width(y, interval, n_bins=n_bins)
            np.testing.assert_allclose(table.group, [1, 2, 3, 4])
        widths = interval[:, 1] - interval[:, 0]
        by_group = coverage_by_group(y, interval, widths)
        np.testing.assert_array_equal(table.coverage, by_group.coverage)

    def test_bins_hold_equally_many(self):
        rng = np.random.default_rng(1)
        reach = rng.uniform(1, 2, size=200)
        interval = np.stack([-reach, reach], axis=1)
        table = coverage_by_width(np.zeros(200), interval)
        np.testing.assert_array_equal(table.count, [40] * 5)
        assert (np.diff(table.group) > 0).all()
        order = np.argsort(reach)
        assert table.group[0] == pytest.approx(2 * reach[order[:40]].mean())

    def test_constant_widths_are_one_bin(self):
        table = coverage_by_width([0.0, 3.0], [[-1.0, 1.0]] * 2)
        np.testing.assert_array_equal(table.group, [2])
        np.testing.assert_array_equal(table.coverage, [0.5])

    def test_blind_intervals_give_themselves_away(self):
        rng = np.random.default_rng(2)
        scale, guess = rng.uniform(0.5, 2, size=(2, 4000))
        y = scale * rng.normal(size=4000)

        def slope(width):
            interval = np.stack([-width, width], axis=1)
            coverage = coverage_by_width(y, interval).coverage
            return coverage[-1] - coverage[0]

        assert abs(slope(1.6 * scale)) < 0.05  # widths that follow the noise
        assert slope(1.6 * guess) > 0.2  # widths that follow nothing

    def test_infinite_widths_are_the_widest(self):
        interval = [[-1.0, 1.0], [-np.inf, np.inf]]
        table = coverage_by_width([0.0, 0.0], interval, n_bins=2)
        np.testing.assert_array_equal(table.group, [2, np.inf])


def test_mistakes_are_named(drawn):
    y, interval, groups = drawn
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        coverage_by_group(y, interval, groups[1:])
    with pytest.raises(ValueError, match="groups contains NaN"):
        coverage_by_group([0.0], [[0.0, 1.0]], [np.nan])
    with pytest.raises(ValueError, match="bound_level must lie strictly"):
        coverage_by_group(y, interval, groups, bound_level=95)
    with pytest.raises(ValueError, match="n_bins must be an int"):
        coverage_by_width(y, interval, n_bins=0)
    with pytest.raises(ValueError, match="one output and one level at a time"):
        coverage_by_width(y, np.zeros((300, 2, 3)))
    with pytest.raises(ValueError, match="one output and one level at a time"):
        coverage_by_group(np.zeros((4, 2)), np.zeros((4, 2)), np.zeros(4))
