"""StochasticAttentionRegressor: point, spread, interval, quantiles of a transformer."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from uqformer._typing import Float64Array, LayerSelection, NumberOfDraws
from uqformer._validation import (
    StrOptions,
    check_confidence_level,
    check_probabilities,
)
from uqformer.backbones._adapters import GuestProtocol
from uqformer.backbones._make import BackboneSpec
from uqformer.calibration import ConcentrationResult
from uqformer.estimators._calibrated import Point
from uqformer.estimators._inputs import UserInputs
from uqformer.estimators._regressor_core import RegressorCore
from uqformer.estimators._shares import AttentionSharesMixin
from uqformer.estimators._tables import CategoricalFeatures
from uqformer.predictive import RegressionEnsemble

__all__ = ["StochasticAttentionRegressor"]


class StochasticAttentionRegressor(RegressorMixin, AttentionSharesMixin, RegressorCore):
    """Regression by a transformer whose attention is redrawn to show its uncertainty.

    ``fit`` trains the backbone, or takes a trained one, and keeps some rows away from
    it. At prediction every softmax row of attention is replaced by a normalised
    multinomial draw from itself, again and again; the passes form an ensemble whose
    spread was matched to the model's error on the held-out rows [1]_. Conformal
    intervals built on that spread cover what they say.

    Parameters
    ----------
    backbone : str, callable, torch.nn.Module or guest, default="ft_transformer"
        What predicts: a name; a class or function ``(n_features, n_outputs) ->
        Module``; a module, of which a copy is trained; or a guest, such as a
        `FrozenBackbone`, which is only calibrated. It must map ``(n_samples, ...)`` to
        ``(n_samples, n_outputs)``.

    backbone_params : dict, default=None
        Further keyword arguments for a backbone given by name or callable, such as
        ``{"d_token": 32}``.

    categorical_features : "auto", array-like or None, default="auto"
        Columns of a table that hold categories, by name, position or boolean mask, for
        "ft_transformer". "auto" takes those of text or of a categorical type; None
        takes none.

    n_members : int, default=50
        Stochastic passes behind each spread. Acts at prediction: it may be changed
        after ``fit``.

    n_draws : int, "auto" or None, default="auto"
        Multinomial trials per attention row, the method's concentration: fewer spread
        wider. "auto" matches spread to error on the validation rows; None is the exact
        softmax, whose members are all equal. Acts at prediction.

    layers : "all" or list of int or str, default="all"
        Which attention modules are redrawn, by position or name. Acts at prediction.

    point : {"exact", "mean"}, default="exact"
        What ``predict`` returns: the model's own exact pass, or the mean of the
        members. Acts at prediction.

    interval : {"conformal", "ensemble"}, default="conformal"
        Where intervals and quantiles come from: conformal prediction around the point,
        as wide as the spread tells where it tells anything; or the members' own
        quantiles, which promise no coverage. "ensemble" needs no calibration rows.

    calibration_fraction : float, default=0.2
        Share of the rows kept away from everything but the conformal quantile.

    validation_fraction : float, default=0.1
        Share of the rows that stop the training, choose `n_draws` and decide whether
        widths follow the spread.

    shuffle : bool, default=True
        Whether rows are shuffled before they are parted. False is for a series: the
        last rows calibrate, those before them validate, and the first train.

    embargo : int, default=0
        With ``shuffle=False``, rows left out between two parts. Windows share no step
        from ``ceil((context_length + horizon) / step) - 1`` on.

    max_epochs : int, default=300
        Most passes over the training rows.

    learning_rate : float, default=1e-3
        Of AdamW, after a warm-up of five epochs.

    weight_decay : float, default=1e-4
        Of AdamW.

    batch_size : int or "auto", default="auto"
        Rows in a training step. "auto" takes 32 to 256, growing with the table.

    predict_batch_size : int, default=1024
        Rows in a batch at prediction; bounds memory and changes nothing else.

    n_iter_no_change : int, default=30
        Epochs without a better validation loss after which training stops.

    device : str, default="auto"
        Where the backbone runs, such as "cpu" or "cuda:1". "auto" takes an accelerator
        if there is one. A frozen backbone stays where it is.

    random_state : int, RandomState instance or None, default=None
        Source of the one seed behind weights, row order, dropout and draws.

    verbose : int, default=0
        Above 0, progress bars are shown.

    Attributes
    ----------
    module_ : torch.nn.Module
        The trained backbone, or the guest itself.

    n_draws_ : int or None
        Draws per attention row in use.

    search_ : ConcentrationResult
        How ``n_draws="auto"`` was found, or would be, with an interval for it.

    residual_std_ : float or ndarray of shape (n_outputs,)
        Root mean square error of the exact pass on rows kept away from training, in
        units of `y`.

    history_ : list of dict
        Losses by epoch, in units of the scaled targets; absent for a frozen backbone.

    fit_times_ : dict of str to float
        Seconds spent on ``"training"``, ``"search"`` of `n_draws` and ``"conformal"``
        calibration, where they were done.

    calibration_ : object
        The held-out rows, and what was found on them.

    seed_ : int
        The one seed, drawn from `random_state`.

    device_ : str
        Where the backbone ran in ``fit``.

    n_features_in_ : int
        Number of columns seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, where `X` had string names.

    n_outputs_ : int
        Number of targets.

    See Also
    --------
    uqformer.attention.stochastic_attention : The same redraw for any torch model.
    uqformer.scorers.get_scorer : Scorers of intervals and ensembles for searches.

    Notes
    -----
    Rows of a prediction do not depend on one another: a member is one function, drawn
    once, and the same row gets the same numbers in any batch.

    The redraw is the paper's; the objective that chooses `n_draws` is a reconstruction
    of it. The conformal layer is not in the paper. Settings that act at prediction may
    be changed without a refit because the held-out rows are kept with the estimator:
    the first prediction after a change calibrates again, for as long as a prediction
    of those rows takes.

    References
    ----------
    .. [1] A. Yadav, T. A. Adebiyi, R. Zhang (2026), "Calibrating Scientific Foundation
       Models with Inference-Time Stochastic Attention", arXiv 2604.19530.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from uqformer import StochasticAttentionRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = StochasticAttentionRegressor(
    ...     max_epochs=5, n_members=8, n_draws=16, random_state=0
    ... )
    >>> model = model.fit(X[:300], y[:300])
    >>> model.predict(X[300:]).shape
    (142,)
    >>> model.predict_interval(X[300:], confidence_level=0.9).shape
    (142, 2)
    >>> model.predict_quantiles(X[300:], [0.1, 0.5, 0.9]).shape
    (142, 3)
    >>> point, std = model.predict(X[300:], return_std=True)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **RegressorCore._parameter_constraints,
        "point": [StrOptions({"exact", "mean"})],
        "interval": [StrOptions({"conformal", "ensemble"})],
    }

    def __init__(
        self,
        backbone: BackboneSpec | GuestProtocol = "ft_transformer",
        *,
        backbone_params: dict[str, Any] | None = None,
        categorical_features: CategoricalFeatures = "auto",
        n_members: int = 50,
        n_draws: NumberOfDraws = "auto",
        layers: LayerSelection = "all",
        point: Point = "exact",
        interval: Literal["conformal", "ensemble"] = "conformal",
        calibration_fraction: float = 0.2,
        validation_fraction: float = 0.1,
        shuffle: bool = True,
        embargo: int = 0,
        max_epochs: int = 300,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        batch_size: int | Literal["auto"] = "auto",
        predict_batch_size: int = 1024,
        n_iter_no_change: int = 30,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.backbone = backbone
        self.backbone_params = backbone_params
        self.categorical_features = categorical_features
        self.n_members = n_members
        self.n_draws = n_draws
        self.layers = layers
        self.point = point
        self.interval = interval
        self.calibration_fraction = calibration_fraction
        self.validation_fraction = validation_fraction
        self.shuffle = shuffle
        self.embargo = embargo
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.predict_batch_size = predict_batch_size
        self.n_iter_no_change = n_iter_no_change
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @property
    def search_(self) -> ConcentrationResult:
        """Search for the number of draws whose spread matches the error."""
        self._check_ready()
        return self.calibration_.search(self._passes(self.module_))

    def predict(
        self, X: UserInputs, return_std: bool = False
    ) -> Float64Array | tuple[Float64Array, Float64Array]:
        """Predict the point, and the spread about it if asked.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        return_std : bool, default=False
            Whether to return the spread too. The keyword also passes through a
            `Pipeline`.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Point predictions, in units of `y`.

        y_std : ndarray of the same shape
            Spread, see `predict_std`; only with ``return_std=True``.
        """
        self._check_ready()
        inputs = self._validate_new(X)
        if not return_std and self.point == "exact":
            return self._in_units(self._passes(self.module_).exact(inputs))
        point, spread = self._point_and_spread(inputs)
        y_pred = self._in_units(point)
        return (y_pred, self._stretched(spread)) if return_std else y_pred

    def predict_std(
        self, X: UserInputs, *, method: Literal["members", "moments"] = "members"
    ) -> Float64Array:
        """Predict how far the members lie from the point.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        method : {"members", "moments"}, default="members"
            Run the members; or derive their variance from one exact pass, by
            `redraw_moments`. That takes a backward pass for each output in place of
            `n_members` passes and is free of Monte Carlo noise, but right only to
            first order: good from about 16 draws, and off by a quarter or more with
            few. Intervals always go by the members.

        Returns
        -------
        y_std : ndarray of shape (n_samples,) or (n_samples, n_outputs)
            Root mean square distance of the members from the point prediction, in
            units of `y`; with ``point="mean"`` that is their standard deviation.
            Moments do not tell the two apart.

        Raises
        ------
        AttentionNotRedrawnError
            With moments, if the attention of a guest is computed where no gradient
            reaches it.
        """
        self._check_ready()
        if method not in ("members", "moments"):
            raise ValueError(
                f"method must be 'members' or 'moments'; got method={method!r}."
            )
        inputs = self._validate_new(X)
        if method == "moments":
            return self._stretched(self._derived_spread(inputs))
        return self._stretched(self._point_and_spread(inputs)[1])

    def predict_interval(
        self, X: UserInputs, confidence_level: ArrayLike = 0.9
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
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        quantiles : float or array-like of shape (n_quantiles,)
            Each strictly between 0 and 1, in any order.

        Returns
        -------
        y_quantiles : ndarray of shape (n_samples, n_quantiles[, n_outputs])
            In units of `y` and in the order of `quantiles`; without `n_quantiles` for a
            single number. The ends of an interval of level c are the quantiles
            (1 - c) / 2 and (1 + c) / 2.

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
        """Predict with every member and keep them all.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Inputs as in ``fit``.

        Returns
        -------
        ensemble : RegressionEnsemble
            Bare members of shape ``(n_members, n_samples[, n_outputs])``, in units of
            `y`. Nothing conformal is in them.
        """
        self._check_ready()
        return self._ensemble(self._validate_new(X))
