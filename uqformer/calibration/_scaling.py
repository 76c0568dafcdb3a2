"""Linear maps of logits, held near plain temperature scaling where rows are few."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax

from uqformer._typing import Float64Array
from uqformer.calibration._linear import LinearCalibrator

__all__ = [
    "DirichletCalibrator",
    "MatrixScalingCalibrator",
    "VectorScalingCalibrator",
]

DIAGONAL_STRENGTH = 1.0
"""Holds the diagonal of a Dirichlet map where a class has no rows to hold it."""


class VectorScalingCalibrator(LinearCalibrator):
    """Scale and shift the logit of each class by its own two numbers.

    Where some classes are said too often and others too seldom, one temperature
    cannot help and a full matrix has many more numbers than small sets can settle.

    Parameters
    ----------
    regularization : float, default=10.0
        Strength of the penalty on the squared distance from plain temperature
        scaling, not negative. It counts once, not once a row, so that more rows
        overrule it.
    input : {"auto", "logits", "proba"}, default="auto"
        What the columns of `X` are. "auto" takes rows in [0, 1] that sum to 1 for
        probabilities and others for logits, and raises where both are possible.
    classes : array-like of shape (n_classes,), default=None
        Label of each column. None takes whole numbers in `y` for column numbers, and
        other labels in sorted order if they are as many as the columns.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_classes)
        What centred logits are multiplied by; nothing off the diagonal.
    intercept_ : ndarray of shape (n_classes,)
        What is added to them, in nats.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    Warns
    -----
    CalibrationWarning
        If the descent does not settle.

    See Also
    --------
    TemperatureCalibrator : One number for all classes.
    MatrixScalingCalibrator : Classes that are taken for each other, too.

    Notes
    -----
    The temperature is found first and the map starts from it, so the scale of the
    logits does not matter, and few rows lead back to temperature scaling. Targets
    are smoothed as in `TemperatureCalibrator`.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of
       modern neural networks", ICML; the penalty is ours.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import VectorScalingCalibrator
    >>> rng = np.random.default_rng(0)
    >>> logits = rng.normal(size=(4000, 3))
    >>> y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> shifted = 2 * logits + [0.0, 0.0, 3.0]
    >>> calibrator = VectorScalingCalibrator(input="logits").fit(shifted, y)
    >>> calibrator.coef_.diagonal().round(1), calibrator.intercept_.round(1)
    (array([0.5, 0.5, 0.4]), array([ 0.4,  0.4, -0.9]))
    """

    def __init__(
        self,
        *,
        regularization: float = 10.0,
        input: str = "auto",
        classes: ArrayLike | None = None,
    ) -> None:
        super().__init__(regularization=regularization, input=input, classes=classes)

    def _strengths(self, n_classes: int) -> Float64Array:
        strengths = np.full((n_classes, n_classes + 1), np.inf)
        np.fill_diagonal(strengths, self.regularization)
        strengths[:, -1] = self.regularization
        return strengths


class MatrixScalingCalibrator(LinearCalibrator):
    """Map the logits of all classes by a matrix and a shift.

    The matrix also sees which classes are taken for each other. It has as many
    entries as there are pairs of classes, so a penalty holds it near plain
    temperature scaling until there are rows enough.

    Parameters
    ----------
    regularization : float, default=10.0
        Strength of the penalty on the squared distance from plain temperature
        scaling, not negative. Entries off the diagonal, of which there are so many,
        are held ``n_classes * (n_classes - 1)`` times as strongly. The penalty counts
        once, not once a row, so that more rows overrule it.
    input : {"auto", "logits", "proba"}, default="auto"
        What the columns of `X` are. "auto" takes rows in [0, 1] that sum to 1 for
        probabilities and others for logits, and raises where both are possible.
    classes : array-like of shape (n_classes,), default=None
        Label of each column. None takes whole numbers in `y` for column numbers, and
        other labels in sorted order if they are as many as the columns.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_classes)
        What centred logits are multiplied by.
    intercept_ : ndarray of shape (n_classes,)
        What is added to them, in nats.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    Warns
    -----
    CalibrationWarning
        If the descent does not settle.

    See Also
    --------
    VectorScalingCalibrator : The diagonal alone.
    DirichletCalibrator : The like for log-probabilities, its diagonal free.

    Notes
    -----
    The temperature is found first and the map starts from it, so the scale of the
    logits does not matter, and few rows lead back to temperature scaling. Targets
    are smoothed as in `TemperatureCalibrator`.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of
       modern neural networks", ICML; the penalty is ours.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import MatrixScalingCalibrator
    >>> rng = np.random.default_rng(0)
    >>> logits = 2 * rng.normal(size=(4000, 3))
    >>> y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    >>> mixed = logits @ [[1.0, 0.5, 0.0], [0.0, 1.0, 0.5], [0.5, 0.0, 1.0]]
    >>> calibrator = MatrixScalingCalibrator(regularization=1.0, input="logits")
    >>> after = calibrator.fit(mixed, y).transform(mixed)
    >>> [float(round(np.mean(p.argmax(axis=1) == y), 2)) for p in (mixed, after)]
    [0.67, 0.73]
    """

    def __init__(
        self,
        *,
        regularization: float = 10.0,
        input: str = "auto",
        classes: ArrayLike | None = None,
    ) -> None:
        super().__init__(regularization=regularization, input=input, classes=classes)

    def _strengths(self, n_classes: int) -> Float64Array:
        n_pairs = n_classes * (n_classes - 1)
        strengths = np.full((n_classes, n_classes + 1), self.regularization * n_pairs)
        np.fill_diagonal(strengths, self.regularization)
        strengths[:, -1] = self.regularization
        return strengths


class DirichletCalibrator(LinearCalibrator):
    """Map log-probabilities as if each class had Dirichlet distributed predictions.

    If the predictions of each class follow a Dirichlet distribution, then the
    calibrated map is linear in their logarithms. Entries off the diagonal and
    intercepts are penalised, the diagonal is all but free.

    Parameters
    ----------
    regularization : float, default=10.0
        Strength of the penalty on the squares of intercepts and, times
        ``n_classes * (n_classes - 1)``, of entries off the diagonal; not negative. It
        counts once, not once a row, so that more rows overrule it.
    input : {"auto", "logits", "proba"}, default="auto"
        What the columns of `X` are. "auto" takes rows in [0, 1] that sum to 1 for
        probabilities and others for logits, and raises where both are possible.
    classes : array-like of shape (n_classes,), default=None
        Label of each column. None takes whole numbers in `y` for column numbers, and
        other labels in sorted order if they are as many as the columns.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_classes)
        What log-probabilities are multiplied by.
    intercept_ : ndarray of shape (n_classes,)
        What is added to them, in nats.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    Warns
    -----
    CalibrationWarning
        If the descent does not settle.

    See Also
    --------
    BetaCalibrator : The same idea for two classes.
    MatrixScalingCalibrator : A linear map of logits.

    Notes
    -----
    The temperature is found first and the map starts from it. Targets are smoothed as
    in `TemperatureCalibrator`. A probability of 0 is read as 1e-12. What is penalised
    is that of the paper (ODIR); how strongly was chosen on the sets of
    benchmarks/results/probabilities.json.

    References
    ----------
    .. [1] M. Kull, M. Perello-Nieto, M. Kängsepp, T. Silva Filho, H. Song and P. Flach
       (2019), "Beyond temperature scaling: obtaining well-calibrated multiclass
       probabilities with Dirichlet calibration", NeurIPS.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import DirichletCalibrator
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, size=6000)
    >>> shapes = np.array([[4.0, 1.0, 1.0], [1.0, 3.0, 1.0], [1.0, 2.0, 3.0]])
    >>> y_proba = np.array([rng.dirichlet(shapes[k]) for k in y])
    >>> calibrator = DirichletCalibrator(regularization=0.0)
    >>> calibrator = calibrator.fit(y_proba, y)
    >>> relative = calibrator.coef_ - calibrator.coef_.min(axis=0)
    >>> relative.round()  # shapes less the smallest of each column
    array([[3., 0., 0.],
           [0., 2., 0.],
           [0., 1., 2.]])
    """

    def __init__(
        self,
        *,
        regularization: float = 10.0,
        input: str = "auto",
        classes: ArrayLike | None = None,
    ) -> None:
        super().__init__(regularization=regularization, input=input, classes=classes)

    def _strengths(self, n_classes: int) -> Float64Array:
        n_pairs = n_classes * (n_classes - 1)
        strengths = np.full((n_classes, n_classes + 1), self.regularization * n_pairs)
        np.fill_diagonal(strengths, DIAGONAL_STRENGTH)
        strengths[:, -1] = self.regularization
        return strengths

    def _features(self, logits: Float64Array) -> Float64Array:
        log_proba: Float64Array = log_softmax(logits, axis=1)
        return log_proba
