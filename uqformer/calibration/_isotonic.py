"""One rising step function per class, with room left for surprises."""

from numpy.typing import ArrayLike
from sklearn.isotonic import IsotonicRegression

from uqformer._typing import Float64Array
from uqformer.calibration._per_class import PerClassCalibrator

__all__ = ["IsotonicCalibrator"]


class IsotonicCalibrator(PerClassCalibrator):
    """Map each class by the rising function that fits best.

    No shape is assumed, so any fault that keeps the order can be cured, given some
    thousand rows; with few, the steps follow the noise.

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
        One map of log-odds a class, with the regression in `regression`; for two
        classes only that of the second.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    See Also
    --------
    HistogramBinningCalibrator : Steps whose places are fixed beforehand.
    BetaCalibrator : A smooth map with three numbers.

    Notes
    -----
    The end steps of plain isotonic regression are often exactly 0 or 1, which a
    single later surprise turns into an infinite log loss, and for many classes into
    rows without any share. Here steps stay between ``1 / (n + 2)`` and
    ``(n + 1) / (n + 2)`` for n rows, Laplace's estimates where nothing or everything
    was a hit.

    References
    ----------
    .. [1] B. Zadrozny and C. Elkan (2002), "Transforming classifier scores into
       accurate multiclass probability estimates", KDD; the limits are ours.

    Examples
    --------
    >>> from uqformer.calibration import IsotonicCalibrator
    >>> y_proba, y = [0.1, 0.2, 0.3, 0.8, 0.9], [0, 1, 0, 1, 1]
    >>> calibrator = IsotonicCalibrator(input="proba").fit(y_proba, y)
    >>> calibrator.transform([0.05, 0.2, 0.3, 0.95]).round(3)
    array([0.143, 0.5  , 0.5  , 0.857])
    """

    def __init__(
        self, *, input: str = "auto", classes: ArrayLike | None = None
    ) -> None:
        super().__init__(input=input, classes=classes)

    def _fit_map(
        self, odds: Float64Array, hits: Float64Array, weights: Float64Array
    ) -> "IsotonicMap":
        least = 1 / (float(weights.sum()) + 2)
        regression = IsotonicRegression(
            y_min=least, y_max=1 - least, out_of_bounds="clip"
        )
        return IsotonicMap(regression.fit(odds, hits, weights))


class IsotonicMap:
    """Probability of log-odds by a fitted isotonic regression."""

    def __init__(self, regression: IsotonicRegression) -> None:
        self.regression = regression

    def __call__(self, odds: Float64Array) -> Float64Array:
        proba: Float64Array = self.regression.predict(odds)
        return proba
