"""HFBackbone: any model of Hugging Face, with its tokenizer or image processor."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from torch import nn

from uqformer._typing import AnyArray
from uqformer.backbones._guest import (
    Adaptation,
    Guest,
    GuestModule,
    trainable_body,
)
from uqformer.backbones._hub import (
    accepted_inputs,
    body_of,
    end_id,
    has_row_head,
    is_decoder,
    length_limit,
    load_from_hub,
    load_model,
    pad_id,
    position_limit,
    reads_last_column,
    width_of,
)
from uqformer.backbones._pictures import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Recipe,
    check_pixels,
    read_pictures,
)
from uqformer.backbones._readout import (
    has_token_head,
    read_last_logits,
    read_logits,
    read_pooled,
)
from uqformer.backbones._tokens import (
    check_arrays,
    check_ids,
    fill_rows,
    pack_left,
    read_ids,
    read_texts,
    tokenize,
)

__all__ = ["HFBackbone"]

Pooling: TypeAlias = Literal["auto", "cls", "mean", "last"]


class HFBackbone(Guest):
    """Any model of Hugging Face, as it is or with a new head.

    Texts and pictures are handed over as they are: the model's own tokenizer or image
    processor makes numbers of them. The model itself is never changed.

    Parameters
    ----------
    model_or_path : transformers.PreTrainedModel or str or Path
        The model; or a local folder, or a name on the hub, from which it is loaded
        when it is first needed: with its head, if it has one for whole texts or
        pictures, else without.

    tokenizer : transformers.PreTrainedTokenizerBase or str, default=None
        Turns texts into tokens, or where to load that from. None loads the one beside
        the model; a model that is handed over needs one, unless `X` holds tokens.

    processor : transformers image processor or str or "imagenet", default=None
        Turns pictures into pixel values, or where to load that from. None loads the
        one beside the model. With "imagenet" pictures are resized to the model's own
        size and normalised by the mean and standard deviation of ImageNet.

    train : {"head", "all", "lora"}, default=None
        None uses the model and its head as they are, and only calibrates. "head"
        trains a new linear head on the pooled states of the frozen model, "all" a copy
        of the model, with its own head if that has the right number of outputs. "lora"
        trains a new head and low-rank updates [1]_ of all linear layers, by peft.

    pooling : {"auto", "cls", "mean", "last"}, default="auto"
        How the states of the tokens become one, under a new head: the first one's, the
        mean over real tokens, or the last real one's. "auto" is "last" for decoders,
        whose last token alone has seen all others, and "mean" else.

    max_length : int, default=None
        Longer texts are cut to so many tokens. None is what the model takes at most.

    classes : array-like of shape (n_classes,), default=None
        Labels of the columns of a classifier, in their order, such as
        ``list(model.config.id2label.values())``. None takes the labels found in
        ``fit``, sorted.

    Attributes
    ----------
    model : transformers.PreTrainedModel
        The model, loaded when it is first asked for.
    trains : bool
        Whether ``fit`` trains anything, or only calibrates.

    Raises
    ------
    ValueError
        If `train` or `pooling` is not a known name or `max_length` is below 1; and, at
        first use, if the model cannot be loaded.
    TypeError
        If `model_or_path` is neither a model nor a name.

    See Also
    --------
    TimmBackbone : The same for models of timm.
    ForecastBackbone : The same for forecasters.
    FrozenBackbone : Any other module, used as it is.

    Notes
    -----
    Padding goes to the right, also where a mapping has it on the left: a row then has
    the same tokens at the same places in any company, and its members do too. Only
    models whose own head reads the last column, such as XLNet's, are padded on the
    left. Decoders without a padding id are padded by their end-of-text id, which the
    mask hides, and scored at their last real token.

    A backbone that was given by name is pickled as that name, without weights.

    References
    ----------
    .. [1] E. J. Hu et al. (2022), "LoRA: Low-Rank Adaptation of Large Language
       Models", International Conference on Learning Representations.

    Examples
    --------
    >>> import numpy as np
    >>> from uqformer.backbones import HFBackbone
    >>> HFBackbone("google-bert/bert-base-uncased", train="head")
    HFBackbone('google-bert/bert-base-uncased', train='head')

    >>> from transformers import BertConfig, BertForSequenceClassification
    >>> config = BertConfig(vocab_size=9, hidden_size=8, num_hidden_layers=1,
    ...                     num_attention_heads=2, intermediate_size=8)
    >>> backbone = HFBackbone(BertForSequenceClassification(config))
    >>> arrays = backbone.encode({"input_ids": np.array([[2, 5, 3], [2, 6, 7]])})
    >>> sorted(arrays)
    ['attention_mask', 'input_ids']
    """

    def __init__(
        self,
        model_or_path: Any,
        *,
        tokenizer: Any = None,
        processor: Any = None,
        train: Adaptation | None = None,
        pooling: Pooling = "auto",
        max_length: int | None = None,
        classes: ArrayLike | None = None,
    ) -> None:
        super().__init__(train, classes)
        if not isinstance(model_or_path, str | Path | nn.Module):
            raise TypeError(
                "HFBackbone takes a transformers model, a local folder or a name on "
                f"the hub; got {type(model_or_path).__name__}."
            )
        if pooling not in ("auto", "cls", "mean", "last"):
            raise ValueError(
                "pooling must be 'auto', 'cls', 'mean' or 'last'; got "
                f"pooling={pooling!r}."
            )
        if max_length is not None and max_length < 1:
            raise ValueError(
                f"max_length must be at least 1 or None; got max_length={max_length}."
            )
        self.model_or_path = model_or_path
        self.tokenizer = tokenizer
        self.processor = processor
        self.pooling = pooling
        self.max_length = max_length
        self._loaded: dict[str, Any] = {}

    @property
    def model(self) -> Any:
        """The model, loaded when it is first asked for."""
        if isinstance(self.model_or_path, nn.Module):
            return self.model_or_path
        if "model" not in self._loaded:
            self._loaded["model"] = load_model(str(self.model_or_path))
        return self._loaded["model"]

    def encode(self, X: Any) -> dict[str, AnyArray]:
        """Turn texts or pictures into the numbers that the module takes.

        Parameters
        ----------
        X : list, array, DataFrame, Series or mapping of n_samples rows
            Texts, pairs of texts, or token ids of shape (n_samples, n_tokens); or
            pictures: PIL images, uint8 arrays (height, width, channels), or float
            pixel values (n_samples, channels, height, width) ready for the model. Or a
            mapping of equally long arrays, named as the model names them.

        Returns
        -------
        arrays : dict of str to ndarray
            Token ids of shape (n_samples, n_tokens) with their mask; or pixel values of
            shape (n_samples, channels, height, width).

        Raises
        ------
        ValueError
            If a text is empty, a token is not in the vocabulary, the lengths of arrays
            differ, or there is nothing that makes numbers of texts or pictures.
        TypeError
            If `X` holds something else.

        Warns
        -----
        UQFormerWarning
            Once, if texts were cut to the length that the model takes, or if it has no
            padding id.
        """
        if getattr(self.model, "main_input_name", "") == "pixel_values":
            return self._encode_pictures(X)
        ids = None if isinstance(X, Mapping) else read_ids(X)
        if isinstance(X, Mapping):
            arrays = check_arrays(X, self._accepted(), "input_ids")
        elif ids is not None:
            arrays = {"input_ids": ids}
        else:
            arrays = self._tokenize(read_texts(X))
        arrays.setdefault("attention_mask", self._derive_mask(arrays["input_ids"]))
        n_vocabulary = self.model.get_input_embeddings().num_embeddings
        check_ids(arrays, n_vocabulary, position_limit(self.model))
        return arrays if self._pads_left else pack_left(arrays)

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

        Raises
        ------
        ValueError
            If the model has no head of its own and `train` asks for none.
        """
        module = self._with_own_head(n_outputs)
        if module is not None:
            return module
        return GuestModule(
            trainable_body(body_of(self.model), str(self.train)),
            partial(read_pooled, pooling=self._resolve_pooling()),
            nn.Linear(width_of(self.model), n_outputs),
            n_outputs=n_outputs,
            is_frozen=self.train == "head",
        )

    @property
    def _pads_left(self) -> bool:
        return self.train is None and reads_last_column(self.model)

    def _with_own_head(self, n_outputs: int) -> nn.Module | None:
        """Use the model with its head, as it is or as a copy to train, if that fits."""
        model = self.model
        is_frozen = self.train is None
        if is_frozen and body_of(model) is model:
            raise ValueError(
                f"{type(model).__name__} has no head, so it can predict nothing as it "
                "is. Pass train='head' to train one."
            )
        fits = getattr(model.config, "num_labels", None) == n_outputs
        if not is_frozen and not (self.train == "all" and has_row_head(model) and fits):
            return None
        return GuestModule(
            model if is_frozen else trainable_body(model, "all"),
            read_last_logits if has_token_head(model) else read_logits,
            n_outputs=n_outputs,
            is_frozen=is_frozen,
        )

    def _resolve_pooling(self) -> str:
        if self.pooling != "auto":
            return self.pooling
        return "last" if is_decoder(self.model) else "mean"

    def _accepted(self) -> list[str]:
        return accepted_inputs(
            self.model if self.train is None else body_of(self.model)
        )

    def _tokenize(self, texts: list[Any]) -> dict[str, AnyArray]:
        tokenizer = self._load_tokenizer()
        limit = length_limit(self.model, tokenizer, self.max_length)
        rows, n_cut = tokenize(tokenizer, texts, self._accepted(), limit)
        if n_cut:
            self._tell_once(
                "cut",
                f"{n_cut} of {len(texts)} texts are longer than the {limit} tokens "
                "that the model or max_length allows, and were cut.",
            )
        number = pad_id(self.model, tokenizer)
        if number is None and len({len(ids) for ids in rows["input_ids"]}) > 1:
            number = end_id(self.model, tokenizer)
            self._tell_once(
                "pad",
                f"Neither {type(self.model).__name__} nor its tokenizer has a padding "
                f"id; shorter texts are filled with id {number}, which is masked.",
            )
        rows["attention_mask"] = [[1] * len(ids) for ids in rows["input_ids"]]
        side = "left" if self._pads_left else "right"
        types = int(getattr(tokenizer, "pad_token_type_id", 0))
        fill = {"input_ids": number or 0, "token_type_ids": types}
        return fill_rows(rows, fill, side)

    def _derive_mask(self, ids: AnyArray) -> AnyArray:
        number = pad_id(self.model, self.tokenizer)
        mask = np.ones_like(ids) if number is None else ids != number
        return mask.astype(np.int64)

    def _load_tokenizer(self) -> Any:
        source = self.tokenizer
        if source is None and not isinstance(self.model_or_path, nn.Module):
            source = self.model_or_path
        if source is None:
            raise ValueError(
                "Texts need a tokenizer, and HFBackbone was given a model alone. Pass "
                "tokenizer=..., or X as a mapping of input_ids and attention_mask."
            )
        return self._load("tokenizer", source, "AutoTokenizer")

    def _encode_pictures(self, X: Any) -> dict[str, AnyArray]:
        arrays = {}
        if isinstance(X, Mapping):
            arrays = check_arrays(X, self._accepted(), "pixel_values")
            pixels = arrays["pixel_values"]
        elif (pictures := read_pictures(X)) is not None:
            pixels = self._prepare(pictures)
        else:
            pixels = np.asarray(X)
        n_channels = getattr(self.model.config, "num_channels", None)
        return arrays | {"pixel_values": check_pixels(pixels, n_channels)}

    def _prepare(self, pictures: list[AnyArray]) -> AnyArray:
        if isinstance(self.processor, str) and self.processor == "imagenet":
            size = self.model.config.image_size
            height, width = (size, size) if isinstance(size, int) else size
            return Recipe((height, width), IMAGENET_MEAN, IMAGENET_STD).prepare(
                pictures
            )
        # pt is what all processors give, whichever library they resize with
        inputs = self._load_processor()(
            images=pictures, return_tensors="pt", input_data_format="channels_last"
        )
        pixels: AnyArray = inputs["pixel_values"].numpy()
        return pixels

    def _load_processor(self) -> Any:
        source = self.processor
        if source is None and not isinstance(self.model_or_path, nn.Module):
            source = self.model_or_path
        if source is None:
            raise ValueError(
                "Pictures need an image processor, and HFBackbone was given a model "
                "alone. Pass processor=..., processor='imagenet', or X as float pixel "
                "values that are ready for the model."
            )
        return self._load("processor", source, "AutoImageProcessor")

    def _load(self, kind: str, source: Any, loader: str) -> Any:
        if not isinstance(source, str | Path):
            return source
        if kind not in self._loaded:
            self._loaded[kind] = load_from_hub(loader, str(source))
        return self._loaded[kind]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_loaded": {}}

    def __repr__(self) -> str:
        source = self.model_or_path
        is_model = isinstance(source, nn.Module)
        name = type(source).__name__ if is_model else repr(str(source))
        return f"HFBackbone({name}, train={self.train!r})"
