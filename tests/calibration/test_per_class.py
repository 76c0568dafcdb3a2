"""One map a class: which maps are fitted, and how their shares become rows."""

import numpy as np
from scipy.special import expit, softmax

from uqformer.calibration._per_class import PerClassCalibrator


class Share:
    """Always the same share."""

    def __init__(self, share):
        self.share = share

    def __call__(self, odds):
        return np.full(len(odds), self.share)


class Recorder(PerClassCalibrator):
    """Remembers what it was asked to fit; shares are 0.1, 0.2 and so on."""

    def _fit_map(self, odds, hits, weights):
        self.asked_ = [*getattr(self, "asked_", []), (odds, hits, weights)]
        return Share(len(self.asked_) / 10)


class Vanishing(PerClassCalibrator):
    def _fit_map(self, odds, hits, weights):
        return Share(0.0)


LOGITS = np.random.default_rng(0).normal(size=(6, 3))


def test_each_class_is_fitted_against_all_others():
    calibrator = Recorder().fit(LOGITS, [0, 1, 2, 2, 1, 0], sample_weight=range(1, 7))
    proba = softmax(LOGITS, axis=1)
    assert len(calibrator.maps_) == 3
    for k, (odds, hits, weights) in enumerate(calibrator.asked_):
        np.testing.assert_allclose(expit(odds), proba[:, k])
        np.testing.assert_array_equal(hits, np.array([0, 1, 2, 2, 1, 0]) == k)
        np.testing.assert_array_equal(weights, np.arange(1, 7))


def test_shares_are_normalised():
    calibrator = Recorder().fit(LOGITS, [0, 1, 2, 2, 1, 0])
    expected = np.tile([1 / 6, 2 / 6, 3 / 6], (6, 1))
    np.testing.assert_allclose(calibrator.transform(LOGITS), expected)


def test_two_classes_need_one_map_and_no_normalising():
    calibrator = Recorder().fit(LOGITS[:, :2], [0, 1, 1, 0, 1, 0])
    assert len(calibrator.asked_) == 1
    assert calibrator.asked_[0][1].tolist() == [0, 1, 1, 0, 1, 0]
    np.testing.assert_allclose(calibrator.transform(LOGITS[:, :2])[0], [0.9, 0.1])


def test_rows_without_any_share_are_numbers_all_the_same():
    calibrator = Vanishing().fit(LOGITS, [0, 1, 2, 2, 1, 0])
    np.testing.assert_allclose(calibrator.transform(LOGITS), 1 / 3)
