"""The verbs of a regressor whose members are chains."""

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import check_confidence_level, check_probabilities
from uqformer.director import Task
from uqformer.director._tasks import spread_task, weighted_regression
from uqformer.estimators._director_core import DirectorCore
from uqformer.estimators._inputs import UserInputs
from uqformer.estimators._passes import Passes
from uqformer.estimators._regressor_core import RegressorCore
from uqformer.estimators._rows import HeldOut
from uqformer.predictive import RegressionEnsemble

__all__ = ["ChainRegressor"]


class ChainRegressor(RegressorMixin, RegressorCore, DirectorCore):
    """A regressor by chains; its subclass has the parameters."""

    def predict(
        self, X: UserInputs, return_std: bool = False
    ) -> Float64Array | tuple[Float64Array, Float64Array]:
        """Predict the point, and the spread about it if asked.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        return_std : bool, default=False
            Whether to return the spread too. The keyword also passes through a
            `Pipeline`.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            A walk by the means alone, in units of `y`.

        y_std : ndarray of the same shape
            Spread, see `predict_std`; only with ``return_std=True``.
        """
        self._check_ready()
        inputs = self._validate_new(X)
        if not return_std:
            return self._in_units(self._passes(self.module_).exact(inputs))
        point, spread = self._point_and_spread(inputs)
        y_pred = self._in_units(point)
        return y_pred, self._stretched(spread)

    def predict_std(self, X: UserInputs) -> Float64Array:
        """Predict how far the chains end from the point.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Root mean square distance, in units of `y`.
        """
        self._check_ready()
        _, spread = self._point_and_spread(self._validate_new(X))
        return self._stretched(spread)

    def predict_interval(
        self, X: UserInputs, confidence_level: ArrayLike = 0.9
    ) -> Float64Array:
        """Predict intervals for one level or several.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
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
            If a conformal level asks for more calibration rows than were kept.
        """
        self._check_ready()
        levels = check_confidence_level(confidence_level)
        ends = self._interval_ends(self._validate_new(X), levels)
        return ends[:, :, 0] if np.ndim(confidence_level) == 0 else ends

    def predict_quantiles(self, X: UserInputs, quantiles: ArrayLike) -> Float64Array:
        """Predict quantiles, which never cross.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        quantiles : float or array-like of shape (n_quantiles,)
            Each strictly between 0 and 1, in any order.

        Returns
        -------
        y_quantiles : ndarray of shape (n_samples, n_quantiles[, n_outputs])
            In units of `y` and in the order of `quantiles`; without `n_quantiles` for a
            single number.

        Raises
        ------
        InsufficientCalibrationError
            If a conformal quantile asks for more calibration rows than were kept.
        """
        self._check_ready()
        wanted = check_probabilities(quantiles, "quantiles")
        values = self._quantiles(self._validate_new(X), wanted)
        return values[:, 0] if np.ndim(quantiles) == 0 else values

    def predict_ensemble(self, X: UserInputs) -> RegressionEnsemble:
        """Predict with every chain and keep them all.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        ensemble : RegressionEnsemble
            Bare chains, ``(n_chains, n_samples[, n_outputs])``, in units of `y`.
            Nothing conformal is in them.
        """
        self._check_ready()
        return self._ensemble(self._validate_new(X))

    def backbone_predict(self, X: UserInputs) -> Float64Array:
        """Predict with the backbone, as it was before it was distilled.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            In units of `y`.
        """
        self._check_ready()
        exact = self._passes(self.backbone_).exact(self._validate_new(X))
        return self._in_units(exact)

    def _task_targets(self, targets: AnyArray, weight: Float64Array) -> AnyArray:
        return np.column_stack([targets, weight])

    def _answers(self, train: HeldOut, validation: HeldOut) -> AnyArray:
        return train.exact

    def _tasks(self, targets: torch.Tensor) -> tuple[Task, Task]:
        unit = targets[:, :-1].std(dim=0, correction=0)
        unit[unit == 0] = 1.0
        return weighted_regression(unit), spread_task(unit)

    def _calibrate(self, passes: Passes) -> None:
        """Do now what the first prediction would otherwise wait for."""
        if len(self.calibration_.calibration):
            with self._timed("conformal"):
                self.calibration_.conformal(
                    passes, self.findings_.n_draws, self.n_members, self.point
                )
