"""What the estimators share: fitting all or nothing, reading inputs, pickling."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from numbers import Integral, Real
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from uqformer._typing import AnyArray
from uqformer._validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    fit_context,
    validate_data,
)
from uqformer.backbones._adapters import GuestProtocol
from uqformer.estimators._inputs import (
    ArrayInputs,
    UserInputs,
    as_network_numbers,
    check_same_form,
    count_rows,
    form_of,
)
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
        "backbone": [str, callable, HasMethods(["encode", "build"])],
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
        self, X: UserInputs, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Train the backbone, or only calibrate a frozen one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Numerical inputs, finite, at least 5 rows. A backbone other than
            "ft_transformer" may take more dimensions; a guest, arrays by name or
            whatever else it encodes.

        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Targets: finite numbers for a regressor, one label a row for a classifier.

        sample_weight : array-like of shape (n_samples,), default=None
            How much each row counts in scaling, training, early stopping, the search
            for `n_draws` and temperature. Rows of weight 0 are left out. The conformal
            quantile counts all its rows alike: its guarantee is for exchangeable rows.

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
        X: UserInputs,
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

    def _guest(self) -> GuestProtocol | None:
        """Return the backbone if it is a pretrained model that somebody wrapped."""
        backbone = self.backbone
        is_guest = isinstance(backbone, GuestProtocol) and not isinstance(
            backbone, type
        )
        return backbone if is_guest else None

    def _trains(self) -> bool:
        """Tell whether fit trains anything, or only calibrates a guest."""
        guest = self._guest()
        return guest is None or guest.trains

    def _allows_more_dimensions(self) -> bool:
        """Tell whether the backbone may take images or windows besides tables."""
        return bool(self.backbone != "ft_transformer")

    def _read_fit(
        self, X: UserInputs, y: ArrayLike, **checks: Any
    ) -> tuple[ArrayInputs, AnyArray]:
        """Check inputs and targets; an array is float64 and not yet scaled."""
        with clear_about_strings():
            rows, targets = self._encode(X, reset=True), y
            if isinstance(rows, dict):
                targets = validate_data(self, "no_validation", y, **checks)
                _check_lengths(count_rows(rows), len(targets))
            else:
                rows, targets = validate_data(
                    self,
                    rows,
                    y,
                    dtype=np.float64,
                    allow_nd=self._allows_more_dimensions(),
                    ensure_min_samples=MIN_SAMPLES,
                    **checks,
                )
                if rows.ndim > 2:
                    del self.n_features_in_  # there are no columns to count
        self.input_form_ = form_of(rows)
        return rows, targets

    def _validate_new(self, X: UserInputs) -> ArrayInputs:
        """Check the inputs of a prediction and scale them as in fit."""
        with clear_about_strings():
            rows = self._encode(X, reset=False)
            if not isinstance(rows, dict):
                rows = validate_data(
                    self,
                    rows,
                    reset=False,
                    dtype=[np.float64, np.float32],
                    allow_nd=self._allows_more_dimensions(),
                )
        if isinstance(rows, dict) or self._guest() is None:
            check_same_form(rows, self.input_form_)
        return self._scaled_inputs(rows)

    def _encode(self, X: Any, *, reset: bool) -> Any:
        """Let a guest read its own kinds of inputs; arrays go on to be validated."""
        guest = self._guest()
        if issparse(X):
            return X.tocoo()  # is refused later; some formats would pass for a dict
        if guest is None:
            if isinstance(X, Mapping):
                raise ValueError(
                    "X must be an array for a backbone that is not a guest; got a "
                    f"mapping of {sorted(X)}. Hand the model in as "
                    "FrozenBackbone(model)."
                )
            return X
        rows = guest.encode(X)
        if isinstance(rows, dict):
            if getattr(X, "ndim", None) == 2:  # columns have been read, so name them
                validate_data(self, X, reset=reset, skip_check_array=True)
            if count_rows(rows) == 0:
                raise ValueError("X must hold at least one row; got none.")
        return rows

    def _scaled_inputs(self, rows: ArrayInputs) -> ArrayInputs:
        """Return inputs as the module takes them, standardised where scales exist."""
        if isinstance(rows, dict):
            return {
                name: as_network_numbers(array, f"X[{name!r}]")
                for name, array in rows.items()
            }
        if self.takes_tokens_:
            return _as_tokens(rows)
        scaler = self.feature_scaler_
        return as_network_numbers(rows if scaler is None else scaler.transform(rows))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "module_")

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        module = state.get("module_")
        if module is not None and self._trains() and _is_on_accelerator(module):
            # where it will be read there may be none
            state["module_"] = deepcopy(module).cpu()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "module_") and self._trains():
            self.module_.to(resolve_device(self.device))


def _is_on_accelerator(module: torch.nn.Module) -> bool:
    return any(parameter.device.type != "cpu" for parameter in module.parameters())


def _check_lengths(n_rows: int, n_targets: int) -> None:
    if n_rows != n_targets:
        raise ValueError(
            f"X and y must have a row for each sample; got {n_rows} rows in X and "
            f"{n_targets} in y."
        )
    if n_rows < MIN_SAMPLES:
        raise ValueError(
            f"Found array with {n_rows} sample(s) while a minimum of {MIN_SAMPLES} is "
            "required; add rows."
        )


def _as_tokens(rows: AnyArray) -> AnyArray:
    """Return token ids as int64 after checking that they are whole."""
    tokens = rows.astype(np.int64)
    if (tokens != rows).any():
        raise ValueError(
            "X must hold token ids, which are whole numbers; got "
            f"{rows[tokens != rows][0]:g}. Tokenize first."
        )
    return tokens
