"""Splits in time that leak no target from training to test."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseCrossValidator, TimeSeriesSplit

from uqformer._typing import IntArray
from uqformer.series._inputs import check_whole

__all__ = ["EmbargoedTimeSeriesSplit"]


class EmbargoedTimeSeriesSplit(BaseCrossValidator):
    """Cross-validation of windows in time, with an embargo before each test part.

    As in scikit-learn's `TimeSeriesSplit`, each test part lies after its training part,
    which grows from split to split. Rows next to the test part are left out of
    training: a test window shares no step of the series with any training window,
    neither of its target nor of its context.

    Parameters
    ----------
    n_splits : int, default=5
        Number of splits, at least 2.

    context_length : int
        Steps that a window sees. With 0 only targets are kept apart: test windows may
        then see, as they would in use, steps that were targets in training.

    horizon : int
        Steps that a window forecasts.

    step : int, default=1
        Steps from one window to the next, as given to `make_windows`.

    test_size : int, default=None
        Windows in each test part. None takes the number of windows over
        ``n_splits + 1``.

    max_train_size : int, default=None
        Most windows in a training part, the latest ones. None sets no limit.

    See Also
    --------
    make_windows : Rows in the order that this expects.
    sklearn.model_selection.TimeSeriesSplit : For rows that share no steps.

    Notes
    -----
    Windows ``step`` apart share no step if they are at least
    ``ceil((context_length + horizon) / step)`` rows from each other; one less is left
    out between training and test part.

    References
    ----------
    .. [1] M. Lopez de Prado (2018), "Advances in Financial Machine Learning", Wiley,
       chapter 7.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.series import EmbargoedTimeSeriesSplit, make_windows
    >>> X, y, first = make_windows(np.arange(20), context_length=3, horizon=2)
    >>> cv = EmbargoedTimeSeriesSplit(2, context_length=3, horizon=2)
    >>> for train, test in cv.split(X):
    ...     print(train, test)
    [0 1] [ 6  7  8  9 10]
    [0 1 2 3 4 5 6] [11 12 13 14 15]
    """

    def __init__(
        self,
        n_splits: int = 5,
        *,
        context_length: int,
        horizon: int,
        step: int = 1,
        test_size: int | None = None,
        max_train_size: int | None = None,
    ) -> None:
        self.n_splits = n_splits
        self.context_length = context_length
        self.horizon = horizon
        self.step = step
        self.test_size = test_size
        self.max_train_size = max_train_size

    def split(
        self, X: Any, y: ArrayLike | None = None, groups: Any = None
    ) -> Iterator[tuple[IntArray, IntArray]]:
        """Generate row numbers to train and to test.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...)
            Windows in the order of time.
        y : array-like of shape (n_samples, ...), default=None
            Not looked at.
        groups : object, default=None
            Not looked at.

        Yields
        ------
        train : ndarray of shape (n_train,)
            Rows to train on.
        test : ndarray of shape (n_test,)
            Rows to test on, all later.

        Raises
        ------
        ValueError
            If a parameter makes no sense, or there are too few rows.
        """
        check_whole("n_splits", self.n_splits, at_least=2)
        check_whole("context_length", self.context_length, at_least=0)
        check_whole("horizon", self.horizon, at_least=1)
        check_whole("step", self.step, at_least=1)
        n_rows = len(X)
        test_size = self.test_size
        if test_size is None:
            test_size = max(n_rows // (self.n_splits + 1), 1)
        check_whole("test_size", test_size, at_least=1)
        if self.max_train_size is not None:
            check_whole("max_train_size", self.max_train_size, at_least=1)
        embargo = -(-(self.context_length + self.horizon) // self.step) - 1
        needed = self.n_splits * test_size + embargo + 1
        if n_rows < needed:
            raise ValueError(
                f"X must have at least {needed} rows for n_splits={self.n_splits} test "
                f"parts of {test_size} and an embargo of {embargo}; got {n_rows}. Take "
                "fewer splits, a smaller test_size or shorter windows."
            )
        parts = TimeSeriesSplit(
            self.n_splits,
            gap=embargo,
            test_size=test_size,
            max_train_size=self.max_train_size,
        )
        yield from parts.split(np.empty(n_rows))

    def get_n_splits(
        self, X: ArrayLike | None = None, y: ArrayLike | None = None, groups: Any = None
    ) -> int:
        """Return the number of splits.

        Parameters
        ----------
        X : array-like of shape (n_samples, ...), default=None
            Not looked at.
        y : array-like of shape (n_samples, ...), default=None
            Not looked at.
        groups : object, default=None
            Not looked at.

        Returns
        -------
        n_splits : int
            Number of splits.
        """
        return self.n_splits
