"""DirectorRegressor: one learned step for all blocks, walked as a redrawn chain."""

from typing import Any, ClassVar, Literal

import numpy as np

from uqformer._validation import StrOptions
from uqformer.backbones._adapters import GuestProtocol
from uqformer.backbones._make import BackboneSpec
from uqformer.estimators._calibrated import Point
from uqformer.estimators._director_core import DirectorCore
from uqformer.estimators._director_distil import LossName, VarianceName
from uqformer.estimators._director_numbers import ChainRegressor
from uqformer.estimators._tables import CategoricalFeatures

__all__ = ["DirectorRegressor"]


class DirectorRegressor(ChainRegressor):
    """Regression by a transformer recompiled into one learned, redrawn step.

    ``fit`` trains the backbone, or takes a trained one, and reads it as a chain of
    Gaussian steps that each end in attention. A student of one block learns all of
    them, and to predict well from where its own chain ends [1]_. At prediction chains
    are walked with other noise, and once by the means alone: that is the point, and
    conformal intervals follow the chains' spread about it where it tells anything.

    Parameters
    ----------
    backbone : str, callable, torch.nn.Module or guest, default="ft_transformer"
        What is distilled: a name; a class or function ``(n_features, n_outputs) ->
        Module``; a module, of which a copy is trained; or a guest, such as a
        `FrozenBackbone`, which is left as it is. It must map ``(n_samples, ...)`` to
        ``(n_samples, n_outputs)``, through blocks that follow one another.

    backbone_params : dict, default=None
        Further keyword arguments for a backbone given by name or callable, such as
        ``{"d_token": 32}``.

    categorical_features : "auto", array-like or None, default="auto"
        Columns of a table that hold categories, by name, position or boolean mask, for
        "ft_transformer". "auto" takes those of text or of a categorical type; None
        takes none.

    n_chains : int, default=10
        Chains behind each prediction. Acts at prediction: it may be changed after
        ``fit``.

    variance : {"attention", "sgpa", "kep"}, default="attention"
        How much a step of the teacher varies: as redrawn attention would, see
        `RedrawVariance`; or as a Gaussian process that ``fit`` fits, see
        `SparseGPVariance` and `KernelEigenVariance`.

    n_draws : int or "auto", default="auto"
        Draws behind ``variance="attention"``: fewer spread wider. "auto" takes the
        number whose noised chains of the teacher predict the validation rows best.

    loss : {"kl", "mse"}, default="kl"
        How the student matches the teacher's steps: by the divergence of Gaussians, or
        by the squared error of their means alone.

    performance_weight : float or "auto", default="auto"
        Weight of the squared error at the end of the student's own chain, against the
        matching of steps. "auto" tries three, for a fifth of the epochs each, and
        takes the one of least validation loss.

    soft_labels : float, default=0.0
        Share of the backbone's own predictions in the targets that the student is
        taught; the rest is `y`. They are less noisy than `y`, but helped on none of
        our sets.

    student_share : float, default=0.5
        Parameters that the one step may have, as a share of those of the blocks it
        replaces.

    n_kept_blocks : int, default=0
        Blocks of the backbone in front that stay as they are, with its embedding; the
        student replaces those behind them. The more stay, the closer the student is to
        its backbone, and the larger. `student_share` is of the blocks replaced.

    student_dropout : float, default=0.1
        Dropout in the one step, while it is taught.

    head : {"trained", "frozen"}, default="trained"
        Whether copies of embedding and head are trained along, or the backbone's own
        are used as they are.

    interval : {"conformal", "ensemble"}, default="conformal"
        Where intervals and quantiles come from: conformal prediction around the point,
        as wide as the spread tells where it tells anything; or the chains' own
        quantiles, which promise no coverage. "ensemble" needs no calibration rows.

    calibration_fraction : float, default=0.2
        Share of the rows kept away from everything but the conformal quantile.

    validation_fraction : float, default=0.1
        Share of the rows that stop both trainings, choose `n_draws` and the weight,
        and decide whether widths follow the spread.

    shuffle : bool, default=True
        Whether rows are shuffled before they are parted. False is for a series: the
        last rows calibrate, those before them validate, and the first train.

    embargo : int, default=0
        With ``shuffle=False``, rows left out between two parts. Windows share no step
        from ``ceil((context_length + horizon) / step) - 1`` on.

    n_steps : int, default=None
        Steps of a chain, at most one for each block, which None takes. Fewer are
        larger, and faster; the student was not taught them.

    max_epochs : int, default=300
        Most passes of the backbone's training over the training rows.

    learning_rate : float, default=1e-3
        Of AdamW, in the backbone's training.

    weight_decay : float, default=1e-4
        Of AdamW, in the backbone's training.

    batch_size : int or "auto", default="auto"
        Rows in a step of both trainings. "auto" takes 32 to 256, growing with the
        table.

    n_iter_no_change : int, default=30
        Epochs without a better validation loss after which either training stops, the
        distillation after a third of its epochs at the earliest.

    distil_epochs : int or "auto", default="auto"
        Most passes of the distillation over the training rows. "auto" takes 40, and on
        small sets up to 400, to make 3000 steps.

    distil_learning_rate : float, default=2e-3
        Of AdamW, in the distillation.

    mixed_precision : bool, default=False
        Whether the student's large products are taken in bfloat16 while it is taught:
        faster on a GPU, and on a CPU that knows the type if tokens are wide (384: two
        thirds of the time; 64: more than twice).

    predict_batch_size : int, default=1024
        Rows, times chains, in a batch at prediction; bounds memory and changes nothing
        else.

    device : str, default="auto"
        Where backbone and student run, such as "cpu" or "cuda:1". "auto" takes an
        accelerator if there is one. A frozen backbone stays where it is.

    random_state : int, RandomState instance or None, default=None
        Source of the one seed behind weights, row order, dropout and noise.

    verbose : int, default=0
        Above 0, progress bars are shown.

    Attributes
    ----------
    module_ : Student
        The student, which predicts.

    backbone_ : torch.nn.Module
        The trained backbone, or the guest itself: the teacher.

    n_draws_ : int or None
        Draws behind the teacher's variance; None where it was fitted.

    performance_weight_ : float
        Weight of the squared error in use.

    n_steps_ : int
        Steps of a chain.

    n_parameters_ : dict of str to int
        Numbers in the ``"student"`` and in the ``"backbone"``, whole.

    residual_std_ : float or ndarray of shape (n_outputs,)
        Root mean square error of a walk by the means alone, on rows kept away from
        training, in units of `y`.

    history_ : list of dict
        Losses of the distillation by epoch, see `distil`.

    backbone_history_ : list of dict
        Losses of the backbone's training by epoch; absent for a frozen one.

    fit_times_ : dict of str to float
        Seconds spent on ``"training"``, ``"variance"``, ``"weight"``,
        ``"distillation"`` and ``"conformal"``, where they were done.

    findings_ : object
        What the distillation found, with the validation loss of each weight tried.

    calibration_ : object
        The held-out rows, and what was found on them.

    seed_ : int
        The one seed, drawn from `random_state`.

    device_ : str
        Where the student ran in ``fit``.

    n_features_in_ : int
        Number of columns seen in ``fit``.

    feature_names_in_ : ndarray of shape (n_features,)
        Names of the columns, where `X` had string names.

    n_outputs_ : int
        Number of targets.

    See Also
    --------
    StochasticAttentionRegressor : Redraws the backbone's attention, without training.
    uqformer.director.distil : What ``fit`` runs, for any torch model.

    Notes
    -----
    The paper treats classification, and in our trials a student predicted numbers less
    well than its backbone; see the user guide. Here the loss at the end of a chain is
    the squared error, and `n_draws` is chosen by the continuous ranked probability
    score of the teacher's noised chains, since the squared error of their mean would
    always ask for the least spread.

    Sample weights count in the squared error; the matching of steps counts all rows
    alike.

    References
    ----------
    .. [1] M. C. Dao et al. (2026), "Diffusion-Inspired Reconfiguration of Transformers
       for Uncertainty Calibration", arXiv 2602.08920. What of it is reconstructed is
       told in the user guide; regression and conformal intervals are not in the paper.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from uqformer import DirectorRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = DirectorRegressor(
    ...     max_epochs=5, distil_epochs=3, performance_weight=10.0, random_state=0
    ... )
    >>> model = model.fit(X[:300], y[:300])
    >>> model.predict(X[300:]).shape
    (142,)
    >>> model.predict_interval(X[300:], confidence_level=0.9).shape
    (142, 2)
    """

    _parameter_constraints: dict[str, list[Any]] = {
        **DirectorCore._parameter_constraints,
        "interval": [StrOptions({"conformal", "ensemble"})],
    }

    point: ClassVar[Point] = "exact"
    """A walk without noise: nearer to the truth in our trials than the chains' mean."""

    def __init__(
        self,
        backbone: BackboneSpec | GuestProtocol = "ft_transformer",
        *,
        backbone_params: dict[str, Any] | None = None,
        categorical_features: CategoricalFeatures = "auto",
        n_chains: int = 10,
        variance: VarianceName = "attention",
        n_draws: int | Literal["auto"] = "auto",
        loss: LossName = "kl",
        performance_weight: float | Literal["auto"] = "auto",
        soft_labels: float = 0.0,
        student_share: float = 0.5,
        n_kept_blocks: int = 0,
        student_dropout: float = 0.1,
        head: Literal["trained", "frozen"] = "trained",
        interval: Literal["conformal", "ensemble"] = "conformal",
        calibration_fraction: float = 0.2,
        validation_fraction: float = 0.1,
        shuffle: bool = True,
        embargo: int = 0,
        n_steps: int | None = None,
        max_epochs: int = 300,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        batch_size: int | Literal["auto"] = "auto",
        n_iter_no_change: int = 30,
        distil_epochs: int | Literal["auto"] = "auto",
        distil_learning_rate: float = 2e-3,
        mixed_precision: bool = False,
        predict_batch_size: int = 1024,
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.backbone = backbone
        self.backbone_params = backbone_params
        self.categorical_features = categorical_features
        self.n_chains = n_chains
        self.variance = variance
        self.n_draws = n_draws
        self.loss = loss
        self.performance_weight = performance_weight
        self.soft_labels = soft_labels
        self.student_share = student_share
        self.n_kept_blocks = n_kept_blocks
        self.student_dropout = student_dropout
        self.head = head
        self.interval = interval
        self.calibration_fraction = calibration_fraction
        self.validation_fraction = validation_fraction
        self.shuffle = shuffle
        self.embargo = embargo
        self.n_steps = n_steps
        self.max_epochs = max_epochs
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.n_iter_no_change = n_iter_no_change
        self.distil_epochs = distil_epochs
        self.distil_learning_rate = distil_learning_rate
        self.mixed_precision = mixed_precision
        self.predict_batch_size = predict_batch_size
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
