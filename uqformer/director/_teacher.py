"""The frozen model as a chain of Gaussian steps, to be learned from."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from uqformer.director._blocks import Inputs, find_blocks, first_tensor, with_state
from uqformer.director._chain import FeatureChain, cut_model, record_chain
from uqformer.director._cut import silenced
from uqformer.director._reading import AttentionHalf
from uqformer.director._variance import RedrawVariance, Variance

__all__ = ["Teacher", "TeacherSteps"]

LEAST_VARIANCE = 1e-4
"""No step is taken to be surer than this; the KL would weigh it beyond all others."""


@dataclass(frozen=True, slots=True, eq=False)
class TeacherSteps:
    """Steps that the teacher took on its noised chain, rows first.

    Parameters
    ----------
    states : Tensor of shape (N, L, T, D)
        Tokens that each step began with.
    means, variances : Tensor of shape (N, L, T, D)
        Of the Gaussian that the step draws from.
    real : Tensor of shape (N, T)
        Tokens that are not padding, boolean.
    visible : Tensor of shape (N, 1, T or 1, T), default=None
        Keys that a query may look at, boolean; None for all.
    """

    states: Tensor
    means: Tensor
    variances: Tensor
    real: Tensor
    visible: Tensor | None = None

    def __len__(self) -> int:
        return len(self.states)

    @staticmethod
    def joined(parts: "list[TeacherSteps]") -> "TeacherSteps":
        """Put the steps of several batches into one."""
        masks = [part.visible for part in parts]
        joined = None
        if any(mask is not None for mask in masks):
            # a batch without padding may have come without a mask
            n_queries = max(mask.shape[2] for mask in masks if mask is not None)
            joined = torch.cat(
                [
                    part.everywhere(n_queries)
                    if part.visible is None
                    else part.visible.expand(-1, -1, n_queries, -1)
                    for part in parts
                ]
            )  # (N, 1, T or 1, T)
        return TeacherSteps(
            torch.cat([part.states for part in parts]),
            torch.cat([part.means for part in parts]),
            torch.cat([part.variances for part in parts]),
            torch.cat([part.real for part in parts]),
            joined,
        )

    def everywhere(self, n_queries: int) -> Tensor:
        """Return a mask (N, 1, n_queries, T) that hides nothing."""
        size = (len(self), 1, n_queries, self.states.shape[2])
        return torch.ones(size, dtype=torch.bool, device=self.states.device)

    def __getitem__(self, rows: Tensor) -> "TeacherSteps":
        visible = None if self.visible is None else self.visible[rows]
        return TeacherSteps(
            self.states[rows],
            self.means[rows],
            self.variances[rows],
            self.real[rows],
            visible,
        )


class Teacher:
    r"""A frozen transformer, read as a chain of Gaussian transitions.

    Parameters
    ----------
    model : nn.Module
        A transformer in evaluation mode; its weights are never changed.

    x : Tensor or dict of str to Tensor
        A batch to cut the model on; a few rows are enough.

    variance : callable, default=None
        From an attention half and the number of its step to the variance (N, T, D).
        None takes ``RedrawVariance()``.

    n_kept_blocks : int, default=0
        Blocks in front that stay as they are, before the chain begins. The fewer are
        replaced, the closer a student is to the model, and the larger.

    Attributes
    ----------
    blocks : list of nn.Module
        The blocks of the chain.

    cuts : tuple of BlockCut
        Where they are cut.

    n_steps : int
        Steps of the chain, one for each of these blocks.

    Raises
    ------
    ValueError
        If the model cannot be cut, see `record_chain`, or no block is left to be cut.

    See Also
    --------
    RedrawVariance : Where the variance comes from by default.
    distil : Teach a student these transitions.

    Notes
    -----
    Step l draws :math:`z_l` from a normal distribution with mean :math:`m_l(z_{l-1})`
    and diagonal covariance :math:`s_l^2(z_{l-1})`. The mean is what the frozen model
    makes of the tokens: the rest of block l - 1, then the attention of block l, with
    their residuals. So the noiseless chain is the model.
    Variances below 1e-4 are raised to it.

    References
    ----------
    .. [1] M. C. Dao et al. (2026), "Diffusion-Inspired Reconfiguration of Transformers
       for Uncertainty Calibration", arXiv 2602.08920.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import Teacher
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=3).eval()
    >>> x = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    >>> teacher = Teacher(model, x)
    >>> chain = teacher.record(x)
    >>> mean, variance = teacher.transition(chain, chain.states[1], step=2)
    >>> torch.allclose(mean, chain.states[2], atol=1e-5)
    True
    """

    def __init__(
        self,
        model: nn.Module,
        x: Inputs,
        variance: Variance | None = None,
        *,
        n_kept_blocks: int = 0,
    ) -> None:
        self.model = model
        self.variance = RedrawVariance() if variance is None else variance
        self.cuts = cut_model(model, x, n_kept_blocks=n_kept_blocks)
        self.blocks = list(find_blocks(model)[1])[n_kept_blocks:]
        self._rests = [
            silenced(block, cut, share=True)
            for block, cut in zip(self.blocks[:-1], self.cuts[:-1], strict=True)
        ]

    @property
    def n_steps(self) -> int:
        """Steps of the chain, one for each of its blocks."""
        return len(self.blocks)

    def record(self, x: Inputs) -> FeatureChain:
        """Record the noiseless chain of a batch.

        Parameters
        ----------
        x : Tensor or dict of str to Tensor
            A batch.

        Returns
        -------
        chain : FeatureChain
            What `record_chain` returns.
        """
        return record_chain(self.model, x, self.cuts)

    def half(self, chain: FeatureChain, state: Tensor, step: int) -> AttentionHalf:
        """Bring tokens to where the attention of a step is asked.

        Parameters
        ----------
        chain : FeatureChain
            Of the batch that the tokens belong to.

        state : Tensor of shape (N, T, D)
            Tokens that the step begins with.

        step : int
            Number of the step, from 1.

        Returns
        -------
        half : AttentionHalf
            The attention half of the block, with the tokens that enter it.
        """
        if step > 1:
            rest = self._rests[step - 2]
            args, kwargs = with_state(chain.calls[step - 2], state, all_ask=True)
            state = first_tensor(rest(*args, **kwargs), type(rest).__name__)
        index = step - 1
        return AttentionHalf(
            self.blocks[index], self.cuts[index], state, chain.calls[index]
        )

    def transition(
        self, chain: FeatureChain, state: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        """Return the Gaussian that a step draws from.

        Gradients flow to `state`, and to what the variance was fitted with.

        Parameters
        ----------
        chain : FeatureChain
            Of the batch that the tokens belong to.

        state : Tensor of shape (N, T, D)
            Tokens that the step begins with.

        step : int
            Number of the step, from 1.

        Returns
        -------
        mean, variance : Tensor of shape (N, T, D)
            Of the tokens that the step ends with.

        Raises
        ------
        ValueError
            If there is no such step.
        """
        if not 1 <= step <= self.n_steps:
            raise ValueError(
                f"step must be between 1 and {self.n_steps}, the number of blocks; got "
                f"step={step}."
            )
        half = self.half(chain, state, step)
        variance = self.variance(half, step).clamp_min(LEAST_VARIANCE)
        return half.state + half.added(), variance

    def sample(self, chain: FeatureChain, generator: torch.Generator) -> TeacherSteps:
        """Walk the noised chain once, with noise of its own for each row.

        Parameters
        ----------
        chain : FeatureChain
            Of the batch to walk.

        generator : torch.Generator
            A CPU generator; it is advanced.

        Returns
        -------
        steps : TeacherSteps
            Where each step began, and the Gaussian it drew from.
        """
        with torch.no_grad():
            states, means, variances = [chain.states[0]], [], []
            for step in range(1, self.n_steps + 1):
                mean, variance = self.transition(chain, states[-1], step)
                noise = torch.randn(mean.shape, generator=generator).to(mean)
                states.append(mean + variance.sqrt() * noise)
                means.append(mean)
                variances.append(variance)
        visible = chain.visible
        if visible is not None:
            visible = visible.expand(len(states[0]), -1, -1, -1)  # (N, 1, T or 1, T)
        return TeacherSteps(
            torch.stack(states[:-1], dim=1),  # (N, L, T, D)
            torch.stack(means, dim=1),
            torch.stack(variances, dim=1),
            chain.real,
            visible,
        )
