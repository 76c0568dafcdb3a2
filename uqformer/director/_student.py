"""The learned model: embedding, one transition walked many times, head."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from uqformer.director._blocks import Inputs, real_tokens
from uqformer.director._rollout import Noise, n_steps_or_own, shared_noise, walk
from uqformer.director._shell import Shell
from uqformer.director._teacher import Teacher

__all__ = ["Student", "take_rows", "tile_rows"]


class Student(nn.Module):
    """A transformer whose blocks are replaced by one learned Gaussian transition.

    Its embedding and its head are the teacher's: copies that are trained along, or the
    teacher's own, left as they are. Blocks that the teacher keeps in front stay as they
    are, and then so does the embedding.

    Parameters
    ----------
    teacher : Teacher
        The frozen model and where it is cut.

    transition : nn.Module
        Such as `TransitionDiT`, with the teacher's number of steps.

    freeze : bool, default=False
        Whether embedding and head are the teacher's own and stay as they are; moving
        the student to a device then moves them. Training copies of them along gave the
        better predictions in our trials.

    Attributes
    ----------
    n_params : int
        Numbers in the student: transition, embedding and head.

    Raises
    ------
    ValueError
        If the transition was made for another number of steps.

    See Also
    --------
    distil : Train it.
    rollout : The walk between embedding and head.

    Examples
    --------
    >>> import torch
    >>> from uqformer.director import Student, Teacher, TransitionDiT
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    >>> model = torch.nn.TransformerEncoder(layer, num_layers=3).eval()
    >>> x = torch.linspace(-1, 1, 80).reshape(2, 5, 8)
    >>> student = Student(Teacher(model, x), TransitionDiT(8, n_steps=3, n_heads=2))
    >>> with torch.no_grad():
    ...     student.members(x, seeds=[0, 1, 2]).shape
    torch.Size([3, 2, 5, 8])
    """

    def __init__(
        self, teacher: Teacher, transition: nn.Module, *, freeze: bool = False
    ) -> None:
        super().__init__()
        if transition.n_steps != teacher.n_steps:
            raise ValueError(
                f"The transition must have the teacher's {teacher.n_steps} steps; got "
                f"n_steps={transition.n_steps}."
            )
        self.freeze = freeze
        self.shell = Shell(teacher.model, teacher.cuts, share=freeze)
        self.transition = transition
        if not freeze:
            for parameter in self.shell.own_parameters():
                parameter.requires_grad_(True)

    @property
    def n_params(self) -> int:
        """Numbers in the student: transition, embedding and head."""
        return sum(parameter.numel() for parameter in self.parameters())

    def trained(self) -> dict[str, nn.Parameter]:
        """Return the parameters that are trained, by name.

        Returns
        -------
        parameters : dict of str to nn.Parameter
            Those of the transition alone if embedding and head are frozen. Blocks that
            were kept are not among them.
        """
        return {
            name: parameter
            for name, parameter in self.named_parameters()
            if parameter.requires_grad
            and not (self.freeze and name.startswith("shell."))
        }

    def train(self, mode: bool = True) -> "Student":
        """Set the mode; a frozen embedding and head stay in evaluation mode.

        Parameters
        ----------
        mode : bool, default=True
            Whether to train.

        Returns
        -------
        student : Student
            Itself.
        """
        super().train(mode)
        if self.freeze:
            self.shell.eval()
        return self

    def forward(self, x: Inputs, n_steps: int | None = None) -> Tensor:
        """Predict without noise, by the means alone: (N, ...)."""
        return self.walked(x, None, n_steps)

    def members(
        self, x: Inputs, seeds: Sequence[int], n_steps: int | None = None
    ) -> Tensor:
        """Predict by one chain for each seed, all in one batch.

        Parameters
        ----------
        x : Tensor or dict of str to Tensor
            A batch of N rows.

        seeds : sequence of int
            One for each chain; the same seed is the same function of `x`.

        n_steps : int, default=None
            Steps to walk; see `rollout`.

        Returns
        -------
        outputs : Tensor of shape (M, N, ...)
            What the head makes of the end of each chain, such as logits.

        Raises
        ------
        ValueError
            If there is no seed, or `rollout` would refuse `n_steps`.
        """
        _check_seeds(seeds)
        tiled = tile_rows(x, len(seeds))
        outputs = self.walked(tiled, shared_noise(seeds), n_steps)
        return outputs.view(len(seeds), -1, *outputs.shape[1:])  # (M, N, ...)

    def traced(
        self, x: Inputs, seeds: Sequence[int], n_steps: int | None = None
    ) -> tuple[Tensor, Tensor]:
        """Predict as `members` does, and tell how far the chains part on their way.

        Parameters
        ----------
        x : Tensor or dict of str to Tensor
            A batch of N rows.

        seeds : sequence of int
            One for each chain.

        n_steps : int, default=None
            Steps to walk; see `rollout`.

        Returns
        -------
        outputs : Tensor of shape (M, N, ...)
            As from `members`.

        variances : Tensor of shape (N, L)
            Variance of the state over chains after each of the L steps, as a mean over
            tokens that are not padding, and widths.

        Raises
        ------
        ValueError
            As `members` does.
        """
        variances: list[Tensor] = []

        def chain(start: Tensor, visible: Tensor | None) -> Tensor:
            real = real_tokens(visible, start).unflatten(0, (len(seeds), -1))[0]

            def visit(state: Tensor) -> None:
                parted = state.unflatten(0, (len(seeds), -1))  # (M, N, T, D)
                by_token = parted.var(dim=0, correction=0).mean(dim=-1)  # (N, T)
                total = torch.where(real, by_token, 0.0).sum(dim=1)
                variances.append(total / real.sum(dim=1))

            return walk(
                self.transition, start, shared_noise(seeds), steps, visible, visit
            )

        steps = n_steps_or_own(self.transition, n_steps)
        _check_seeds(seeds)
        outputs: Tensor = self.shell(tile_rows(x, len(seeds)), chain)
        parted = outputs.unflatten(0, (len(seeds), -1))  # (M, N, ...)
        return parted, torch.stack(variances, dim=1)  # (N, L)

    def walked(
        self,
        x: Inputs,
        noise: Noise | None,
        n_steps: int | None = None,
        start: Tensor | None = None,
    ) -> Tensor:
        """Predict by one chain for each row, with noise of any kind.

        Parameters
        ----------
        x : Tensor or dict of str to Tensor
            A batch of N rows.

        noise : callable or None
            From the number of a step and tokens to standard normals like them. None
            walks by the means.

        n_steps : int, default=None
            Steps to walk; see `rollout`.

        start : Tensor of shape (N, T, D), default=None
            Tokens that the chain begins with, where they are known: kept blocks are
            then left out. None lets the student find them.

        Returns
        -------
        outputs : Tensor of shape (N, ...)
            What the head makes of the chain's end.
        """
        n_steps = n_steps_or_own(self.transition, n_steps)

        def chain(start: Tensor, visible: Tensor | None) -> Tensor:
            return walk(self.transition, start, noise, n_steps, visible)

        outputs: Tensor = self.shell(x, chain, start)
        return outputs


def _check_seeds(seeds: Sequence[int]) -> None:
    if len(seeds) == 0:
        raise ValueError("seeds must hold one seed for each chain; got seeds=[].")


def take_rows(x: Inputs, rows: Tensor | slice) -> Inputs:
    """Take rows of a batch, from each of its tensors."""
    return _each(x, lambda value: value[rows])


def tile_rows(x: Inputs, n_times: int) -> Inputs:
    """Repeat a batch as a whole, row for row in order."""
    return _each(x, lambda value: value.repeat(n_times, *[1] * (value.ndim - 1)))


def _each(x: Inputs, change: Callable[[Tensor], Tensor]) -> Inputs:
    if isinstance(x, Mapping):
        return {name: change(value) for name, value in x.items()}
    return change(x)
