"""Prediction sets: so many classes that the true one is among them often enough."""

from hashlib import blake2b
from numbers import Integral, Real
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.utils import check_random_state

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import (
    Interval,
    StrOptions,
    check_confidence_level,
    check_consistent_length,
    column_or_1d,
    fit_context,
)
from uqformer.calibration._base import PredictionReader
from uqformer.calibration._quantile import conformal_quantile
from uqformer.exceptions import InsufficientCalibrationError

__all__ = ["ConformalSets"]


class ConformalSets(PredictionReader):
    """Conformal prediction sets from the predictions of any classifier.

    A set holds the true class with the wanted chance, whatever the model and however
    few the calibration rows, as long as those and the new rows come from one source.

    Parameters
    ----------
    method : {"lac", "aps", "raps"}, default="lac"
        "lac" takes every class above one probability, which makes sets small. "aps"
        takes classes from the top until enough probability is gathered, which makes
        sets grow with the doubt of the row. "raps" does the same and charges for
        classes far down, which shortens the longest sets.
    allow_empty : bool, default=False
        Whether a set may be empty, as it is where even the first class is stranger
        than the calibration rows. If not, it then holds the first class, and coverage
        may exceed the level.
    per_class : bool, default=False
        Whether each class has a threshold of its own, so that coverage holds among
        the rows of each class and not on average alone.
    rank_penalty : float, default=0.01
        For "raps": what each rank after the free ones adds to the score.
    n_free_ranks : int, default=5
        For "raps": ranks from the top that are not charged for.
    input : {"auto", "logits", "proba"}, default="auto"
        What the columns of `X` are. "auto" takes rows in [0, 1] that sum to 1 for
        probabilities and others for logits, and raises where both are possible.
    classes : array-like of shape (n_classes,), default=None
        Label of each column. None takes whole numbers in `y` for column numbers, and
        other labels in sorted order if they are as many as the columns.
    random_state : int, RandomState instance or None, default=None
        Where the seed of the uniform numbers in "aps" and "raps" comes from.

    Attributes
    ----------
    scores_ : ndarray of shape (n_calibration,)
        How strange each calibration row is for its true class.
    codes_ : ndarray of shape (n_calibration,)
        Column number of the true class of each calibration row.
    groups_ : ndarray of shape (n_calibration,) or None
        Groups of the calibration rows, if there were any.
    seed_ : int
        Seed behind the uniform numbers.
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    See Also
    --------
    CalibratedClassifier : Sets and calibrated probabilities around a classifier.
    conformal_quantile : The finite-sample quantile behind the thresholds.

    Notes
    -----
    In "aps" and "raps" a uniform number decides how much of a class's own probability
    counts. It is a hash of the row's probabilities and the seed: a row has the same
    set in any company, and coverage is what it was, since the score is still one
    function of row and class.

    References
    ----------
    .. [1] M. Sadinle, J. Lei and L. Wasserman (2019), "Least ambiguous set-valued
       classifiers with bounded error levels", JASA 114: "lac".
    .. [2] Y. Romano, M. Sesia and E. Candès (2020), "Classification with valid and
       adaptive coverage", NeurIPS: "aps".
    .. [3] A. Angelopoulos, S. Bates, J. Malik and M. Jordan (2021), "Uncertainty sets
       for image classifiers using conformal prediction", ICLR: "raps".
    .. [4] V. Vovk, A. Gammerman and G. Shafer (2005), "Algorithmic Learning in a
       Random World", Springer: thresholds for classes and groups (Mondrian).

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import ConformalSets
    >>> rng = np.random.default_rng(0)
    >>> y_proba = rng.dirichlet([0.5, 0.5, 0.5], size=1000)
    >>> y = np.array([rng.choice(3, p=row) for row in y_proba])
    >>> sets = ConformalSets().fit(y_proba[:500], y[:500])
    >>> sets.predict_set([[0.9, 0.08, 0.02], [0.4, 0.3, 0.3]])
    array([[ True, False, False],
           [ True,  True,  True]])
    >>> sets.predict_set(y_proba[500:], [0.8, 0.9]).shape
    (500, 3, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **PredictionReader._parameter_constraints,
        "method": [StrOptions({"lac", "aps", "raps"})],
        "allow_empty": ["boolean"],
        "per_class": ["boolean"],
        "rank_penalty": [Interval(Real, 0, None, closed="left")],
        "n_free_ranks": [Interval(Integral, 0, None, closed="left")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        method: str = "lac",
        *,
        allow_empty: bool = False,
        per_class: bool = False,
        rank_penalty: float = 0.01,
        n_free_ranks: int = 5,
        input: str = "auto",
        classes: ArrayLike | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.method = method
        self.allow_empty = allow_empty
        self.per_class = per_class
        self.rank_penalty = rank_penalty
        self.n_free_ranks = n_free_ranks
        self.input = input
        self.classes = classes
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike, by: ArrayLike | None = None) -> Self:
        """Score the calibration rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes), (n_samples, 1) or (n_samples,)
            Predictions on rows that neither the model nor its calibration has seen. A
            single column belongs to the positive class.
        y : array-like of shape (n_samples,)
            True labels.
        by : array-like of shape (n_samples,), default=None
            Group of each row, known without the label. Each group then has its own
            threshold, and coverage holds within it.

        Returns
        -------
        self : object
            Ready to predict sets.
        """
        logits, self.codes_ = self._read_fit(X, y)
        self.seed_ = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.groups_ = None if by is None else _group_labels(by, logits)
        scores = self._score_classes(softmax(logits, axis=1))
        self.scores_: Float64Array = scores[np.arange(len(scores)), self.codes_]
        return self

    def predict_set(
        self,
        X: ArrayLike,
        confidence_level: ArrayLike = 0.9,
        by: ArrayLike | None = None,
    ) -> AnyArray:
        """Predict which classes may be the true one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes), (n_samples, 1) or (n_samples,)
            Predictions of the kind that `fit` saw.
        confidence_level : float or array-like of shape (n_levels,), default=0.9
            Wanted coverage, strictly between 0 and 1.
        by : array-like of shape (n_samples,), default=None
            Group of each row, if `fit` was given groups.

        Returns
        -------
        sets : ndarray of bool, shape (n_samples, n_classes[, n_levels])
            True for the classes in the set; without `n_levels` for a single number.

        Raises
        ------
        InsufficientCalibrationError
            If there are too few calibration rows for a level, in all or in a group or
            class that has its own threshold.
        """
        proba = softmax(self._read(X), axis=1)
        levels = check_confidence_level(confidence_level)
        scores = self._score_classes(proba)[:, :, None]
        sets: AnyArray = np.zeros((*proba.shape, len(levels)), dtype=bool)
        for group, rows in self._groups_of(by, proba):
            sets[rows] = scores[rows] <= self._thresholds(group, levels)
        if not self.allow_empty:
            sets[np.arange(len(sets)), proba.argmax(axis=1)] = True
        return sets[:, :, 0] if np.ndim(confidence_level) == 0 else sets

    def _score_classes(self, proba: Float64Array) -> Float64Array:
        """How strange each class would be in each row; shape of `proba`."""
        if self.method == "lac":
            return 1 - proba
        order = np.argsort(-proba, axis=1, kind="stable")
        ordered = np.take_along_axis(proba, order, axis=1)
        unused = 1 - _uniforms(proba, self.seed_)[:, None]
        scores = np.cumsum(ordered, axis=1) - unused * ordered
        if self.method == "raps":
            ranks = np.arange(1, proba.shape[1] + 1)
            scores += self.rank_penalty * np.maximum(ranks - self.n_free_ranks, 0)
        in_columns = np.empty_like(scores)
        np.put_along_axis(in_columns, order, scores, axis=1)
        return in_columns

    def _groups_of(
        self, by: ArrayLike | None, proba: Float64Array
    ) -> list[tuple[Any, AnyArray]]:
        """Rows of each group asked for."""
        if (by is None) != (self.groups_ is None):
            had, got = ("no groups", "some") if by is not None else ("groups", "none")
            raise ValueError(
                f"by must be given to predict_set just when it is given to fit; fit "
                f"had {had}, predict_set got {got}. Pass it to both or to neither."
            )
        if by is None or self.groups_ is None:
            return [(None, np.arange(len(proba)))]
        labels = _group_labels(by, proba)
        found = np.unique(labels)
        unknown = found[~np.isin(found, self.groups_)].tolist()
        if unknown:
            raise ValueError(
                f"by must hold groups that fit has seen; got by={unknown[0]!r}, of "
                "which there is no calibration row. Calibrate with rows of it."
            )
        return [(group, np.flatnonzero(labels == group)) for group in found.tolist()]

    def _thresholds(self, group: Any, levels: Float64Array) -> Float64Array:
        """Largest score inside the sets, shape (n_classes or 1, n_levels)."""
        inside = np.ones(len(self.scores_), dtype=bool)
        if self.groups_ is not None:
            inside = self.groups_ == group
        where = "" if group is None else f" of group {group!r}"
        if not self.per_class:
            return _quantile(self.scores_[inside], levels, where)[None]
        return np.stack(
            [
                _quantile(
                    self.scores_[inside & (self.codes_ == k)],
                    levels,
                    f"{where} of class {label!r}",
                )
                for k, label in enumerate(self.classes_.tolist())
            ]
        )


def _quantile(scores: Float64Array, levels: Float64Array, where: str) -> Float64Array:
    """Conformal quantile whose error says where rows are missing."""
    try:
        return conformal_quantile(scores, levels)
    except InsufficientCalibrationError as error:
        if not where:
            raise
        raise InsufficientCalibrationError(f"For rows{where}: {error}") from error


def _group_labels(by: ArrayLike, rows: Float64Array) -> AnyArray:
    labels: AnyArray = column_or_1d(by)
    check_consistent_length(labels, rows)
    return labels


def _uniforms(proba: Float64Array, seed: int) -> Float64Array:
    """One uniform number a row, by its content, so that the batch does not matter."""
    # rounded, since a model's last digits do depend on the batch
    rows = np.ascontiguousarray(np.round(proba, 6) + 0.0)
    key = seed.to_bytes(8, "little")
    hashes = [blake2b(row, digest_size=8, key=key).digest() for row in rows]
    numbers = np.frombuffer(b"".join(hashes), dtype="<u8")
    uniforms: Float64Array = (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return uniforms
