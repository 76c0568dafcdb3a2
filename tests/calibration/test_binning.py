"""Histogram binning: which bin, which frequency, and room for surprises."""

import numpy as np
import pytest
from scipy.special import expit, logit

from uqformer.calibration import HistogramBinningCalibrator
from uqformer.calibration._binning import BinMap


def labelled(n_rows=900, seed=0):
    rng = np.random.default_rng(seed)
    y_proba = rng.uniform(size=n_rows)
    return y_proba, (rng.uniform(size=n_rows) < y_proba**2).astype(int)


def fit(y_proba, y, **params):
    return HistogramBinningCalibrator(input="proba", **params).fit(y_proba, y)


def test_uniform_bins_hold_their_frequencies():
    y_proba, y = labelled()
    found = fit(y_proba, y, n_bins=10, strategy="uniform").transform(y_proba)
    for k in range(10):
        inside = (y_proba > k / 10) & (y_proba <= (k + 1) / 10)
        expected = (y[inside].sum() + y_proba[inside].mean()) / (inside.sum() + 1)
        np.testing.assert_allclose(found[inside], expected)


def test_quantile_bins_hold_equally_many_rows():
    y_proba, y = labelled()
    calibrator = fit(y_proba, y, n_bins=9, strategy="quantile")
    edges = calibrator.maps_[0].edges
    assert len(edges) == 8
    counts = np.bincount(np.searchsorted(edges, logit(y_proba)))
    assert counts.tolist() == [100] * 9
    assert np.isin(logit(y_proba), edges).sum() == 0


def test_an_empty_bin_says_its_middle():
    calibrator = fit([0.05, 0.95], [0, 1], n_bins=4, strategy="uniform")
    np.testing.assert_allclose(
        calibrator.transform([0.3, 0.6]), [0.375, 0.625], atol=1e-12
    )
    # one row beside the one it is given, at its own prediction
    np.testing.assert_allclose(calibrator.transform([0.0, 1.0]), [0.025, 0.975])


def test_like_predictions_share_a_bin():
    y_proba = np.repeat([0.1, 0.5, 0.9], 20)
    y = np.tile([0, 0, 0, 1], 15)
    calibrator = fit(y_proba, y, n_bins=15, strategy="quantile")
    assert len(calibrator.maps_[0].proba) == 3
    found = calibrator.transform([0.1, 0.5, 0.9])
    np.testing.assert_allclose(found, (5 + np.array([0.1, 0.5, 0.9])) / 21)


def test_constant_predictions_are_one_bin():
    calibrator = fit(np.full(30, 0.5), np.arange(30) % 3 == 0, strategy="quantile")
    np.testing.assert_allclose(calibrator.transform([0.2, 0.5]), 10.5 / 31)


def test_one_bin_is_the_share_of_the_class():
    y_proba, y = labelled()
    found = fit(y_proba, y, n_bins=1).transform(y_proba)
    np.testing.assert_allclose(found, (y.sum() + y_proba.mean()) / 901)


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_frequencies_come_near_the_truth(strategy):
    y_proba, y = labelled(100_000)
    found = fit(y_proba, y, strategy=strategy).transform(y_proba[:1000])
    assert np.abs(found - y_proba[:1000] ** 2).mean() < 0.03


@pytest.mark.parametrize("strategy", ["quantile", "uniform"])
def test_weights_count_as_repeats(strategy):
    y_proba, y = labelled(60)
    weights = np.arange(60) % 3
    rows = np.repeat(np.arange(60), weights)
    ours = HistogramBinningCalibrator(n_bins=5, strategy=strategy, input="proba")
    weighted = ours.fit(y_proba, y, sample_weight=weights).transform(y_proba)
    repeated = ours.fit(y_proba[rows], y[rows]).transform(y_proba)
    np.testing.assert_allclose(weighted, repeated)


def test_a_map_looks_up_its_bin():
    edges = logit(np.array([0.25, 0.75]))
    found = BinMap(edges, np.array([0.1, 0.5, 0.8]))(logit([0.2, 0.25, 0.3, 0.9]))
    assert found.tolist() == [0.1, 0.1, 0.5, 0.8]
    assert expit(edges).tolist() == [0.25, 0.75]


@pytest.mark.parametrize("params", [{"n_bins": 0}, {"strategy": "wide"}])
def test_parameters_are_checked(params):
    with pytest.raises(ValueError, match="parameter of HistogramBinningCalibrator"):
        fit([0.1, 0.9], [0, 1], **params)
