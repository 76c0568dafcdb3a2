import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from uqformer.metrics import expected_calibration_error, smooth_calibration_error


def by_quadrature(scores, hits, n_cells=500):
    """The definition, with the normal density folded at 0 and 1 by hand."""
    t = (np.arange(n_cells) + 0.5)[:, None] / n_cells
    images = [s + 2 * k for k in range(-2, 3) for s in (scores, -scores)]

    def smoothed(width):
        kernel = sum(norm.pdf(t, image, width) for image in images)
        return np.abs(kernel @ (hits - scores)).mean() / len(scores)

    return brentq(lambda width: smoothed(width) - width, 1e-3, 1)


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.0])
def test_it_agrees_with_the_definition(power):
    rng = np.random.default_rng(0)
    p = rng.uniform(size=200)
    y = (rng.uniform(size=200) < p).astype(int)
    found = smooth_calibration_error(y, p**power, pos_label=1)
    assert found == pytest.approx(by_quadrature(p**power, y), rel=1e-3)


def test_scores_at_both_ends_are_reflected():
    y, proba = np.array([0, 1, 1, 0, 0]), np.array([1.0, 1.0, 0.0, 0.0, 0.02])
    found = smooth_calibration_error(y, proba, pos_label=1)
    assert found == pytest.approx(by_quadrature(proba, y), rel=1e-3)


@pytest.mark.parametrize(
    ("y", "proba", "error"),
    [
        ([1], [0.75], 0.25),
        ([1, 1, 1, 0], [0.875] * 4, 0.125),  # one score: the gap, however smoothed
        ([1, 1], [0.0, 0.0], 1.0),
        ([1, 1, 0], [1.0, 1.0, 0.0], 0.0),
    ],
)
def test_known_values(y, proba, error):
    found = smooth_calibration_error(y, proba, pos_label=1)
    assert found == pytest.approx(error, abs=1e-6)


def test_top_label_is_the_default(classes):
    y, proba = classes
    right = (proba.argmax(axis=1) == y).astype(int)
    assert smooth_calibration_error(y, proba) == pytest.approx(
        smooth_calibration_error(right, proba.max(axis=1), pos_label=1)
    )


def test_calibrated_predictions_err_by_chance_alone():
    rng = np.random.default_rng(1)
    errors = []
    for n_samples in (100, 10_000):
        p = rng.uniform(size=n_samples)
        y = (rng.uniform(size=n_samples) < p).astype(int)
        errors.append(smooth_calibration_error(y, p, pos_label=1))
    assert errors[1] < 0.02 < errors[0] < 0.2


def test_it_does_not_jump_where_binned_errors_do():
    y = np.array([0, 1] * 50)
    above = np.where(y == 1, 0.501, 0.499)
    below = np.where(y == 1, 0.499, 0.501)

    def binned(proba):
        return expected_calibration_error(y, proba, n_bins=2, pos_label=1)

    assert binned(above) == pytest.approx(0.499)
    assert binned(np.full(100, 0.5)) == 0
    for proba in (above, below):
        assert smooth_calibration_error(y, proba, pos_label=1) < 0.05


def test_weights_count_as_repeats(classes):
    y, proba = classes
    weights = np.arange(300) % 3
    found = smooth_calibration_error(y, proba, sample_weight=weights)
    repeated = smooth_calibration_error(
        np.repeat(y, weights), proba.repeat(weights, axis=0)
    )
    assert found == pytest.approx(repeated)


def test_relplot_agrees_within_its_grid(two_classes):
    relplot = pytest.importorskip("relplot")
    y, proba = two_classes
    theirs = relplot.smECE(proba, y.astype(float))
    assert smooth_calibration_error(y, proba, pos_label=1) == pytest.approx(
        theirs, abs=0.01
    )


def test_nan_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        smooth_calibration_error([0, 1], [0.5, np.nan])
