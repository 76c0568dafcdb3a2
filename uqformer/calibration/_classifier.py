"""Any classifier, with honest probabilities, and with sets of classes beside them."""

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.utils import Tags, check_random_state, get_tags, indexable
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import has_fit_parameter

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import (
    HasMethods,
    StrOptions,
    check_is_fitted,
    check_row_weights,
    fit_context,
    validate_data,
)
from uqformer.calibration._base import BaseCalibrator
from uqformer.calibration._binning import HistogramBinningCalibrator
from uqformer.calibration._crossfit import hold_out, respond
from uqformer.calibration._isotonic import IsotonicCalibrator
from uqformer.calibration._scaling import (
    DirichletCalibrator,
    MatrixScalingCalibrator,
    VectorScalingCalibrator,
)
from uqformer.calibration._sets import ConformalSets
from uqformer.calibration._sigmoid import BetaCalibrator, PlattCalibrator
from uqformer.calibration._split import is_frozen, is_mapping
from uqformer.calibration._temperature import TemperatureCalibrator

__all__ = ["CalibratedClassifier"]

CALIBRATORS: dict[str, type[BaseCalibrator]] = {
    "beta": BetaCalibrator,
    "dirichlet": DirichletCalibrator,
    "histogram": HistogramBinningCalibrator,
    "isotonic": IsotonicCalibrator,
    "matrix": MatrixScalingCalibrator,
    "platt": PlattCalibrator,
    "temperature": TemperatureCalibrator,
    "vector": VectorScalingCalibrator,
}


def _has_sets(classifier: "CalibratedClassifier") -> bool:
    """Say why there are no sets, where there are none."""
    if classifier.conformal is None:
        raise AttributeError(
            "predict_set needs conformal='lac', 'aps' or 'raps'; got conformal=None. "
            "Set it and fit again."
        )
    return True


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):
    """Calibrate the probabilities of any classifier, and predict sets of classes.

    Each row is predicted by a model that was not fitted on it; these predictions
    calibrate, and a last model fitted on all rows predicts. One model and one
    calibrator are kept, so that prediction costs no more than before.

    Parameters
    ----------
    estimator : classifier
        Any classifier with `decision_function` or `predict_proba`, a pipeline too. Of
        a `FrozenEstimator` nothing is fitted, and all rows calibrate.
    calibrator : str or BaseCalibrator, default="temperature"
        A calibrator, or one with its defaults by name: "beta", "dirichlet",
        "histogram", "isotonic", "matrix", "platt", "temperature" or "vector". What
        its columns are and whose is said by this class.
    cv : int, splitter or None, default=None
        How rows are held out. None is five stratified folds and a whole number that
        many. After a single split the model fitted on its training rows is kept.
    conformal : {"lac", "aps", "raps"}, ConformalSets or None, default=None
        How `predict_set` makes sets; None makes none. Half of the held-out rows then
        calibrate the probabilities, and the other half the sets.
    random_state : int, RandomState instance or None, default=None
        Which rows are in which half, and the seed of the sets. Unused where
        `conformal` is None.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier.
    calibrator_ : BaseCalibrator
        The fitted calibrator.
    conformal_ : ConformalSets
        The calibrated sets, if `conformal` is not None.
    calibrated_quantity_ : {"logits", "proba"}
        What was calibrated: "logits" if `estimator` has a `decision_function`, as in
        scikit-learn's `CalibratedClassifierCV`, else "proba".
    classes_ : ndarray of shape (n_classes,)
        Labels, in the order of all columns.
    n_features_in_ : int
        Features seen in fit, if `estimator` says so.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the features seen in fit, if `estimator` says so.

    Warns
    -----
    CalibrationWarning
        If a class is missing wherever some of its rows are held out.

    See Also
    --------
    TemperatureCalibrator : The default, as a transformer of predictions.
    ConformalSets : The sets, from predictions alone.

    Notes
    -----
    Refitting on all rows costs one more fit than averaging the models of the folds,
    and saves many a prediction later, which is what counts for transformers. The kept
    model has seen more rows than those that were calibrated, so it tends to be a
    little better than its probabilities say. Coverage of sets is therefore exact for
    a frozen estimator and a single split, and near the level for several folds.

    References
    ----------
    .. [1] A. Niculescu-Mizil and R. Caruana (2005), "Predicting good probabilities
       with supervised learning", ICML.
    .. [2] V. Vovk (2015), "Cross-conformal predictors", Annals of Mathematics and
       Artificial Intelligence 74.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from uqformer.calibration import CalibratedClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> GaussianNB().fit(X, y).predict_proba(X[73:74]).round(3)  # in truth class 0
    array([[0., 1.]])
    >>> model = CalibratedClassifier(GaussianNB(), conformal="lac", random_state=0)
    >>> _ = model.fit(X, y)
    >>> model.predict_proba(X[73:74]).round(3)
    array([[0.172, 0.828]])
    >>> model.predict_set(X[73:74], confidence_level=0.99)
    array([[ True,  True]])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "estimator": [
            HasMethods(["fit", "predict_proba"]),
            HasMethods(["fit", "decision_function"]),
        ],
        "calibrator": [StrOptions(set(CALIBRATORS)), BaseCalibrator],
        "cv": ["cv_object"],
        "conformal": [StrOptions({"lac", "aps", "raps"}), ConformalSets, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        calibrator: str | BaseCalibrator = "temperature",
        *,
        cv: Any = None,
        conformal: str | ConformalSets | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.calibrator = calibrator
        self.cv = cv
        self.conformal = conformal
        self.random_state = random_state

    # the inner estimator checks its own parameters when it is fitted
    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        **fit_params: Any,
    ) -> Self:
        """Fit the classifier and calibrate it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Training rows, as `estimator` takes them.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights for classifier and calibrator; the sets count all rows alike.
        **fit_params : dict
            Passed to the `fit` of `estimator`; those with one entry a row are cut to
            the rows of each fold.

        Returns
        -------
        self : object
            The fitted classifier.

        Raises
        ------
        ValueError
            If `y` holds one class only, or labels unknown to a frozen estimator.
        TypeError
            If `sample_weight` is given and `estimator` does not take it.
        """
        labels: AnyArray = validate_data(self, X="no_validation", y=y)
        check_classification_targets(labels)
        if not is_mapping(X):
            X, labels = indexable(X, labels)
        weights = check_row_weights(sample_weight, labels)
        self.classes_ = self._classes_of(labels)
        for_fit, for_split = self._route(
            None if sample_weight is None else weights, fit_params
        )
        held_out = hold_out(
            self.estimator,
            X,
            labels,
            classes=self.classes_,
            cv=self.cv,
            fit_params=for_fit,
            split_params=for_split,
        )
        self.estimator_ = held_out.estimator
        self.calibrated_quantity_ = held_out.kind
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.estimator_, name):
                setattr(self, name, getattr(self.estimator_, name))
        rows = held_out.rows
        self._calibrate(held_out.predictions, labels[rows], weights[rows])
        return self

    def _classes_of(self, labels: AnyArray) -> AnyArray:
        """All labels there are; a guest's calibration rows may lack some."""
        found: AnyArray = np.unique(labels)
        guest = getattr(self.estimator, "classes_", None)
        if guest is not None and is_frozen(self.estimator):
            found = np.asarray(guest)
        if len(found) < 2:
            raise ValueError(
                "CalibratedClassifier needs at least two classes in y; got 1 class: "
                f"{found.tolist()}."
            )
        return found

    def _calibrate(
        self, predictions: Float64Array, labels: AnyArray, weights: Float64Array
    ) -> None:
        """Fit the calibrator and, on other rows, the sets."""
        rows = np.arange(len(labels))
        for_sets = rows[:0]
        random_state = check_random_state(self.random_state)
        if self.conformal is not None:
            for_sets, rows = np.array_split(random_state.permutation(rows), 2)
        given = self.calibrator
        calibrator = CALIBRATORS[given]() if isinstance(given, str) else clone(given)
        calibrator.set_params(input=self.calibrated_quantity_, classes=self.classes_)
        self.calibrator_: BaseCalibrator = calibrator.fit(
            predictions[rows], labels[rows], sample_weight=weights[rows]
        )
        if self.conformal is None:
            return
        by_name = isinstance(self.conformal, str)
        sets = ConformalSets(self.conformal) if by_name else clone(self.conformal)
        sets.set_params(
            input="proba",
            classes=self.classes_,
            random_state=random_state.randint(2**31 - 1),
        )
        proba = self.calibrator_.transform(predictions[for_sets])
        self.conformal_: ConformalSets = sets.fit(proba, labels[for_sets])

    def predict_proba(self, X: Any) -> Float64Array:
        """Predict calibrated probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as `estimator` takes them.

        Returns
        -------
        y_proba : ndarray of shape (n_samples, n_classes)
            Probabilities; each row sums to 1.
        """
        predictions = self._respond(X)
        return self.calibrator_.transform(predictions)

    def decision_function(self, X: Any) -> Float64Array:
        """Predict calibrated logits.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as `estimator` takes them.

        Returns
        -------
        logits : ndarray of shape (n_samples, n_classes) or (n_samples,)
            Their softmax are the probabilities; for two classes it is the log-odds of
            the second.
        """
        predictions = self._respond(X)
        return self.calibrator_.decision_function(predictions)

    def predict(self, X: Any) -> AnyArray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as `estimator` takes them.

        Returns
        -------
        y : ndarray of shape (n_samples,)
            Labels.
        """
        columns = self.predict_proba(X).argmax(axis=1)
        labels: AnyArray = self.classes_[columns]
        return labels

    @available_if(_has_sets)
    def predict_set(self, X: Any, confidence_level: ArrayLike = 0.9) -> AnyArray:
        """Predict which classes may be the true one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows, as `estimator` takes them.
        confidence_level : float or array-like of shape (n_levels,), default=0.9
            Wanted coverage, strictly between 0 and 1.

        Returns
        -------
        sets : ndarray of bool, shape (n_samples, n_classes[, n_levels])
            True for the classes in the set; without `n_levels` for a single number.

        Raises
        ------
        InsufficientCalibrationError
            If there are too few calibration rows for a level.
        """
        check_is_fitted(self, "conformal_")
        proba = self.predict_proba(X)
        return self.conformal_.predict_set(proba, confidence_level)

    def _respond(self, X: Any) -> Float64Array:
        """Ask the fitted classifier for what was calibrated."""
        check_is_fitted(self)
        return respond(self.estimator_, X, self.calibrated_quantity_, self.classes_)

    def _route(
        self, sample_weight: Float64Array | None, fit_params: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Say what goes to the classifier's fit and what to the splitter."""
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(
                self, "fit", sample_weight=sample_weight, **fit_params
            )
            return routed.estimator.fit, routed.splitter.split
        if sample_weight is None or is_frozen(self.estimator):
            return fit_params, {}
        if not has_fit_parameter(self.estimator, "sample_weight"):
            raise TypeError(
                f"{type(self.estimator).__name__}.fit must take sample_weight to weigh "
                "samples; it does not. For a pipeline, pass "
                "<step>__sample_weight=..., or enable metadata routing."
            )
        return {"sample_weight": sample_weight, **fit_params}, {}

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn's metadata routing who asks for what.

        Returns
        -------
        routing : MetadataRouter
            Weights are for the calibrator itself; the rest goes to `estimator` and to
            the splitter.
        """
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=to_fit)
        router.add(splitter=self.cv, method_mapping=to_split)
        return router

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator).input_tags
        tags.input_tags.sparse = inner.sparse
        tags.input_tags.allow_nan = inner.allow_nan
        return tags
