"""ForecastBackbone: pretrained forecasters, from windows of a series to its future."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter, signature
from math import ceil
from typing import Any

import numpy as np
from torch import Tensor, nn

from uqformer._typing import AnyArray
from uqformer.backbones._guest import Guest, GuestModule

__all__ = ["ForecastBackbone"]

_INPUT_NAMES = ("past_values", "context")
_HORIZON_NAMES = ("prediction_length", "horizon_length")


class ForecastBackbone(Guest):
    """A pretrained forecaster, from windows of a series to the steps that follow.

    The forecaster scales its windows itself, and is used as it is: ``fit`` only
    calibrates. A forecaster of single series is given each channel as a series.

    Parameters
    ----------
    model : torch.nn.Module
        PatchTST, PatchTSMixer, TimesFM or TimesFM 2.5 of transformers, Chronos-Bolt or
        Chronos-2, or a module that takes windows of shape (n_samples, time) and gives
        (n_samples, horizon), with an axis for quantiles after the first or at the end
        if it has such.

    horizon : int, default=None
        Steps to predict, the first ones of what the model gives. None takes all.

    context_length : int, default=None
        Last steps of each window that the model sees. None takes whole windows, which
        must then be no longer than what the model takes.

    quantiles : sequence of float, default=None
        Levels of the model's quantiles, in order, 0.5 among them. None takes those that
        its config names.

    Attributes
    ----------
    trains : bool
        False: nothing is trained.

    Raises
    ------
    TypeError
        If `model` is not a module, or needs more inputs than a window.
    ValueError
        If `horizon` or `context_length` is below 1, or more than the model has, or
        0.5 is not among `quantiles`.

    See Also
    --------
    HFBackbone : Texts and pictures.
    FrozenBackbone : Any other module, used as it is.

    Notes
    -----
    The outputs are ``(n_samples, horizon * channels)``, step by step with the channels
    of a step side by side, as in ``y.reshape(len(y), -1)`` of targets
    ``(n_samples, horizon, channels)``. They are what the model calls its point or mean
    forecast, or the median of its quantiles.

    TimesFM 2.5 keeps forecasts positive if no value of the *batch* is negative [1]_;
    here this goes row by row, so that a forecast does not depend on its neighbours.

    References
    ----------
    .. [1] A. Das, W. Kong, R. Sen and Y. Zhou (2024), "A decoder-only foundation model
       for time-series forecasting", International Conference on Machine Learning.

    Examples
    --------
    >>> import numpy as np
    >>> from transformers import PatchTSTConfig, PatchTSTForPrediction
    >>> from uqformer.backbones import ForecastBackbone
    >>> config = PatchTSTConfig(
    ...     num_input_channels=1, context_length=16, prediction_length=4,
    ...     patch_length=4, patch_stride=4, d_model=8, num_hidden_layers=1,
    ...     num_attention_heads=2, ffn_dim=8)
    >>> backbone = ForecastBackbone(PatchTSTForPrediction(config))
    >>> backbone.encode(np.zeros((3, 16)))["past_values"].shape
    (3, 16)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        horizon: int | None = None,
        context_length: int | None = None,
        quantiles: Sequence[float] | None = None,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(
                f"ForecastBackbone takes a torch.nn.Module; got {type(model).__name__}."
                " Pass the model itself, already loaded."
            )
        super().__init__(train=None, classes=None)
        self.model = model
        self.horizon = horizon
        self.context_length = context_length
        self.quantiles = quantiles
        self._input_name = _find_input(model)
        _check_range("horizon", horizon, self._limit_of_horizon())
        _check_range("context_length", context_length, self._limit_of_context())
        if quantiles is not None:
            _median_place(quantiles)

    def encode(self, X: Any) -> dict[str, AnyArray]:
        """Check windows, and keep of each what the model sees.

        Parameters
        ----------
        X : array-like of shape (n_samples, time) or (n_samples, time, channels)
            Windows, finite, in time's order; or a mapping that holds them under the
            name by which the model takes them.

        Returns
        -------
        arrays : dict of str to ndarray
            The windows as float32, under the name by which the model takes them.

        Raises
        ------
        ValueError
            If windows have the wrong shape or length or are not finite.
        TypeError
            If they are not numbers.
        """
        if isinstance(X, Mapping):
            if list(X) != [self._input_name]:
                raise ValueError(
                    f"X as a mapping must hold {self._input_name!r} alone; got "
                    f"{list(X)}."
                )
            X = X[self._input_name]
        windows = np.asarray(X)
        if windows.dtype.kind not in "iuf":
            raise TypeError(
                "Windows must be an array of numbers, all equally long; got dtype="
                f"{windows.dtype} and shape {windows.shape}."
            )
        if windows.ndim not in (2, 3) or windows.size == 0:
            raise ValueError(
                "Windows must have shape (n_samples, time) or (n_samples, time, "
                f"channels); got {windows.shape}."
            )
        if self.context_length is not None:
            windows = windows[:, -self.context_length :]
        self._check_windows(windows)
        return {self._input_name: windows.astype(np.float32)}

    def build(self, n_outputs: int) -> nn.Module:
        """Make the module that is run.

        Parameters
        ----------
        n_outputs : int
            Steps of the horizon, times channels.

        Returns
        -------
        module : torch.nn.Module
            Called with what `encode` returns, as tensors by keyword; gives
            ``(n_samples, n_outputs)``.
        """
        read = partial(
            read_forecast,
            reading=Reading(
                self._input_name,
                self.horizon,
                _known_channels(self.model),
                None if self.quantiles is None else tuple(self.quantiles),
            ),
        )
        return GuestModule(
            self.model,
            read,
            n_outputs=n_outputs,
            is_frozen=True,
            way_out="Targets must hold horizon * channels numbers a row; set horizon "
            "to the steps that they hold.",
        )

    def _check_windows(self, windows: AnyArray) -> None:
        n_steps, limit = windows.shape[1], self._limit_of_context()
        n_channels = windows.shape[2] if windows.ndim == 3 else 1
        known = _known_channels(self.model)
        if limit is not None and n_steps > limit:
            raise ValueError(
                f"Windows must be no longer than the {limit} steps that the model "
                f"takes; got {n_steps}. Pass context_length={limit} to show it the "
                "last ones."
            )
        if known is not None and (n_channels, n_steps) != (known, limit):
            raise ValueError(
                f"{type(self.model).__name__} takes windows of {limit} steps and "
                f"{known} channels; got {n_steps} and {n_channels}."
            )
        if not np.isfinite(windows).all():
            raise ValueError(
                "Windows must be finite; got NaN or infinity in row "
                f"{np.argwhere(~np.isfinite(windows))[0, 0]}. Fill the gaps first."
            )

    def _limit_of_horizon(self) -> int | None:
        if "num_output_patches" in signature(self.model.forward).parameters:
            return None  # as many patches as are asked for
        limits = [_setting(self.model, name) for name in _HORIZON_NAMES]
        return next((int(limit) for limit in limits if limit is not None), None)

    def _limit_of_context(self) -> int | None:
        limit = _setting(self.model, "context_length")
        return None if limit is None else int(limit)

    def __repr__(self) -> str:
        return f"ForecastBackbone({type(self.model).__name__}, horizon={self.horizon})"


@dataclass(frozen=True, slots=True)
class Reading:
    """How windows are given to a model, and what is read from its forecast."""

    input_name: str
    horizon: int | None
    n_channels: int | None
    quantiles: tuple[float, ...] | None


def read_forecast(model: Any, inputs: dict[str, Tensor], *, reading: Reading) -> Tensor:
    """Run a forecaster on windows (N, S[, channels]), give (N, horizon * channels)."""
    windows = inputs[reading.input_name]
    if windows.ndim == 2:
        windows = windows[..., None]  # (N, S, channels)
    n_rows = len(windows)
    if reading.n_channels is None:
        series = windows.transpose(1, 2).flatten(0, 1)  # (N * channels, S)
        point = _run(model, series, reading)  # (N * channels, horizon)
        point = _keep_positive(model, series, point)
        point = point.unflatten(0, (n_rows, -1)).transpose(1, 2)
    else:
        point = _run(model, windows, reading)  # (N, horizon, channels)
    return point[:, : reading.horizon].flatten(1)  # (N, horizon * channels)


def _run(model: Any, windows: Tensor, reading: Reading) -> Tensor:
    known = signature(model.forward).parameters
    options: dict[str, Any] = {}
    if "truncate_negative" in known:
        options["truncate_negative"] = False  # it would look at the whole batch
    if "num_output_patches" in known and reading.horizon is not None:
        patch = _setting(model, "output_patch_size")
        options["num_output_patches"] = ceil(reading.horizon / patch)
    output = model(**{reading.input_name: windows}, **options)
    return _point(model, output, reading)


def _point(model: Any, output: Any, reading: Reading) -> Tensor:
    """Pick the point forecast, (N, horizon) or (N, horizon, channels)."""
    mean = getattr(output, "mean_predictions", None)
    if isinstance(mean, Tensor):
        return mean
    predictions = getattr(output, "prediction_outputs", None)
    if isinstance(predictions, tuple):  # parameters of a distribution
        distribution = model.distribution_output.distribution(
            predictions, loc=output.loc, scale=output.scale
        )
        expected: Tensor = distribution.mean
        return expected
    if predictions is None:
        predictions = getattr(output, "quantile_preds", output)
        if isinstance(predictions, tuple):
            predictions = predictions[0]
    if not isinstance(predictions, Tensor):
        raise TypeError(
            f"{type(model).__name__} gives {type(output).__name__}, of which no "
            "forecast can be read. Wrap it in a module that returns one as a Tensor."
        )
    is_quantiles = reading.n_channels is None and predictions.ndim == 3
    return _median(model, predictions, reading) if is_quantiles else predictions


def _median(model: nn.Module, predictions: Tensor, reading: Reading) -> Tensor:
    """Pick the median of quantiles, which stand on the second or the last axis."""
    levels = reading.quantiles or _setting(model, "quantiles")
    if levels is None:
        raise ValueError(
            f"{type(model).__name__} gives an output of shape "
            f"{tuple(predictions.shape)}; pass quantiles=[...], the levels of its "
            "quantiles, to have their median."
        )
    axes = [axis for axis in (1, 2) if predictions.shape[axis] == len(levels)]
    if not axes:
        raise ValueError(
            f"quantiles must name all levels of the model; got {len(levels)} levels "
            f"for an output of shape {tuple(predictions.shape)}."
        )
    return predictions.select(axes[0], _median_place(levels))


def _median_place(levels: Sequence[float]) -> int:
    for place, level in enumerate(levels):
        if abs(level - 0.5) < 1e-6:
            return place
    raise ValueError(f"quantiles must have 0.5 among them; got {list(levels)}.")


def _keep_positive(model: Any, series: Tensor, point: Tensor) -> Tensor:
    """Cut at 0 where a model is made so, for series (N, S) that never are below."""
    if not getattr(getattr(model, "config", None), "infer_is_positive", False):
        return point
    is_positive = series.amin(dim=1, keepdim=True) >= 0  # (N, 1)
    return point.clamp_min(0).where(is_positive, point)


def _find_input(model: nn.Module) -> str:
    """Return the name of a forecaster's only input without a default."""
    parameters = signature(model.forward).parameters
    named = [name for name in _INPUT_NAMES if name in parameters]
    first = named[0] if named else next(iter(parameters), "")
    kinds = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.default is Parameter.empty
        and parameter.kind not in kinds
        and name != first
    ]
    if needed or not first:
        raise TypeError(
            "ForecastBackbone takes a forecaster that needs a window and nothing else; "
            f"{type(model).__name__} needs {needed} too. Wrap it in a module that adds "
            "them."
        )
    return first


def _known_channels(model: nn.Module) -> int | None:
    """Count the channels of a model that sees them together; None for single series."""
    n_channels = _setting(model, "num_input_channels")
    return None if n_channels is None else int(n_channels)


def _setting(model: nn.Module, name: str) -> Any:
    """Look up a number in a model's config, or in the part that Chronos keeps apart."""
    config = getattr(model, "config", None)
    own = getattr(config, name, None)
    chronos = getattr(config, "chronos_config", None) or {}
    return own if own is not None else chronos.get(name)


def _check_range(name: str, value: int | None, limit: int | None) -> None:
    if value is not None and (value < 1 or (limit is not None and value > limit)):
        most = "" if limit is None else f" and at most {limit}, as the model has"
        raise ValueError(f"{name} must be at least 1{most}; got {name}={value}.")
