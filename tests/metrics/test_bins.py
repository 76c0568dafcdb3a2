import numpy as np
import pytest

from uqformer.metrics._bins import bin_edges, bin_means, locate, quantile_cuts


def test_uniform_edges_do_not_look_at_the_values():
    edges = bin_edges(np.array([0.9]), np.ones(1), 4, "uniform")
    np.testing.assert_array_equal(edges, [0, 0.25, 0.5, 0.75, 1])


def test_unknown_strategy_is_named():
    with pytest.raises(ValueError, match=r"'uniform', 'quantile'; got strategy='even'"):
        bin_edges(np.ones(1), np.ones(1), 4, "even")


@pytest.mark.parametrize("n_bins", [1, 2, 3, 7])
def test_quantile_bins_hold_equally_many(n_bins):
    values = np.random.default_rng(0).uniform(size=210)
    edges = bin_edges(values, np.ones(210), n_bins, "quantile")
    assert edges[0] == 0
    assert edges[-1] == 1
    counts = np.bincount(locate(values, edges[1:-1]))
    np.testing.assert_array_equal(counts, 210 // n_bins)


def test_uneven_shares_differ_by_one():
    values = np.random.default_rng(0).uniform(size=100)
    bins = locate(values, quantile_cuts(values, np.ones(100), 15))
    assert set(np.bincount(bins)) == {6, 7}


@pytest.mark.parametrize(
    ("values", "cuts"),
    [
        ([0.5] * 6, []),
        ([0.1, 0.5, 0.5, 0.5, 0.5, 0.9], [0.5]),
        ([0.1, 0.1, 0.1, 0.1, 0.8, 0.9], [0.8]),
    ],
)
def test_equal_values_stay_together(values, cuts):
    found = quantile_cuts(np.array(values), np.ones(6), 3)
    np.testing.assert_array_equal(found, cuts)


def test_weights_cut_like_repeats():
    rng = np.random.default_rng(1)
    values, weights = rng.uniform(size=60), rng.integers(0, 4, size=60)
    repeated = np.repeat(values, weights)
    np.testing.assert_array_equal(
        quantile_cuts(values, weights.astype(float), 5),
        quantile_cuts(repeated, np.ones(len(repeated)), 5),
    )


def test_a_value_on_an_edge_begins_the_next_bin_and_1_has_none_of_its_own():
    edges = np.array([0.0, 0.5, 1.0])
    np.testing.assert_array_equal(
        locate(np.array([0.0, 0.499, 0.5, 1.0]), edges[1:-1]), [0, 0, 1, 1]
    )


def test_means_are_weighted_and_empty_bins_are_nan():
    means = bin_means(
        np.array([1.0, 3.0, 9.0]), np.array([0, 0, 2]), np.array([3.0, 1.0, 0.0]), 3
    )
    np.testing.assert_array_equal(means, [1.5, np.nan, np.nan])
