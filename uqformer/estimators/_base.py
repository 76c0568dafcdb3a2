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
from sklearn.utils import Tags, check_random_state

from uqformer._typing import AnyArray
from uqformer._validation import (
    HasMethods,
    Interval,
    StrOptions,
    check_is_fitted,
    fit_context,
    validate_data,
)
from uqformer.backbones import FTTransformer
from uqformer.backbones._adapters import GuestProtocol
from uqformer.estimators._cells import Table, read_table
from uqformer.estimators._inputs import (
    ArrayInputs,
    ReadInputs,
    UserInputs,
    as_network_numbers,
    check_same_form,
    count_rows,
    form_of,
)
from uqformer.estimators._passes import resolve_device
from uqformer.estimators._tables import CategoricalFeatures

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
            f"X and y must be numbers; got text ({error}). Use the backbone "
            "'ft_transformer', which takes text columns of X as they are, or encode "
            "them first, for example with sklearn.preprocessing.OneHotEncoder in a "
            "ColumnTransformer before this estimator."
        ) from error


class BaseTransformerEstimator(BaseEstimator, ABC):
    """Base of the estimators that hold a transformer.

    A subclass fits in `_fit_rows`; whatever goes wrong there, Ctrl-C included, leaves
    the estimator unfitted and not half-fitted.
    """

    categorical_features: CategoricalFeatures = "auto"
    """For a subclass whose constructor has no such parameter."""

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
        "categorical_features": ["array-like", StrOptions({"auto"}), None],
        "calibration_fraction": [Interval(Real, 0, 1, closed="neither")],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "shuffle": ["boolean"],
        "embargo": [Interval(Integral, 0, None, closed="left")],
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
            Inputs, at least 5 rows. "ft_transformer" takes a table, such as a data
            frame, whose columns may hold numbers, booleans, dates or text, and whose
            cells may be missing. Other backbones take finite numbers, also of more
            dimensions; a guest, arrays by name or whatever else it encodes.

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

    def _takes_tables(self) -> bool:
        """Tell whether the backbone takes tables, with categories and gaps.

        Others take numbers alone, but may take images or windows too.
        """
        return self.backbone == "ft_transformer" or self.backbone is FTTransformer

    def _check_choice_of_categories(self) -> None:
        if self._takes_tables():
            if "n_categories" in (self.backbone_params or {}):
                raise ValueError(
                    "backbone_params must not hold 'n_categories', which fit counts; "
                    "choose the columns of categories with categorical_features."
                )
        elif not isinstance(self.categorical_features, str):
            raise ValueError(
                "categorical_features is for backbone='ft_transformer' alone; got "
                f"categorical_features={self.categorical_features!r} with "
                f"backbone={self.backbone!r:.60}. Leave it at 'auto'."
            )

    def _read_fit(
        self, X: UserInputs, y: ArrayLike, **checks: Any
    ) -> tuple[ReadInputs, AnyArray]:
        """Check inputs and targets; an array is float64 and not yet scaled."""
        self._check_choice_of_categories()
        with clear_about_strings():
            rows, targets = self._encode(X), y
            if isinstance(rows, dict | Table):
                targets = validate_data(self, "no_validation", y, **checks)
                _check_lengths(count_rows(rows), len(targets))
                # after y, whose validation would forget the names again
                self._check_columns(X, rows, reset=True)
            else:
                rows, targets = validate_data(
                    self,
                    rows,
                    y,
                    dtype=np.float64,
                    allow_nd=True,
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
            rows = self._encode(X)
            if isinstance(rows, dict | Table):
                self._check_columns(X, rows, reset=False)
            else:
                rows = validate_data(
                    self,
                    rows,
                    reset=False,
                    dtype=[np.float64, np.float32],
                    allow_nd=True,
                )
        if isinstance(rows, dict) or self._guest() is None:
            check_same_form(rows, self.input_form_)
        return self._scaled_inputs(rows)

    def _encode(self, X: Any) -> Any:
        """Read a table, or what a guest reads; arrays go on to be validated."""
        if issparse(X):
            return X.tocoo()  # is refused later; some formats would pass for a dict
        guest = self._guest()
        if guest is not None:
            rows = guest.encode(X)
            if isinstance(rows, dict) and count_rows(rows) == 0:
                raise ValueError("X must hold at least one row; got none.")
            return rows
        if isinstance(X, Mapping):
            raise ValueError(
                "X must be an array for a backbone that is not a guest; got a "
                f"mapping of {sorted(X)}. Hand the model in as "
                "FrozenBackbone(model)."
            )
        if _are_texts(X):
            raise ValueError(
                "X must be numbers or a table for a backbone that reads no language; "
                f"got {len(X)} texts. Pass backbone=HFBackbone(...) with a language "
                "model, or the texts as a column of a DataFrame if they are categories."
            )
        return read_table(X) if self._takes_tables() else X

    def _check_columns(
        self, X: Any, rows: dict[str, AnyArray] | Table, *, reset: bool
    ) -> None:
        """Note the columns of what has some, or check that they are those of fit."""
        if isinstance(rows, Table) or getattr(X, "ndim", None) == 2:
            validate_data(self, X, reset=reset, skip_check_array=True)

    def _scaled_inputs(self, rows: ReadInputs) -> ArrayInputs:
        """Return inputs as the module takes them, standardised where scales exist."""
        if isinstance(rows, dict):
            gaps = getattr(self._guest(), "allows_missing", False)
            return {
                name: as_network_numbers(array, f"X[{name!r}]", allow_missing=gaps)
                for name, array in rows.items()
            }
        scaler = self.feature_scaler_
        if isinstance(rows, Table):
            return as_network_numbers(scaler.transform(rows), allow_missing=True)
        if self.takes_tokens_:
            return _as_tokens(rows)
        return as_network_numbers(rows if scaler is None else scaler.transform(rows))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_tables()
        tags.input_tags.three_d_array = not self._takes_tables()
        return tags

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


def _are_texts(X: Any) -> bool:
    """Tell whether X is a flat list or array of strings."""
    if isinstance(X, list | tuple):
        return len(X) > 0 and all(isinstance(value, str) for value in X)
    return (
        getattr(X, "ndim", None) == 1
        and len(X) > 0
        and isinstance(np.asarray(X)[0], str)
    )


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
