"""Calibration errors of predicted probabilities, in bins of confidence."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from uqformer.metrics._calibration_bins import (
    BinStrategy,
    CalibrationBins,
    calibration_bins,
)
from uqformer.metrics._inputs import check_option
from uqformer.metrics._labels import Label, check_classes

__all__ = [
    "classwise_calibration_error",
    "expected_calibration_error",
    "maximum_calibration_error",
]

Norm = Literal["l1", "l2", "max"]


def expected_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: BinStrategy = "uniform",
    norm: Norm = "l1",
    debiased: bool = False,
    pos_label: Label = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the distance between confidence and accuracy, averaged over bins.

    The confidence is the probability of the class predicted. With
    ``strategy="quantile"`` this is the adaptive calibration error.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    n_bins : int, default=15
        Number of bins over [0, 1]. Each bin holds its lower edge, and the last one
        its upper edge too.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal numbers of rows. Equal probabilities stay
        together, so there may be fewer bins of the latter kind.
    norm : {"l1", "l2", "max"}, default="l1"
        Mean distance over the rows, root of the mean squared distance, or the largest
        distance of any bin.
    debiased : bool, default=False
        Whether to subtract, with ``norm="l2"``, what chance adds to the squared
        distance of each bin [2]_. Bins of a single row then count as 0, and so does a
        negative rest.
    pos_label : label, default=None
        None looks at the class predicted. A label looks at that class alone, as is
        usual for two classes: how often it comes true at each probability.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    error : float
        In [0, 1]. Lower is better.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, a label has no
        column, or `debiased` meets another norm than ``"l2"``.

    See Also
    --------
    smooth_calibration_error : Without bins.
    classwise_calibration_error : All classes, not only the one predicted.
    brier_loss : Proper score, by which to choose a model.
    calibration_bins : The bins themselves.

    Notes
    -----
    It is not a proper score: the class frequencies are calibrated and useless. The
    number depends on the bins, so say which; and a calibrated model has one above 0
    by chance, the more so the fewer rows a bin holds.

    References
    ----------
    .. [1] C. Guo, G. Pleiss, Y. Sun and K. Q. Weinberger (2017), "On calibration of
       modern neural networks", ICML.
    .. [2] A. Kumar, P. Liang and T. Ma (2019), "Verified uncertainty calibration",
       NeurIPS, definition 5.1.
    .. [3] J. Nixon et al. (2019), "Measuring calibration in deep learning", CVPR
       workshops: bins of equal numbers of rows.

    Examples
    --------
    >>> from uqformer.metrics import expected_calibration_error
    >>> y_proba = [[0.75, 0.25], [0.75, 0.25], [0.75, 0.25], [0.25, 0.75]]
    >>> y_true = ["no", "no", "yes", "no"]
    >>> round(expected_calibration_error(y_true, y_proba), 3)
    0.25
    >>> expected_calibration_error([0, 0, 0, 1], [0.25, 0.25, 0.25, 0.75])
    0.25
    """
    check_option(norm, "norm", ("l1", "l2", "max"))
    if debiased and norm != "l2":
        raise ValueError(
            "debiased=True needs norm='l2', for which the bias is known; got "
            f"norm={norm!r}."
        )
    bins = calibration_bins(
        y_true,
        y_proba,
        n_bins=n_bins,
        strategy=strategy,
        pos_label=pos_label,
        labels=labels,
        sample_weight=sample_weight,
    )
    if debiased:
        return float(np.sqrt(max(0.0, _debiased_square(bins))))
    return _distance(bins, norm)


def maximum_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: BinStrategy = "uniform",
    pos_label: Label = None,
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the largest distance between confidence and accuracy of any bin.

    It is `expected_calibration_error` with ``norm="max"``, under the name by which it
    is known. A bin of few rows decides it easily; ``strategy="quantile"`` has none.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    n_bins : int, default=15
        Number of bins over [0, 1].
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal numbers of rows.
    pos_label : label, default=None
        None looks at the class predicted, a label at that class alone.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    error : float
        In [0, 1]. Lower is better.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    expected_calibration_error : The average instead of the largest.

    References
    ----------
    .. [1] M. P. Naeini, G. F. Cooper and M. Hauskrecht (2015), "Obtaining well
       calibrated probabilities using Bayesian binning", AAAI.

    Examples
    --------
    >>> from uqformer.metrics import maximum_calibration_error
    >>> maximum_calibration_error([0, 0, 1, 0], [0.0, 0.25, 0.75, 1.0])
    0.5
    """
    return expected_calibration_error(
        y_true,
        y_proba,
        n_bins=n_bins,
        strategy=strategy,
        norm="max",
        pos_label=pos_label,
        labels=labels,
        sample_weight=sample_weight,
    )


def classwise_calibration_error(
    y_true: ArrayLike,
    y_proba: ArrayLike,
    *,
    n_bins: int = 15,
    strategy: BinStrategy = "uniform",
    norm: Norm = "l1",
    labels: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> float:
    """Compute the calibration error of each class's probability, averaged over classes.

    It looks at all probabilities, also at those of classes that were not predicted,
    and so sees faults that the top label hides.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: ints, strings, whatever the classifier was fitted on.
    y_proba : array-like of shape (n_samples, n_classes) or (n_samples,)
        Predicted probabilities; a flat array holds those of the positive one, the
        second, of two classes.
    n_bins : int, default=15
        Number of bins over [0, 1], for each class.
    strategy : {"uniform", "quantile"}, default="uniform"
        Bins of equal width, or of equal numbers of rows.
    norm : {"l1", "l2", "max"}, default="l1"
        Mean distance over the rows, root of the mean squared distance, or the largest
        distance of any bin.
    labels : array-like of shape (n_classes,), default=None
        Label of each column, such as ``estimator.classes_``. None takes the sorted
        labels in `y_true` if there is one for each column, or else 0, 1, 2, ...
    sample_weight : array-like of shape (n_samples,), default=None
        Weights of the samples. None weighs all alike.

    Returns
    -------
    error : float
        In [0, 1], mean over all columns, classes without a row included. Lower is
        better. It shrinks as classes become more, since most probabilities are then
        near 0: compare models, not data sets.

    Raises
    ------
    ValueError
        If shapes do not fit, rows are no probabilities, NaN is found, or a label has
        no column.

    See Also
    --------
    expected_calibration_error : Top label, or one class by `pos_label`.

    References
    ----------
    .. [1] M. Kull et al. (2019), "Beyond temperature scaling: obtaining
       well-calibrated multi-class probabilities with Dirichlet calibration", NeurIPS.

    Examples
    --------
    >>> from uqformer.metrics import classwise_calibration_error
    >>> y_proba = [[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]]
    >>> error = classwise_calibration_error(["a", "b"], y_proba, labels=["a", "b", "c"])
    >>> round(error, 3)
    0.167
    """
    predictions = check_classes(y_true, y_proba, labels)
    errors = [
        expected_calibration_error(
            y_true,
            y_proba,
            n_bins=n_bins,
            strategy=strategy,
            norm=norm,
            pos_label=label,
            labels=predictions.labels,
            sample_weight=sample_weight,
        )
        for label in predictions.labels
    ]
    return float(np.mean(errors))


def _distance(bins: CalibrationBins, norm: Norm) -> float:
    """Measure how far accuracy is from confidence, over bins that are not empty."""
    filled = bins.share > 0
    gaps = np.abs(bins.accuracy - bins.confidence)[filled]
    if norm == "max":
        return float(gaps.max())
    if norm == "l2":
        return float(np.sqrt(np.sum(bins.share[filled] * gaps**2)))
    return float(np.sum(bins.share[filled] * gaps))


def _debiased_square(bins: CalibrationBins) -> float:
    """Estimate the mean squared distance without bias; it may come out negative."""
    known = bins.count > 1 + 1e-9  # one row tells nothing of its own variance
    accuracy, count = bins.accuracy[known], bins.count[known]
    noise = accuracy * (1 - accuracy) / (count - 1)
    squares = (accuracy - bins.confidence[known]) ** 2 - noise
    return float(np.sum(bins.share[known] * squares))
