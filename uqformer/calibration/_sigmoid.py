"""Parametric maps of one class's probability: Platt's sigmoid and the beta map."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from uqformer._typing import Float64Array
from uqformer.calibration._per_class import PerClassCalibrator

__all__ = ["BetaCalibrator", "BetaMap", "PlattCalibrator", "SigmoidMap"]


@dataclass(frozen=True, slots=True)
class SigmoidMap:
    """Probability ``expit(slope * odds + intercept)`` of log-odds."""

    slope: float
    intercept: float

    def __call__(self, odds: Float64Array) -> Float64Array:
        proba: Float64Array = expit(self.slope * odds + self.intercept)
        return proba


@dataclass(frozen=True, slots=True)
class BetaMap:
    """Probability ``expit(a * log(p) - b * log(1 - p) + c)`` of log-odds of p."""

    a: float
    b: float
    c: float

    def __call__(self, odds: Float64Array) -> Float64Array:
        terms = self.a * log_expit(odds) - self.b * log_expit(-odds) + self.c
        proba: Float64Array = expit(terms)
        return proba


class PlattCalibrator(PerClassCalibrator):
    """Map log-odds by a sigmoid with a slope and an intercept.

    Two numbers that few rows can settle: how sure the predictions may be, and how
    often the class comes. More than two classes are mapped one against the rest and
    normalised.

    Parameters
    ----------
    input : {"auto", "logits", "proba"}, default="auto"
        What the columns of `X` are. "auto" takes rows in [0, 1] that sum to 1 for
        probabilities and others for logits, and raises where both are possible.
    classes : array-like of shape (n_classes,), default=None
        Label of each column. None takes whole numbers in `y` for column numbers, and
        other labels in sorted order if they are as many as the columns.

    Attributes
    ----------
    maps_ : list of callable
        One map a class, with `slope` and `intercept`; for two classes only that of
        the second.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    See Also
    --------
    BetaCalibrator : One number more, for faults that differ at the two ends.
    TemperatureCalibrator : The slope alone, shared by all classes.

    Notes
    -----
    Targets are smoothed as Platt does: the mean of a Beta posterior instead of 0
    and 1, so that separable rows do not ask for an infinite slope.

    References
    ----------
    .. [1] J. C. Platt (1999), "Probabilistic outputs for support vector machines and
       comparisons to regularized likelihood methods", Advances in Large Margin
       Classifiers.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import PlattCalibrator
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=9000)
    >>> y = np.where(rng.logistic(size=9000) < odds, "yes", "no")
    >>> calibrator = PlattCalibrator(input="logits").fit(4 * odds - 1, y)
    >>> found = calibrator.maps_[0]
    >>> round(found.slope, 1), round(found.intercept, 1)
    (0.3, 0.2)
    """

    def __init__(
        self, *, input: str = "auto", classes: ArrayLike | None = None
    ) -> None:
        super().__init__(input=input, classes=classes)

    def _fit_map(
        self, odds: Float64Array, hits: Float64Array, weights: Float64Array
    ) -> SigmoidMap:
        targets = _platt_targets(hits, weights)
        (slope,), intercept = _fit_logistic(odds[:, None], targets, weights, None)
        return SigmoidMap(float(slope), intercept)


class BetaCalibrator(PerClassCalibrator):
    """Map probabilities as if each class had beta distributed predictions.

    Unlike a sigmoid of log-odds it can bend the two ends apart, and it contains the
    identity, so predictions that are calibrated can stay as they are. More than two
    classes are mapped one against the rest and normalised.

    Parameters
    ----------
    input : {"auto", "logits", "proba"}, default="auto"
        What the columns of `X` are. "auto" takes rows in [0, 1] that sum to 1 for
        probabilities and others for logits, and raises where both are possible.
    classes : array-like of shape (n_classes,), default=None
        Label of each column. None takes whole numbers in `y` for column numbers, and
        other labels in sorted order if they are as many as the columns.

    Attributes
    ----------
    maps_ : list of callable
        One map a class, with `a`, `b` and `c` of Kull et al., `a` and `b` not
        negative; for two classes only that of the second.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    See Also
    --------
    PlattCalibrator : Both ends alike.
    DirichletCalibrator : The same idea for many classes at once.

    Notes
    -----
    Targets are smoothed as in `PlattCalibrator`.

    References
    ----------
    .. [1] M. Kull, T. Silva Filho and P. Flach (2017), "Beta calibration: a
       well-founded and easily implemented improvement on logistic calibration for
       binary classifiers", AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import BetaCalibrator
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, size=9000)
    >>> y_proba = np.where(y == 1, rng.beta(3, 1, 9000), rng.beta(1, 2, 9000))
    >>> calibrator = BetaCalibrator(input="proba").fit(y_proba, y)
    >>> found = calibrator.maps_[0]
    >>> round(found.a), round(found.b)
    (2, 1)
    """

    def __init__(
        self, *, input: str = "auto", classes: ArrayLike | None = None
    ) -> None:
        super().__init__(input=input, classes=classes)

    def _fit_map(
        self, odds: Float64Array, hits: Float64Array, weights: Float64Array
    ) -> BetaMap:
        targets = _platt_targets(hits, weights)
        features = np.column_stack([log_expit(odds), -log_expit(-odds)])
        # a falling map is no calibration, so both slopes stay above 0
        (a, b), c = _fit_logistic(features, targets, weights, (0.0, None))
        return BetaMap(float(a), float(b), c)


def _platt_targets(hits: Float64Array, weights: Float64Array) -> Float64Array:
    """Return posterior means of the two targets, as if one row more had each."""
    positive = float(weights @ hits)
    negative = float(weights.sum()) - positive
    return np.where(hits == 1, (positive + 1) / (positive + 2), 1 / (negative + 2))


def _fit_logistic(
    features: Float64Array,
    targets: Float64Array,
    weights: Float64Array,
    bounds: tuple[float, None] | None,
) -> tuple[Float64Array, float]:
    """Logistic regression on targets in (0, 1); returns slopes and intercept.

    Columns are standardised on the way, so that their units do not slow the descent.
    """
    shares = weights / weights.sum()
    middle = shares @ features
    scale = np.sqrt(shares @ (features - middle) ** 2)
    scale[scale == 0] = 1.0
    design = np.column_stack([(features - middle) / scale, np.ones(len(features))])

    def loss_and_slope(params: Float64Array) -> tuple[float, Float64Array]:
        odds = design @ params
        losses = -log_expit(odds) + (1 - targets) * odds
        return float(shares @ losses), (shares * (expit(odds) - targets)) @ design

    limits = None if bounds is None else [bounds] * features.shape[1] + [(None, None)]
    found = minimize(
        loss_and_slope,
        np.zeros(design.shape[1]),
        jac=True,
        method="L-BFGS-B",
        bounds=limits,
        options={"gtol": 1e-9, "ftol": 0.0},
    )
    slopes: Float64Array = found.x[:-1] / scale
    return slopes, float(found.x[-1] - slopes @ middle)
