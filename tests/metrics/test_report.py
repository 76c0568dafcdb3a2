import numpy as np
import pytest
from sklearn.metrics import root_mean_squared_error

from uqformer.metrics import (
    coverage_score,
    crps_loss,
    pit_wasserstein_error,
    regression_report,
    winkler_loss,
)
from uqformer.predictive import RegressionEnsemble

KEYS = ["rmse", "crps", "coverage", "width", "winkler", "pit_w1"]


@pytest.fixture(params=[(60,), (60, 2)], ids=["one output", "two outputs"])
def drawn(request):
    """Targets and an ensemble of 21 members, with one output and with two."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=request.param)
    return y, RegressionEnsemble(rng.normal(size=(21, *request.param)))


def test_numbers_are_those_of_the_single_metrics(drawn):
    y, ensemble = drawn
    weights = np.random.default_rng(1).uniform(size=len(y))
    interval = ensemble.interval(0.8)
    report = regression_report(
        y, ensemble, confidence_level=0.8, sample_weight=weights, random_state=3
    )
    widths = (interval[:, 1] - interval[:, 0]).reshape(len(y), -1)
    single = {
        "rmse": root_mean_squared_error(y, ensemble.mean(), sample_weight=weights),
        "crps": crps_loss(y, ensemble, sample_weight=weights),
        "coverage": coverage_score(y, interval, sample_weight=weights),
        "width": np.average(widths.mean(axis=1), weights=weights),
        "winkler": winkler_loss(
            y, interval, confidence_level=0.8, sample_weight=weights
        ),
        "pit_w1": pit_wasserstein_error(
            y, ensemble, sample_weight=weights, random_state=3
        ),
    }
    assert list(report) == KEYS
    assert report == pytest.approx(single)
    assert all(type(value) is float for value in report.values())


def test_own_point_and_interval_take_the_place_of_the_members(drawn):
    y, ensemble = drawn
    interval = np.stack([y - 1, y + 2], axis=1)
    report = regression_report(y, ensemble, y_pred=y + 1, y_interval=interval)
    expected = {"rmse": 1, "coverage": 1, "width": 3, "winkler": 3}
    assert {key: report[key] for key in expected} == pytest.approx(expected)


def test_point_of_another_shape_is_refused(drawn):
    y, ensemble = drawn
    with pytest.raises(ValueError, match="y_pred must have the shape of y_true"):
        regression_report(y, ensemble, y_pred=np.zeros((len(y), 7)))


def test_percent_is_guessed(drawn):
    with pytest.raises(ValueError, match=r"pass 0\.9"):
        regression_report(*drawn, confidence_level=90)
