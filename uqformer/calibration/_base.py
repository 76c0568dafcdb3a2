"""What all calibrators of class predictions share: their contract with scikit-learn."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.multiclass import check_classification_targets

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import (
    StrOptions,
    check_is_fitted,
    check_row_weights,
    fit_context,
    validate_data,
)
from uqformer.calibration._inputs import (
    InputKind,
    column_labels,
    encode_labels,
    full_logits,
    infer_kind,
)

__all__ = ["BaseCalibrator", "PredictionReader"]


class PredictionReader(BaseEstimator):
    """An estimator whose `X` is an array of class predictions.

    Parameters
    ----------
    input : {"auto", "logits", "proba"}
        What the columns are.
    classes : array-like of shape (n_classes,) or None
        Label of each column.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "input": [StrOptions({"auto", "logits", "proba"})],
        "classes": ["array-like", None],
    }

    input: str
    classes: ArrayLike | None
    n_features_in_: int
    input_: InputKind
    classes_: AnyArray

    def _read_fit(self, X: ArrayLike, y: ArrayLike) -> tuple[Float64Array, IntArray]:
        """Return logits (n_samples, n_classes) and the column number of each label."""
        predictions, labels = validate_data(self, _as_columns(X), y, dtype=np.float64)
        check_classification_targets(labels)
        n_features = predictions.shape[1]
        self.input_ = self._kind_of(predictions)
        self.classes_ = column_labels(
            labels, max(2, n_features), self.classes, n_features
        )
        codes = encode_labels(labels, self.classes_)
        return full_logits(predictions, self.input_), codes

    def _kind_of(self, predictions: Float64Array) -> InputKind:
        if self.input == "auto":
            return infer_kind(predictions)
        return "logits" if self.input == "logits" else "proba"

    def _read(self, X: ArrayLike) -> Float64Array:
        """Return logits of shape (n_samples, n_classes) of predictions like the first.

        What they are was settled in fit: a batch must not be read by its own values.
        """
        check_is_fitted(self)
        if self.n_features_in_ == 1:
            X = _as_columns(X)
        predictions = validate_data(self, X, dtype=np.float64, reset=False)
        return full_logits(predictions, self.input_)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class BaseCalibrator(OneToOneFeatureMixin, TransformerMixin, PredictionReader, ABC):
    """Base of the calibrators: predictions in, calibrated probabilities out.

    A calibrator is a transformer whose `X` *is* an array of predictions. What comes
    out has the shape of what went in, so it also serves where a single column holds
    the positive class. A subclass says how logits are fitted and how they are mapped,
    in two methods.

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
    classes_ : ndarray of shape (n_classes,)
        Label of each column.
    input_ : {"logits", "proba"}
        What the columns were taken for.
    n_features_in_ : int
        Columns of `X`.

    See Also
    --------
    CalibratedClassifier : Classifier and calibrator in one.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.calibration import BaseCalibrator
    >>> class AddOne(BaseCalibrator):
    ...     def _fit_logits(self, logits, codes, weights):
    ...         self.pseudo_rows_ = 1
    ...     def _map_logits(self, logits):
    ...         return np.log(np.exp(logits) + self.pseudo_rows_)
    >>> AddOne(input="proba").fit([[0.5, 0.5]], [0]).transform([[0.8, 0.2]])
    array([[0.6, 0.4]])
    """

    def __init__(
        self, *, input: str = "auto", classes: ArrayLike | None = None
    ) -> None:
        self.input = input
        self.classes = classes

    @abstractmethod
    def _fit_logits(
        self, logits: Float64Array, codes: IntArray, weights: Float64Array
    ) -> None:
        """Learn from logits (n_samples, n_classes) and the columns of the labels."""

    @abstractmethod
    def _map_logits(self, logits: Float64Array) -> Float64Array:
        """Return calibrated logits, same shape."""

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Learn the calibration map.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes), (n_samples, 1) or (n_samples,)
            Predictions on rows that the model was not trained on. A single column
            belongs to the positive class: its probability or its log-odds.
        y : array-like of shape (n_samples,)
            True labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples; a weight of 2 is a row that is there twice.

        Returns
        -------
        self : object
            The fitted calibrator.
        """
        logits, codes = self._read_fit(X, y)
        self._fit_logits(logits, codes, check_row_weights(sample_weight, logits))
        return self

    def transform(self, X: ArrayLike) -> Float64Array:
        """Map predictions to calibrated probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes), (n_samples, 1) or (n_samples,)
            Predictions of the kind that `fit` saw.

        Returns
        -------
        y_proba : ndarray of the shape of `X`
            Probabilities; rows of more than one column sum to 1.
        """
        proba: Float64Array = softmax(self._map_logits(self._read(X)), axis=1)
        if self.n_features_in_ > 1:
            return proba
        positive: Float64Array = proba[:, 1] if _is_flat(X) else proba[:, 1:]
        return positive

    def decision_function(self, X: ArrayLike) -> Float64Array:
        """Map predictions to calibrated logits.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_classes), (n_samples, 1) or (n_samples,)
            Predictions of the kind that `fit` saw.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes) or (n_samples,)
            Their softmax are the probabilities; for two classes it is the log-odds of
            the second.
        """
        logits = self._map_logits(self._read(X))
        if logits.shape[1] > 2:
            return logits
        odds: Float64Array = logits[:, 1] - logits[:, 0]
        return odds

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # float64, whatever came
        return tags


def _is_flat(X: ArrayLike) -> bool:
    return bool((X if hasattr(X, "ndim") else np.asarray(X)).ndim == 1)


def _as_columns(X: ArrayLike) -> ArrayLike:
    """Stand a flat array up as one column; leave frames as they are."""
    return np.reshape(np.asarray(X), (-1, 1)) if _is_flat(X) else X
