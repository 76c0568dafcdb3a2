"""Calibration error without bins: residuals smoothed along the confidence."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.fft import dct, idct
from scipy.optimize import brentq

from uqformer._typing import Float64Array
from uqformer._validation import check_row_weights
from uqformer.metrics._labels import Label, check_classes

__all__ = ["smooth_calibration_error"]

# cells of the grid over [0, 1]; the answer is a bandwidth, and few are below 1e-3
_N_CELLS = 2**13


def smooth_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    pos_label: Label = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    r"""Compute the smooth calibration error, which needs no bins.

    Differences between truth and confidence are smoothed along the confidence before
    their size is taken, so that a small change of the probabilities changes the error
    little. How much is smoothed follows from the data.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    pos_label : label, default=None
        None looks at the class predicted, with its probability as the confidence. A
        label looks at that class alone.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    error : float
        In [0, 1]. Lower is better. It bounds the distance to the nearest calibrated
        prediction from both sides, up to constants.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    expected_calibration_error : In bins.
    brier_loss : Proper score, by which to choose a model.

    Notes
    -----
    With :math:`K_\sigma` the normal density of deviation :math:`\sigma`, folded into
    [0, 1] by reflection at both ends, and confidences :math:`f_i` that come true
    (:math:`h_i = 1`) or not,

    .. math::

       E(\sigma) = \int_0^1 \Big| \frac1n \sum_i
       K_\sigma(t, f_i)\, (h_i - f_i) \Big| \, dt,

    and the error is the one :math:`\sigma` with :math:`E(\sigma) = \sigma` [1]_.
    Smoothing by a reflected normal is the flow of heat in an insulated rod, whose
    waves are cosines that fade by :math:`\exp(-(\pi k \sigma)^2 / 2)`; so the sum
    costs one cosine transform for each trial :math:`\sigma`, whatever `n_samples`.

    References
    ----------
    .. [1] J. Blasiok and P. Nakkiran (2024), "Smooth ECE: principled reliability
       diagrams via kernel smoothing", ICLR, definitions 6 and 8.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.metrics import smooth_calibration_error
    >>> rng = np.random.default_rng(0)
    >>> p = rng.uniform(size=5000)
    >>> y = rng.uniform(size=5000) < p
    >>> smooth_calibration_error(y, p) < 0.03
    True
    >>> smooth_calibration_error(y, p**3, pos_label=True) > 0.1
    True
    """
    scores, hits = check_classes(y_true, y_proba, labels).confidence(pos_label)
    weights = check_row_weights(sample_weight, scores)
    residuals = weights / weights.sum() * (hits - scores)
    waves = dct(_lay_on_grid(scores, residuals))
    frequencies = np.pi * np.arange(_N_CELLS)

    def excess(width: float) -> float:
        smoothed = idct(waves * np.exp(-0.5 * (frequencies * width) ** 2))
        return float(np.abs(smoothed).sum()) - width

    # the error falls with the width and is at most 1, up to rounding
    return float(brentq(excess, 0.0, 2.0))


def _lay_on_grid(positions: Float64Array, values: Float64Array) -> Float64Array:
    """Sum values into cells, each shared by the two cells whose centres are nearest."""
    places = positions * _N_CELLS - 0.5
    left = np.floor(places).astype(np.intp)
    to_right = places - left
    cells = np.concatenate([left, left + 1])
    shares = np.concatenate([(1 - to_right) * values, to_right * values])
    # beyond an end lies the reflection of the cell before it
    cells = np.clip(cells, 0, _N_CELLS - 1)
    grid = np.bincount(cells, shares, minlength=_N_CELLS)
    return grid.astype(np.float64)
