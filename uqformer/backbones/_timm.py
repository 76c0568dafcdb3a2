"""TimmBackbone: any picture model of timm, as it is or with a new head."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from uqformer._random import seeded
from uqformer._typing import AnyArray
from uqformer.backbones._guest import (
    Adaptation,
    Guest,
    GuestModule,
    import_library,
    trainable_body,
)
from uqformer.backbones._pictures import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Recipe,
    check_pixels,
    read_pictures,
)

__all__ = ["TimmBackbone"]


class TimmBackbone(Guest):
    """Any picture model of timm, as it is or with a new head.

    Pictures are resized, cropped and normalised as the model's own config says. The
    model itself is never changed.

    Parameters
    ----------
    model_or_name : torch.nn.Module or str
        A model of timm, or the name under which ``timm.create_model`` loads its
        pretrained weights when they are first needed.

    train : {"head", "all", "lora"}, default=None
        None uses the model and its head as they are, and only calibrates. "head"
        trains a new linear head on the pooled features of the frozen model, "all" a
        copy of the model under a new head, "lora" a new head and low-rank updates of
        all linear layers, by peft.

    classes : array-like of shape (n_classes,), default=None
        Labels of the columns of a classifier, in their order. None takes the labels
        found in ``fit``, sorted.

    Attributes
    ----------
    model : torch.nn.Module
        The model, loaded when it is first asked for.
    trains : bool
        Whether ``fit`` trains anything, or only calibrates.

    Raises
    ------
    TypeError
        If `model_or_name` is neither a module nor a name.
    ValueError
        If `train` is not a known name.

    See Also
    --------
    HFBackbone : The same for models of Hugging Face.
    FrozenBackbone : Any other module, used as it is.

    Notes
    -----
    A backbone that was given by name is pickled as that name, without weights.

    Examples
    --------
    >>> from uqformer.backbones import TimmBackbone
    >>> TimmBackbone("vit_tiny_patch16_224", train="head")
    TimmBackbone('vit_tiny_patch16_224', train='head')
    """

    def __init__(
        self,
        model_or_name: nn.Module | str,
        *,
        train: Adaptation | None = None,
        classes: ArrayLike | None = None,
    ) -> None:
        super().__init__(train, classes)
        if not isinstance(model_or_name, nn.Module | str):
            raise TypeError(
                "TimmBackbone takes a model of timm or its name; got "
                f"{type(model_or_name).__name__}."
            )
        self.model_or_name = model_or_name
        self._loaded: nn.Module | None = None

    @property
    def model(self) -> Any:
        """The model, loaded when it is first asked for."""
        if isinstance(self.model_or_name, nn.Module):
            return self.model_or_name
        if self._loaded is None:
            self._loaded = _load(self.model_or_name)
        return self._loaded

    def encode(self, X: Any) -> dict[str, AnyArray]:
        """Turn pictures into the pixel values that the model takes.

        Parameters
        ----------
        X : list, array or mapping of n_samples pictures
            PIL images, uint8 arrays (height, width, channels), or float pixel values
            (n_samples, channels, height, width) that are ready for the model, also in
            a mapping as ``{"x": ...}``.

        Returns
        -------
        arrays : dict of str to ndarray
            Pixel values of shape (n_samples, channels, height, width) as "x".

        Raises
        ------
        ValueError
            If the channels are too many, too few or not where they belong.
        TypeError
            If `X` holds no pictures.
        """
        recipe = _recipe(self.model)
        if isinstance(X, Mapping):
            if list(X) != ["x"]:
                raise ValueError(f"X as a mapping must hold 'x' alone; got {list(X)}.")
            X = np.asarray(X["x"])
        pictures = read_pictures(X)
        pixels = np.asarray(X) if pictures is None else recipe.prepare(pictures)
        return {"x": check_pixels(pixels, len(recipe.mean))}

    def build(self, n_outputs: int) -> nn.Module:
        """Make the module that is run or trained.

        Parameters
        ----------
        n_outputs : int
            Classes or targets.

        Returns
        -------
        module : torch.nn.Module
            Called with what `encode` returns, as tensors by keyword; gives
            ``(n_samples, n_outputs)``. If anything is trained, only that requires a
            gradient.
        """
        if self.train is None:
            return GuestModule(
                self.model, read_outputs, n_outputs=n_outputs, is_frozen=True
            )
        return GuestModule(
            trainable_body(self.model, self.train),
            read_features,
            nn.Linear(int(self.model.head_hidden_size), n_outputs),
            n_outputs=n_outputs,
            is_frozen=self.train == "head",
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loaded": None}

    def __repr__(self) -> str:
        source = self.model_or_name
        name = repr(source) if isinstance(source, str) else type(source).__name__
        return f"TimmBackbone({name}, train={self.train!r})"


def read_outputs(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Run a model with its own head, (N, C)."""
    output: Tensor = model(inputs["x"])
    return output


def read_features(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Run a model up to the pooled features below its head, (N, D)."""
    features = model.forward_features(inputs["x"])
    pooled: Tensor = model.forward_head(features, pre_logits=True)  # (N, D)
    return pooled


def _load(name: str) -> nn.Module:
    timm = import_library("timm", "timm", ", or hand over a model")
    # what has no pretrained weights is drawn at random, not from the user's generator
    with seeded(0):
        try:
            model: nn.Module = timm.create_model(name, pretrained=True)
        except (RuntimeError, OSError, ValueError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"{name!r} must name a pretrained model of timm that can be reached; "
                f"timm could not load it: {reason:.200}"
            ) from error
    return model.eval()


def _recipe(model: Any) -> Recipe:
    """Read from a model's config how it wants its pictures."""
    config = dict(getattr(model, "pretrained_cfg", None) or {})
    size = _picture_size(model) or tuple(config.get("input_size", (3, 224, 224))[1:])
    interpolation = config.get("interpolation", "bilinear")
    return Recipe(
        size,
        tuple(config.get("mean") or IMAGENET_MEAN),
        tuple(config.get("std") or IMAGENET_STD),
        interpolation if interpolation in ("bilinear", "bicubic") else "bicubic",
        crop_share=config.get("crop_pct") or 1.0,
    )


def _picture_size(model: Any) -> tuple[int, int] | None:
    """Return the size that a model was built for, where it is bound to one."""
    size = getattr(getattr(model, "patch_embed", None), "img_size", None)
    return None if size is None else (int(size[0]), int(size[1]))
