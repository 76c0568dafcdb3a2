"""StochasticAttentionClassifier: probabilities, sets and doubts of a transformer."""

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if

from uqformer._typing import AnyArray, Float64Array, LayerSelection, NumberOfDraws
from uqformer._validation import StrOptions, check_confidence_level
from uqformer.backbones._adapters import GuestProtocol
from uqformer.backbones._make import BackboneSpec
from uqformer.estimators._class_calibration import Conformal
from uqformer.estimators._classifier_core import ClassifierCore
from uqformer.estimators._inputs import UserInputs
from uqformer.estimators._shares import AttentionSharesMixin
from uqformer.estimators._tables import CategoricalFeatures
from uqformer.predictive import ClassificationEnsemble, UncertaintyParts

__all__ = ["StochasticAttentionClassifier"]


def _has_sets(classifier: "StochasticAttentionClassifier") -> bool:
    """Say why there are no sets, where there are none."""
    if classifier.conformal is None:
        raise AttributeError(
            "predict_set needs conformal='lac', 'aps' or 'raps'; got conformal=None. "
            "Set it and fit again."
        )
    return True


class StochasticAttentionClassifier(
    ClassifierMixin, AttentionSharesMixin, ClassifierCore
):
    """Classification by a transformer whose attention is redrawn to show its doubt.

    ``fit`` trains the backbone, or takes a trained one, and keeps some rows away from
    it. At prediction every softmax row of attention is replaced by a normalised
    multinomial draw from itself, again and again; the passes form an ensemble whose
    probabilities are averaged [1]_ and brought to a temperature found on held-out
    rows. Conformal sets built on them hold the true class as often as they say.

    Parameters
    ----------
    backbone : str, callable, torch.nn.Module or guest, default="ft_transformer"
        What predicts: a name; a class or function ``(n_features, n_outputs) ->
        Module``; a module, of which a copy is trained; or a guest, such as a
        `FrozenBackbone`, which is only calibrated. It must map ``(n_samples, ...)`` to
        logits ``(n_samples, n_classes)``, also for two classes.

    backbone_params : dict, default=None
        Further keyword arguments for a backbone given by name or callable, such as
        ``{"d_token": 32}``.

    categorical_features : "auto", array-like or None, default="auto"
        Columns of a table that hold categories, by name, position or boolean mask, for
        "ft_transformer". "auto" takes those of text or of a categorical type; None
        takes none.

    n_members : int, default=50
        Stochastic passes behind each prediction. Acts at prediction: it may be changed
        after ``fit``.

    n_draws : int, "auto" or None, default="auto"
        Multinomial trials per attention row, the method's concentration: fewer spread
        wider. "auto" takes the fewest whose averaged probabilities have a log loss on
        the validation rows that is not measurably above the least, by one standard
        error over these rows: members then differ as far as it costs nothing. None is
        the exact softmax, whose members are all equal. Acts at prediction.

    layers : "all" or list of int or str, default="all"
        Which attention modules are redrawn, by position or name. Acts at prediction.

    class_weight : dict, "balanced" or None, default=None
        What the weight of a row is multiplied by, for its class: as if rows of that
        class were there so often. "balanced" makes all classes weigh the same.
        Probabilities, temperature and `n_draws` then are those of such rows; the
        coverage of sets is that of the rows as they come.

    calibration : "temperature" or None, default="temperature"
        How the averaged probabilities are calibrated: by one temperature, found on the
        validation rows, or not at all. A temperature never moves the first class, and
        so leaves accuracy as it is. Acts at prediction.

    conformal : {"lac", "aps", "raps"} or None, default="lac"
        Score behind ``predict_set``, see `ConformalSets`. None keeps no rows for it.

    calibration_fraction : float, default=0.2
        Share of the rows kept away from everything but the conformal sets.

    validation_fraction : float, default=0.1
        Share of the rows that stop the training, choose `n_draws` and the temperature.

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
    classes_ : ndarray of shape (n_classes,)
        Labels, sorted: the order of all columns. A guest whose `classes` are named
        has its columns brought into this order.

    module_ : torch.nn.Module
        The trained backbone, or the guest itself.

    n_draws_ : int or None
        Draws per attention row in use.

    temperature_ : float
        What logarithms of the mean probabilities are divided by; above 1 where they
        were too sure, and 1 without calibration.

    history_ : list of dict
        Cross-entropies by epoch, in nats; absent for a frozen backbone.

    fit_times_ : dict of str to float
        Seconds spent on ``"training"``, ``"search"`` of `n_draws`, ``"temperature"``
        and ``"conformal"`` calibration, where they were done.

    calibration_ : object
        The held-out rows, and what was found on them.

    seed_ : int
        The one seed, drawn from `random_state`.

    device_ : str
        Where the backbone ran in ``fit``.

    n_features_in_ : int
        Number of columns seen in ``fit``, where `X` was a table.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, where `X` had string names.

    See Also
    --------
    StochasticAttentionRegressor : The same for numbers.
    uqformer.calibration.CalibratedClassifier : Probabilities and sets around any
        classifier.

    Notes
    -----
    Rows of a prediction do not depend on one another: a member is one function, drawn
    once, and the same row gets the same numbers in any batch.

    Shuffled parts are stratified: each has its share of each class, as far as may be.
    Settings that act at prediction may be changed without a refit because the held-out
    rows are kept with the estimator: the first prediction after a change calibrates
    again, for as long as a prediction of those rows takes.

    References
    ----------
    .. [1] A. Yadav, T. A. Adebiyi, R. Zhang (2026), "Calibrating Scientific Foundation
       Models with Inference-Time Stochastic Attention", arXiv 2604.19530. The choice
       of `n_draws` by log loss, temperature and sets are not in the paper.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from uqformer import StochasticAttentionClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = StochasticAttentionClassifier(
    ...     max_epochs=20, n_members=8, n_draws=16, random_state=0
    ... )
    >>> model = model.fit(X, y)
    >>> model.predict_proba(X[:2]).shape
    (2, 3)
    >>> model.predict_set(X[:2], confidence_level=0.9).shape
    (2, 3)
    >>> doubt = model.predict_uncertainty(X[:2])
    >>> doubt.total.shape, doubt.epistemic.shape
    ((2,), (2,))
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **ClassifierCore._parameter_constraints,
        "class_weight": [dict, StrOptions({"balanced"}), None],
        "calibration": [StrOptions({"temperature"}), None],
        "conformal": [StrOptions({"lac", "aps", "raps"}), None],
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
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        calibration: Literal["temperature"] | None = "temperature",
        conformal: Conformal | None = "lac",
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
        self.class_weight = class_weight
        self.calibration = calibration
        self.conformal = conformal
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

    def predict(self, X: UserInputs) -> AnyArray:
        """Predict the most probable class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_pred : ndarray of shape (n_samples,)
            Labels from `classes_`; of equally probable classes the first.
        """
        self._check_ready()
        first = self._log_proba(self._validate_new(X)).argmax(axis=1)
        labels: AnyArray = self.classes_[first]
        return labels

    def predict_proba(self, X: UserInputs) -> Float64Array:
        """Predict calibrated probabilities: the members' average, at the temperature.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_proba : ndarray of shape (n_samples, n_classes)
            Columns in the order of `classes_`; rows sum to 1.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_log_proba(self, X: UserInputs) -> Float64Array:
        """Predict logarithms of the probabilities.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        y_log_proba : ndarray of shape (n_samples, n_classes)
            In nats. Before the temperature, probabilities below 1e-12 are read as that.
        """
        self._check_ready()
        return self._log_proba(self._validate_new(X))

    def decision_function(self, X: UserInputs) -> Float64Array:
        """Predict calibrated logits.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        logits : ndarray of shape (n_samples,) or (n_samples, n_classes)
            For two classes the log-odds of the second; else logarithms of the
            probabilities, of which the probabilities are the softmax.
        """
        log_proba = self.predict_log_proba(X)
        if log_proba.shape[1] > 2:
            return log_proba
        odds: Float64Array = log_proba[:, 1] - log_proba[:, 0]
        return odds

    @available_if(_has_sets)
    def predict_set(self, X: UserInputs, confidence_level: ArrayLike = 0.9) -> AnyArray:
        """Predict which classes may be the true one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        confidence_level : float or array-like of shape (n_levels,), default=0.9
            How often the true class should be in the set, strictly between 0 and 1.

        Returns
        -------
        sets : ndarray of bool, shape (n_samples, n_classes[, n_levels])
            True for the classes in the set, which always holds the most probable one;
            without `n_levels` for a single number.

        Raises
        ------
        InsufficientCalibrationError
            If a level asks for more calibration rows than were kept.
        """
        self._check_ready()
        check_confidence_level(confidence_level)
        proba = np.exp(self._log_proba(self._validate_new(X)))
        return self._conformal_sets().predict_set(proba, confidence_level)

    def predict_ensemble(self, X: UserInputs) -> ClassificationEnsemble:
        """Predict with every member and keep them all.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        ensemble : ClassificationEnsemble
            Bare members of shape ``(n_members, n_samples, n_classes)``. Neither the
            temperature nor anything conformal is in them.
        """
        self._check_ready()
        return self._ensemble(self._validate_new(X))

    def predict_uncertainty(self, X: UserInputs) -> UncertaintyParts:
        """Predict the doubt about each row, and where it comes from.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features) or mapping of str to array-like
            Inputs as in ``fit``.

        Returns
        -------
        uncertainty : UncertaintyParts
            ``total``, ``aleatoric`` and ``epistemic`` parts of shape ``(n_samples,)``,
            in nats, of the bare members, which are not all kept for it.
        """
        self._check_ready()
        return self._mixture(self._validate_new(X)).uncertainty()
