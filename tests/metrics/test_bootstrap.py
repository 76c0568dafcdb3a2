from functools import partial

import numpy as np
import pytest
from scipy.stats import binom
from scipy.stats import bootstrap as scipy_bootstrap

from uqformer.metrics import (
    bootstrap_interval,
    brier_loss,
    coverage_error,
    coverage_score,
    crps_loss,
    expected_calibration_error,
    failure_auroc_score,
    mean_interval_width,
)
from uqformer.predictive import RegressionEnsemble


def mean_square(errors):
    return float(np.mean(errors**2))


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_it_agrees_with_scipy(method):
    errors = np.random.default_rng(0).normal(size=50)  # squares are skewed
    ours = bootstrap_interval(
        mean_square, errors, n_bootstraps=4000, method=method, random_state=0
    )
    theirs = scipy_bootstrap(
        (errors,),
        lambda e, axis: np.mean(e**2, axis=axis),
        n_resamples=4000,
        method={"bca": "BCa"}.get(method, method),
        vectorized=True,
    ).confidence_interval
    np.testing.assert_allclose(ours, [theirs.low, theirs.high], rtol=0.04)


def test_leaving_out_parts_tells_as_much_as_leaving_out_rows():
    errors = np.random.default_rng(1).normal(size=3000)
    parts = bootstrap_interval(mean_square, errors, n_bootstraps=500, random_state=0)
    mean, std = mean_square(errors), np.sqrt(2 / 3000)
    np.testing.assert_allclose(parts, [mean - 1.96 * std, mean + 1.96 * std], atol=0.01)


def share_that_cover(method, n_repeats, n_samples, n_bootstraps):
    """How often an interval of level 0.9 holds the mean square of a normal, 1."""
    hits = 0
    for seed in range(n_repeats):
        errors = np.random.default_rng(seed).normal(size=n_samples)
        low, high = bootstrap_interval(
            mean_square,
            errors,
            n_bootstraps=n_bootstraps,
            confidence_level=0.9,
            method=method,
            random_state=seed,
        )
        hits += low <= 1 <= high
    return hits


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_intervals_cover_about_as_often_as_they_say(method):
    hits = share_that_cover(method, n_repeats=150, n_samples=80, n_bootstraps=200)
    low, _ = binom.interval(0.999, 150, 0.85)  # a few points are lost to small samples
    _, high = binom.interval(0.999, 150, 0.92)
    assert low <= hits <= high


@pytest.mark.slow
@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_intervals_cover_as_often_as_they_say(method):
    hits = share_that_cover(method, n_repeats=1000, n_samples=400, n_bootstraps=400)
    low, high = binom.interval(0.999, 1000, 0.9)
    assert low - 10 <= hits <= high


def test_correction_moves_a_biased_metric_back(two_classes):
    """Every resample is worse calibrated than the rows it comes from."""
    rng = np.random.default_rng(2)
    proba = rng.uniform(size=300)
    y = (rng.uniform(size=300) < proba).astype(int)
    error = expected_calibration_error(y, proba)
    options = {"n_bootstraps": 300, "random_state": 0}
    plain = bootstrap_interval(
        expected_calibration_error, y, proba, method="percentile", **options
    )
    moved = bootstrap_interval(expected_calibration_error, y, proba, **options)
    assert moved[0] < plain[0]
    assert moved[1] < plain[1]
    assert abs(moved.mean() - error) < abs(plain.mean() - error)


class TestRows:
    """The same rows are drawn from everything that has rows."""

    def test_arrays_stay_together(self):
        rows = np.arange(40)

        def check(first, second, third):
            np.testing.assert_array_equal(first, second[:, 0])
            np.testing.assert_array_equal(first, third[1])
            return first.mean()

        bootstrap_interval(
            check,
            rows,
            np.stack([rows, -rows], axis=1),
            np.stack([-rows, rows]),
            n_bootstraps=20,
            row_axes=(0, 0, 1),
        )

    def test_weights_and_uncertainties_go_along(self, classes):
        y, proba = classes

        def check(y_true, y_proba, uncertainty, sample_weight, labels):
            np.testing.assert_array_equal(uncertainty, y_true)
            np.testing.assert_array_equal(sample_weight, y_proba[:, 0])
            assert labels == [0, 1, 2, 3]
            return 0.5

        bootstrap_interval(
            check,
            y,
            proba,
            n_bootstraps=5,
            uncertainty=y,
            sample_weight=proba[:, 0],
            labels=[0, 1, 2, 3],
        )

    def test_no_weights_may_be_said_aloud(self, two_classes):
        options = {"n_bootstraps": 20, "random_state": 0}
        np.testing.assert_array_equal(
            bootstrap_interval(brier_loss, *two_classes, sample_weight=None, **options),
            bootstrap_interval(brier_loss, *two_classes, **options),
        )

    def test_ensembles_have_their_rows_on_the_second_axis(self):
        rng = np.random.default_rng(3)
        y, members = rng.normal(size=30), rng.normal(size=(5, 30))
        options = {"n_bootstraps": 30, "random_state": 0}
        kept = bootstrap_interval(crps_loss, y, RegressionEnsemble(members), **options)
        bare = bootstrap_interval(crps_loss, y, members, row_axes=(0, 1), **options)
        np.testing.assert_array_equal(kept, bare)
        assert kept[0] < crps_loss(y, members) < kept[1]

    def test_settings_of_the_same_name_go_by_partial(self):
        y, interval = np.arange(20.0), np.tile([4.0, 9.0], (20, 1))
        found = bootstrap_interval(
            partial(coverage_error, confidence_level=0.3),
            y,
            interval,
            confidence_level=0.8,
            n_bootstraps=50,
            random_state=0,
        )
        assert found[0] <= coverage_error(y, interval, confidence_level=0.3) <= found[1]

    def test_lists_will_do(self):
        found = bootstrap_interval(
            coverage_score, [0.0, 9.0] * 9, [[-1.0, 1.0]] * 18, n_bootstraps=50
        )
        assert 0 <= found[0] < 0.5 < found[1] <= 1


@pytest.mark.parametrize("method", ["bca", "percentile"])
class TestAnswers:
    def test_arrays_of_numbers_have_intervals_each(self, method):
        interval = np.random.default_rng(4).normal(size=(40, 2, 3)).cumsum(axis=1)
        interval = np.sort(interval, axis=1)
        options = {"n_bootstraps": 50, "random_state": 0, "method": method}
        found = bootstrap_interval(mean_interval_width, interval, **options)
        assert found.shape == (2, 3)
        for k in range(3):
            alone = bootstrap_interval(
                mean_interval_width, interval[:, :, k], **options
            )
            np.testing.assert_allclose(found[:, k], alone)

    def test_a_metric_that_never_varies_has_no_width(self, method):
        found = bootstrap_interval(
            coverage_score,
            np.zeros(10),
            np.tile([-1.0, 1.0], (10, 1)),
            method=method,
            n_bootstraps=20,
        )
        np.testing.assert_array_equal(found, [1, 1])

    def test_one_row_has_no_width(self, method):
        found = bootstrap_interval(mean_square, [3.0], method=method, n_bootstraps=20)
        np.testing.assert_array_equal(found, [9, 9])

    def test_same_seed_same_interval(self, method):
        errors = np.arange(30.0)
        first, second, third = (
            bootstrap_interval(
                mean_square, errors, method=method, n_bootstraps=40, random_state=seed
            )
            for seed in (0, 0, 1)
        )
        np.testing.assert_array_equal(first, second)
        assert (first != third).any()


class TestMistakes:
    def test_rows_that_differ(self):
        with pytest.raises(ValueError, match=r"same rows.*got \[2, 3\] rows"):
            bootstrap_interval(brier_loss, [0, 1], [0.1, 0.2, 0.3])
        with pytest.raises(ValueError, match=r"got \[1, 2\] rows"):
            bootstrap_interval(brier_loss, [0, 1], [0.1, 0.2], sample_weight=[1])

    def test_no_rows(self):
        with pytest.raises(ValueError, match="at least one"):
            bootstrap_interval(mean_square, [])
        with pytest.raises(ValueError, match="0 axes for 0 arrays"):
            bootstrap_interval(mean_square)

    def test_axes_for_each(self):
        with pytest.raises(ValueError, match="1 axes for 2 arrays"):
            bootstrap_interval(brier_loss, [0, 1], [0.1, 0.2], row_axes=[0])

    @pytest.mark.parametrize(
        ("option", "sentence"),
        [
            ({"confidence_level": 95}, r"pass 0\.95"),
            ({"n_bootstraps": 0}, "n_bootstraps must be an int"),
            ({"method": "basic"}, "'bca', 'percentile'; got method='basic'"),
        ],
    )
    def test_settings(self, option, sentence):
        with pytest.raises(ValueError, match=sentence):
            bootstrap_interval(mean_square, [1.0, 2.0], **option)

    def test_metrics_that_give_no_number(self):
        with pytest.raises(ValueError, match=r"must give finite numbers.*got nan"):
            bootstrap_interval(lambda errors: np.nan, [1.0, 2.0])

    def test_a_draw_that_the_metric_refuses(self):
        with pytest.raises(ValueError, match="right and wrong predictions"):
            bootstrap_interval(
                failure_auroc_score, [0, 1], [0.9, 0.8], labels=[0, 1], random_state=0
            )
