"""ConformalRegressor: intervals that cover what they say, around any regressor."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import Tags, check_random_state
from sklearn.utils.metadata_routing import MetadataRouter
from sklearn.utils.parallel import Parallel, delayed

from uqformer._typing import AnyArray, Float64Array, IntArray
from uqformer._validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_confidence_level,
    fit_context,
)
from uqformer.calibration._cross import ConformalModels, bootstrap_splits
from uqformer.calibration._groups import GroupBy, Groups, group_labels
from uqformer.calibration._scores import Score, ScoreModel
from uqformer.calibration._split import (
    check_new_rows,
    check_rows,
    count_rows,
    inherit_tags,
    part_calibration,
    pass_on_to_fit,
    route_fit,
    take_params,
    take_rows,
)

__all__ = ["ConformalRegressor"]


class ConformalRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """Conformal prediction intervals around any regressor.

    They cover a new row with at least the wanted chance, whatever the regressor and
    however few the rows, as long as rows are exchangeable. Only how wide they must be
    for it depends on the regressor and on the score.

    Parameters
    ----------
    estimator : estimator
        Regressor that predicts the point; may be a whole `Pipeline`. Inside a
        `FrozenEstimator` it is not fitted, and all rows calibrate it.

    conformity_score : {"absolute", "spread", "quantile"}, default="absolute"
        What is compared with the quantile of the calibration rows. "absolute": the
        size of the error, which makes all intervals equally wide [1]_. "spread": the
        error in units of a predicted spread, so that widths follow it [1]_.
        "quantile": how far the target is outside an interval that was predicted
        already, which moves both ends (conformalised quantile regression) [2]_.

    spread_estimator : estimator, default=None
        Regressor of the size of the error, for "spread". It learns from
        cross-validated errors on the training rows. None asks `estimator` for
        ``predict(X, return_std=True)``.

    quantile_estimators : sequence of two estimators, default=None
        Regressors of a lower and an upper quantile, for "quantile". None asks
        `estimator` for ``predict_interval(X, confidence_level)``.

    spread_floor : float, default=0.0
        Added to the spread in quadrature, in units of `y`, so that rows of no spread
        keep some width.

    method : {"split", "cv+", "jackknife+ab"}, default="split"
        Which rows calibrate. "split": a part that is kept from training. "cv+": all,
        each by the model of the fold that it was kept from [3]_; with `LeaveOneOut`
        as `cv` it is the jackknife+. "jackknife+ab": all, each by the bootstrap models
        that did not draw it [4]_.

    cv : int, cross-validation splitter or iterable, default=None
        Folds of "cv+". None stands for 5; a number is shuffled folds.

    n_resamplings : int, default=50
        Bootstrap models of "jackknife+ab".

    calibration_fraction : float, default=0.2
        Share of the rows that "split" keeps from training.

    group_by : int, str or callable, default=None
        Groups that are calibrated apart, so that each is covered (Mondrian): a column
        of `X` by position or by name, or a function of `X` that returns a label a row.

    n_jobs : int, default=None
        Models fitted in parallel, as in joblib.

    random_state : int, RandomState instance or None, default=None
        Source of parts, folds and bootstraps.

    Attributes
    ----------
    estimators_ : list of estimators
        Fitted copies of `estimator`: one for "split", one for each fold or bootstrap
        otherwise. Their average is the point prediction.

    conformal_ : object
        The calibration rows and their scores.

    n_calibration_ : int
        Number of calibration rows.

    n_features_in_ : int
        Number of columns seen in ``fit``, where `X` has columns.

    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    CalibratedRegressor : Recalibrate a whole predictive distribution.
    AdaptiveOnlineConformal : For series, whose rows are not exchangeable.
    uqformer.predict_interval : Ask for intervals through pipelines and searches.

    Notes
    -----
    "split" covers at least as often as asked. The proofs of "cv+" and "jackknife+ab"
    promise ``2 * confidence_level - 1`` in the worst case; they cover about as often
    as asked in practice, and need no rows of their own. The proof of the latter asks
    for a random number of bootstraps; it is fixed here, as it is everywhere.

    Keywords of ``fit`` are handed to the fit of `estimator`, and through metadata
    routing if that is switched on.

    References
    ----------
    .. [1] J. Lei, M. G'Sell, A. Rinaldo, R. J. Tibshirani, L. Wasserman (2018),
       "Distribution-Free Predictive Inference for Regression", JASA 113.
    .. [2] Y. Romano, E. Patterson, E. Candes (2019), "Conformalized Quantile
       Regression", NeurIPS 32.
    .. [3] R. Foygel Barber, E. Candes, A. Ramdas, R. J. Tibshirani (2021), "Predictive
       inference with the jackknife+", Annals of Statistics 49.
    .. [4] B. Kim, C. Xu, R. Foygel Barber (2020), "Predictive inference is free with
       the jackknife+-after-bootstrap", NeurIPS 33.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.linear_model import BayesianRidge, Ridge
    >>> from uqformer.calibration import ConformalRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = ConformalRegressor(Ridge(), random_state=0).fit(X[:300], y[:300])
    >>> model.predict_interval(X[300:]).shape
    (142, 2)
    >>> model.predict_interval(X[300:], confidence_level=[0.5, 0.9]).shape
    (142, 2, 2)

    Widths that follow a spread, no rows lost to calibration, and each sex covered:

    >>> model = ConformalRegressor(
    ...     BayesianRidge(),
    ...     conformity_score="spread",
    ...     method="cv+",
    ...     group_by=1,
    ...     random_state=0,
    ... )
    >>> model.fit(X[:300], y[:300]).predict_interval(X[300:]).shape
    (142, 2)

    A model that is trained already:

    >>> from sklearn.frozen import FrozenEstimator
    >>> trained = FrozenEstimator(Ridge().fit(X[:200], y[:200]))
    >>> ConformalRegressor(trained).fit(X[200:300], y[200:300]).n_calibration_
    100
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "estimator": [HasMethods(["fit", "predict"])],
        "conformity_score": [StrOptions({"absolute", "spread", "quantile"})],
        "spread_estimator": [HasMethods(["fit", "predict"]), None],
        "quantile_estimators": [list, tuple, None],
        "spread_floor": [Interval(Real, 0, None, closed="left")],
        "method": [StrOptions({"split", "cv+", "jackknife+ab"})],
        "cv": ["cv_object"],
        "n_resamplings": [Interval(Integral, 2, None, closed="left")],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
        "group_by": [Integral, str, callable, None],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        estimator: Any,
        *,
        conformity_score: Score = "absolute",
        spread_estimator: Any = None,
        quantile_estimators: Any = None,
        spread_floor: float = 0.0,
        method: Literal["split", "cv+", "jackknife+ab"] = "split",
        cv: Any = None,
        n_resamplings: int = 50,
        calibration_fraction: float = 0.2,
        group_by: GroupBy = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.conformity_score = conformity_score
        self.spread_estimator = spread_estimator
        self.quantile_estimators = quantile_estimators
        self.spread_floor = spread_floor
        self.method = method
        self.cv = cv
        self.n_resamplings = n_resamplings
        self.calibration_fraction = calibration_fraction
        self.group_by = group_by
        self.n_jobs = n_jobs
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the estimator, and score rows that it was not fitted on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs, as `estimator` takes them.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets.

        **fit_params : dict
            Handed to the fit of `estimator`, such as `sample_weight`. What has one
            entry a row is parted along with the rows.

        Returns
        -------
        self : ConformalRegressor
            The fitted regressor.
        """
        X, targets = check_rows(self, X, y)
        self._check_quantile_estimators()
        params = route_fit(self, fit_params)
        n_rows = len(targets)
        self._y_ndim = targets.ndim
        columns = targets.astype(np.float64).reshape(n_rows, -1)
        splits = self._splits(X, targets, self._new_model(columns.shape[1]))
        models = Parallel(n_jobs=self.n_jobs)(
            delayed(self._new_model(columns.shape[1]).fit)(
                take_rows(X, train),
                targets[train],
                take_params(params, train, n_rows),
            )
            for train, _ in splits
        )
        self.conformal_ = self._calibrate(models, splits, X, columns)
        self.estimators_ = [model.estimator for model in models]
        self.n_calibration_ = len(self.conformal_.y)
        return self

    def predict(self, X: ArrayLike) -> Float64Array:
        """Predict the point; calibration does not move it.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Average of `estimators_`, in units of `y`.
        """
        rows = check_new_rows(self, X)
        point = self.conformal_.predict(rows)
        return point[:, 0] if self._y_ndim == 1 else point

    def predict_interval(
        self, X: ArrayLike, confidence_level: ArrayLike = 0.9
    ) -> Float64Array:
        """Predict intervals for one level or several.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        confidence_level : float or array-like of shape (n_levels,), default=0.9
            Wanted coverage, strictly between 0 and 1.

        Returns
        -------
        y_interval : ndarray of shape (n_samples, 2[, n_levels][, n_outputs])
            Lower ends first, in units of `y`. Without `n_levels` for a single number,
            without `n_outputs` for a one-dimensional `y`.

        Raises
        ------
        InsufficientCalibrationError
            If a level asks for more calibration rows than there are, altogether or in
            a group.
        ValueError
            If a row is in a group that was not seen in ``fit``.
        """
        rows = check_new_rows(self, X)
        levels = check_confidence_level(confidence_level)
        ends = self.conformal_.interval(rows, self._labels(rows), levels)
        if self._y_ndim == 1:
            ends = ends[..., 0]
        return ends[:, :, 0] if np.ndim(confidence_level) == 0 else ends

    def get_metadata_routing(self) -> MetadataRouter:
        """Tell scikit-learn's metadata routing where keywords of ``fit`` go.

        Returns
        -------
        routing : MetadataRouter
            They go to the fit of `estimator`.
        """
        return pass_on_to_fit(self)

    def __sklearn_tags__(self) -> Tags:
        return inherit_tags(super().__sklearn_tags__(), self.estimator)

    def _new_model(self, n_outputs: int) -> ScoreModel:
        return ScoreModel(
            score=self.conformity_score,
            estimator=self.estimator,
            spread_estimator=self.spread_estimator,
            quantile_estimators=self.quantile_estimators,
            spread_floor=self.spread_floor,
            n_outputs=n_outputs,
        )

    def _splits(
        self, X: Any, y: AnyArray, model: ScoreModel
    ) -> list[tuple[IntArray, IntArray]]:
        """Pairs of training and calibration rows, one for each model to fit."""
        everything = np.arange(len(y))
        if model.is_frozen():
            return [(everything, everything)]
        rng = check_random_state(self.random_state)
        if self.method == "split":
            return [part_calibration(len(y), self.calibration_fraction, rng)]
        if self.method == "jackknife+ab":
            return bootstrap_splits(len(y), self.n_resamplings, rng)
        if self.cv is None or isinstance(self.cv, Integral):
            folds = KFold(self.cv or 5, shuffle=True, random_state=rng)
            return list(folds.split(everything))
        return list(check_cv(self.cv).split(X, y))

    def _calibrate(
        self,
        models: list[ScoreModel],
        splits: list[tuple[IntArray, IntArray]],
        X: Any,
        y: Float64Array,
    ) -> ConformalModels:
        held_out = np.zeros((len(models), len(y)), dtype=bool)
        for k, (_, calibration) in enumerate(splits):
            held_out[k, calibration] = True
        rows = np.flatnonzero(held_out.any(axis=0))
        labels = self._labels(X)
        return ConformalModels(
            models,
            held_out[:, rows],
            take_rows(X, rows),
            y[rows],
            None if labels is None else Groups(labels[rows]),
        )

    def _labels(self, X: Any) -> AnyArray | None:
        if self.group_by is None:
            return None
        return group_labels(X, self.group_by, count_rows(X))

    def _check_quantile_estimators(self) -> None:
        pair = self.quantile_estimators
        if pair is not None and len(pair) != 2:
            raise ValueError(
                "quantile_estimators must hold two estimators, of the lower and of the "
                f"upper quantile; got {len(pair)}."
            )
