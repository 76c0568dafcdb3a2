"""What the estimators share: fitting all or nothing, devices, seeds, pickling."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from uqformer._typing import AnyArray, Float64Array
from uqformer._validation import (
    Interval,
    StrOptions,
    check_is_fitted,
    fit_context,
    validate_data,
)
from uqformer.backbones import FrozenBackbone
from uqformer.estimators._passes import resolve_device

__all__ = ["MIN_SAMPLES", "BaseTransformerEstimator", "clear_about_strings"]

MIN_SAMPLES = 5
"""Fewer rows cannot be parted into training, validation and calibration."""


@contextmanager
def clear_about_strings() -> Iterator[None]:
    """Say what to do about words in a table of numbers."""
    try:
        yield
    except ValueError as error:
        if "could not convert string to float" not in str(error):
            raise
        raise ValueError(
            f"X and y must be numbers; got text ({error}). Encode text columns first, "
            "for example with sklearn.preprocessing.OrdinalEncoder or OneHotEncoder in "
            "a ColumnTransformer before this estimator."
        ) from error


class BaseTransformerEstimator(BaseEstimator, ABC):
    """Base of the estimators that hold a transformer.

    A subclass fits in `_fit_rows`; whatever goes wrong there, Ctrl-C included, leaves
    the estimator unfitted and not half-fitted.
    """

    _parameter_constraints: dict[str, list[Any]] = {
        "backbone": [str, callable, FrozenBackbone],
        "backbone_params": [dict, None],
        "n_members": [Interval(Integral, 1, None, closed="left")],
        "n_draws": [
            Interval(Integral, 1, None, closed="left"),
            StrOptions({"auto"}),
            None,
        ],
        "layers": [StrOptions({"all"}), list, tuple],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "max_epochs": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [Interval(Real, 0, None, closed="left")],
        "batch_size": [
            Interval(Integral, 1, None, closed="left"),
            StrOptions({"auto"}),
        ],
        "predict_batch_size": [Interval(Integral, 1, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "device": [str],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
    }

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train the backbone, or only calibrate a frozen one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Numerical inputs, finite, at least 5 rows. A backbone other than
            "ft_transformer" may take more dimensions.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets, finite.

        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts in scaling, training, early stopping and the
            search for `n_draws`. Rows of weight 0 are left out. The conformal quantile
            counts all its rows alike: its guarantee is for exchangeable rows.

        Returns
        -------
        self : object
            The fitted estimator.
        """
        self._forget()
        try:
            rng = check_random_state(self.random_state)
            seed = int(rng.randint(np.iinfo(np.int32).max))
            self._fit_rows(X, y, sample_weight, seed)
        except BaseException:
            self._forget()
            raise
        return self

    @abstractmethod
    def _fit_rows(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        seed: int,
    ) -> None:
        """Set every fitted attribute, `module_` among them."""

    def _forget(self) -> None:
        """Drop all that an earlier or a broken fit has set."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _check_ready(self) -> None:
        """Check that the estimator is fitted and its parameters still make sense."""
        check_is_fitted(self, "module_")
        self._validate_params()

    def _is_frozen(self) -> bool:
        return isinstance(self.backbone, FrozenBackbone)

    def _allows_more_dimensions(self) -> bool:
        """Tell whether the backbone may take images or windows besides tables."""
        return not isinstance(self.backbone, str)

    def _validate_new(self, X: ArrayLike) -> AnyArray:
        """Check the inputs of a prediction and scale them as in fit."""
        with clear_about_strings():
            array = validate_data(
                self,
                X,
                reset=False,
                dtype=[np.float64, np.float32],
                allow_nd=self._allows_more_dimensions(),
            )
        return self._scaled_inputs(array)

    def _scaled_inputs(self, X: Float64Array) -> AnyArray:
        """Return inputs as float32, standardised where a scaler was fitted."""
        scaler = self.feature_scaler_
        array = X if scaler is None else scaler.transform(X)
        with np.errstate(over="ignore"):
            narrow: AnyArray = np.asarray(array, dtype=np.float32)
        if not np.isfinite(narrow).all():
            raise ValueError(
                "X must fit the float32 range of the network; "
                f"{int((~np.isfinite(narrow)).sum())} of its values do not, the "
                f"largest is {np.abs(X).max():.3g}. Rescale or clip X."
            )
        return narrow

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        module = state.get("module_")
        if module is not None and not self._is_frozen():
            # where it will be read there may be no accelerator
            state["module_"] = deepcopy(module).cpu()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "module_") and not self._is_frozen():
            self.module_.to(resolve_device(self.device))
