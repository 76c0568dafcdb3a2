"""The risk-coverage figure's numbers: curve, oracle, random order, area."""

import itertools
import re
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer.metrics import area_under_risk_coverage_error, risk_coverage_curve
from uqformer.plotting import RiskCoverageDisplay

LOSSES = np.array([0.0, 4.0, 1.0, 3.0])
UNCERTAINTY = np.array([0.3, 0.9, 0.1, 0.5])
RISKS = [1.0, 0.5, 4 / 3, 2.0]
ORACLE = [0.0, 0.5, 4 / 3, 2.0]


class WithSpread(RegressorMixin, BaseEstimator):
    """First column as the point, second one as its spread."""

    def fit(self, X: Any, y: Any) -> "WithSpread":
        self.n_features_in_ = np.asarray(X).shape[1]
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        X = np.asarray(X)
        return (X[:, 0], X[:, 1]) if return_std else X[:, 0]


@pytest.fixture
def display(pyplot: ModuleType) -> RiskCoverageDisplay:
    return RiskCoverageDisplay(LOSSES, UNCERTAINTY, name="mine").plot()


def _legend(display: RiskCoverageDisplay) -> list[str]:
    return [text.get_text() for text in display.ax_.get_legend().get_texts()]


def test_curves_are_mean_losses_of_the_most_certain(
    display: RiskCoverageDisplay,
) -> None:
    coverages = [0.25, 0.5, 0.75, 1.0]
    for line, risks in (
        (display.line_, RISKS),
        (display.oracle_, ORACLE),
        (display.random_, [2.0] * 4),
    ):
        np.testing.assert_allclose(line.get_xydata(), np.c_[coverages, risks])
    assert _legend(display) == [
        "random order (AURC 2)",
        "oracle (AURC 0.958)",
        "mine (AURC 1.21)",
    ]


def test_ties_count_as_the_mean_over_all_their_orders() -> None:
    uncertainty = np.array([0.1, 0.1, 0.1, 0.0])
    orders = [
        np.cumsum(LOSSES[[3, *order]]) / np.arange(1, 5)
        for order in itertools.permutations(range(3))
    ]
    risks = RiskCoverageDisplay(LOSSES, uncertainty).risks
    np.testing.assert_allclose(risks, np.mean(orders, axis=0))


def test_order_of_the_rows_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    losses, uncertainty = rng.uniform(size=50), rng.integers(5, size=50)
    turned = RiskCoverageDisplay(losses[::-1], uncertainty[::-1])
    display = RiskCoverageDisplay(losses, uncertainty)
    np.testing.assert_allclose(turned.risks, display.risks)


def test_no_order_is_better_than_the_oracle() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = RiskCoverageDisplay(rng.exponential(size=30), rng.uniform(size=30))
        assert (drawn.oracle_risks <= drawn.risks + 1e-12).all()
        assert drawn.risks[-1] == pytest.approx(drawn.oracle_risks[-1])


def test_random_order_is_the_mean_of_random_uncertainties() -> None:
    rng = np.random.default_rng(0)
    n_repeats = 2000
    curves = np.array(
        [
            RiskCoverageDisplay(LOSSES, rng.uniform(size=4)).risks
            for _ in range(n_repeats)
        ]
    )
    error = curves.std(axis=0) / np.sqrt(n_repeats)
    assert (np.abs(curves.mean(axis=0) - LOSSES.mean()) <= 4 * error + 1e-12).all()


def test_methods_of_equal_losses_share_oracle_and_random_order(
    display: RiskCoverageDisplay,
) -> None:
    other = RiskCoverageDisplay(LOSSES, -UNCERTAINTY, name="old")
    assert other.plot(display.ax_, name="new", color="black") is other
    assert (other.oracle_, other.random_) == (display.oracle_, display.random_)
    assert len(display.ax_.lines) == 4
    assert other.line_.get_linestyle() != display.line_.get_linestyle()
    assert _legend(other)[-1] == f"new (AURC {other.aurc:.3g})"
    worse = RiskCoverageDisplay(5 * LOSSES, UNCERTAINTY).plot(display.ax_)
    assert worse.oracle_ is not display.oracle_
    assert worse.ax_.get_ylim()[0] == 0
    assert worse.ax_.get_ylim()[1] > 10  # nothing is cut off


@pytest.mark.usefixtures("pyplot")
def test_a_wrong_first_row_does_not_squeeze_the_figure() -> None:
    losses = np.r_[1.0, np.zeros(199)]
    drawn = RiskCoverageDisplay(losses, np.arange(200)).plot()
    assert drawn.line_.get_ydata()[0] == 1
    # 1 / 10 is left at a twentieth of the rows, and sets the scale
    np.testing.assert_allclose(drawn.ax_.get_ylim(), (0, 0.105))


@pytest.mark.usefixtures("pyplot")
def test_classification_agrees_with_the_metrics() -> None:
    rng = np.random.default_rng(0)
    y_true, y_proba = rng.integers(3, size=200), rng.dirichlet(np.ones(3), size=200)
    y_proba = y_proba.round(1)  # many ties
    y_proba[:, 0] = 1 - y_proba[:, 1:].sum(axis=1)
    y_proba = np.abs(y_proba) / np.abs(y_proba).sum(axis=1, keepdims=True)
    drawn = RiskCoverageDisplay.from_predictions(
        y_true, y_proba.argmax(axis=1), -y_proba.max(axis=1)
    )
    coverages, risks, _ = risk_coverage_curve(y_true, y_proba)
    np.testing.assert_allclose(drawn.line_.get_xydata(), np.c_[coverages, risks])
    area = area_under_risk_coverage_error(y_true, y_proba)
    assert drawn.aurc == pytest.approx(area)
    assert drawn.ax_.get_ylabel() == "error rate of the rows answered"


@pytest.mark.usefixtures("pyplot")
def test_classifier_is_asked_for_labels_and_certainty() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = np.where(X[:, 0] + rng.normal(size=80) > 0, "yes", "no")
    classifier = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, y)
    drawn = RiskCoverageDisplay.from_estimator(classifier, X, y)
    _, risks, _ = risk_coverage_curve(y, classifier.predict_proba(X))
    np.testing.assert_allclose(drawn.risks, risks)
    assert _legend(drawn)[-1].startswith("Pipeline (AURC ")


@pytest.mark.usefixtures("pyplot")
def test_regressor_is_asked_for_point_and_spread() -> None:
    X = np.c_[np.zeros(4), UNCERTAINTY]
    y = np.sqrt(LOSSES)
    drawn = RiskCoverageDisplay.from_estimator(WithSpread().fit(X, y), X, y)
    np.testing.assert_allclose(drawn.risks, RISKS)
    assert drawn.ax_.get_ylabel() == "mean squared error of the rows answered"


@pytest.mark.usefixtures("pyplot")
def test_losses_are_those_that_were_named() -> None:
    y_true, y_pred = [1.0, 2.0, 3.0], [1.0, 0.0, 6.0]
    for loss, losses in (
        ("zero_one", [0, 1, 1]),
        ("absolute", [0, 2, 3]),
        ("squared", [0, 4, 9]),
    ):
        drawn = RiskCoverageDisplay.from_predictions(
            y_true, y_pred, [1, 2, 3], loss=loss
        )
        np.testing.assert_array_equal(drawn.losses, losses)


@pytest.mark.usefixtures("pyplot")
def test_one_row_and_no_mistake() -> None:
    drawn = RiskCoverageDisplay.from_predictions(["a"], ["a"], [0.0])
    np.testing.assert_array_equal(drawn.risks, [0.0])
    assert drawn.ax_.get_ylim()[1] > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"loss": "hinge"},
            "loss must be one of 'zero_one', 'squared', 'absolute'; got loss='hinge'.",
        ),
        ({"uncertainty": [0.1, np.nan]}, "Input uncertainty contains NaN"),
        ({"uncertainty": [0.1]}, "inconsistent numbers of samples"),
        ({"y_pred": ["a"]}, "inconsistent numbers of samples"),
        ({"y_true": [1.0, np.nan]}, "y_true must hold no NaN; got NaN in row 1."),
        ({"y_pred": [np.nan, 1.0], "loss": "squared"}, "y_pred contains NaN"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], words: str) -> None:
    arguments = {"y_true": [1.0, 2.0], "y_pred": [1.0, 1.0], "uncertainty": [0.1, 0.2]}
    with pytest.raises(ValueError, match=re.escape(words)):
        RiskCoverageDisplay.from_predictions(**arguments | change)
