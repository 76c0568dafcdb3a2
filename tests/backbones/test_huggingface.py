"""HFBackbone on texts and tokens: what goes in, what is run, and what is trained."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from tests.backbones.guests import (
    MAX_TOKENS,
    TEXTS,
    bare_tokenizer,
    classifier,
    digest,
    make,
    run,
    tokenizer,
    untouched,
)
from uqformer.attention import forward_members
from uqformer.backbones import HFBackbone
from uqformer.backbones._adapters import GuestProtocol
from uqformer.exceptions import UQFormerWarning

DECODERS = ["GPT2", "Llama", "Qwen2"]
ENCODERS = ["Albert", "Bert", "Roberta"]
no_padding_id = pytest.mark.filterwarnings("ignore:Neither .* has a padding id")


def backbone(kind: str, train: Any = None, **options: Any) -> HFBackbone:
    """Build a classifier of three classes, or of none if a head is to be trained."""
    words = bare_tokenizer() if kind in DECODERS else tokenizer()
    model = classifier(kind) if train is None else make(kind)
    return HFBackbone(model, tokenizer=words, train=train, **options)


# ---------------------------------------------------------------------- what goes in


def test_texts_are_what_the_tokenizer_makes_of_them() -> None:
    words = tokenizer()
    arrays = HFBackbone(classifier("Bert"), tokenizer=words).encode(TEXTS)
    expected = words(TEXTS, padding=True, return_tensors="np")
    assert set(arrays) == set(expected)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, expected[name])


def test_pairs_say_which_token_is_of_which_text() -> None:
    arrays = backbone("Bert").encode([("the cat", "ran"), ("a dog", "sat well")])
    np.testing.assert_array_equal(arrays["token_type_ids"][0], [0, 0, 0, 0, 1, 1, 0])


def test_names_that_the_model_does_not_take_are_left_out() -> None:
    model = classifier("Llama")
    arrays = HFBackbone(model, tokenizer=tokenizer()).encode(TEXTS)
    assert set(arrays) == {"input_ids", "attention_mask"}


def test_a_step_of_skorch_before_ours_hands_over_its_mapping() -> None:
    hf = pytest.importorskip("skorch.hf")
    step = hf.HuggingfacePretrainedTokenizer(
        tokenizer(), max_length=10, return_tensors="pt"
    )
    mapping = make_pipeline(step).fit(TEXTS).transform(TEXTS)
    guest = backbone("Bert")
    module = guest.build(3)
    torch.testing.assert_close(
        run(module, guest.encode(mapping)), run(module, guest.encode(TEXTS))
    )


def test_tokens_need_no_mapping_where_padding_is_known() -> None:
    guest = backbone("Bert")
    ids = guest.encode(TEXTS)["input_ids"]
    for X in (ids, ids.tolist(), {"input_ids": ids.astype(np.int32)}):
        arrays = guest.encode(X)
        np.testing.assert_array_equal(arrays["attention_mask"], ids != 0)
        np.testing.assert_array_equal(arrays["input_ids"], ids)


def test_without_a_padding_id_all_tokens_are_real() -> None:
    arrays = HFBackbone(classifier("Llama")).encode(np.array([[0, 2, 4], [4, 4, 4]]))
    assert arrays["attention_mask"].all()


def test_texts_too_long_are_cut_and_that_is_said_once() -> None:
    guest = HFBackbone(classifier("Bert"), tokenizer=tokenizer(), max_length=5)
    with pytest.warns(UQFormerWarning, match="2 of 4 texts are longer than the 5 tok"):
        arrays = guest.encode(TEXTS)
    assert arrays["input_ids"].shape == (4, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guest.encode(TEXTS)


@pytest.mark.parametrize("kind", ["Bert", "Roberta", "GPT2"])
def test_the_longest_text_fits_the_model(kind: str) -> None:
    guest = backbone(kind)
    with pytest.warns(UQFormerWarning, match=f"the {MAX_TOKENS} tokens"):
        arrays = guest.encode(["cat " * 50])
    assert arrays["input_ids"].shape == (1, MAX_TOKENS)
    assert run(guest.build(3), arrays).isfinite().all()


def test_a_decoder_without_padding_id_is_padded_behind_the_mask() -> None:
    """What Hugging Face itself refuses: more than one text, and no padding id."""
    model = classifier("Llama")
    guest = HFBackbone(model, tokenizer=bare_tokenizer())
    with pytest.warns(UQFormerWarning, match="Neither LlamaFor.* filled with id 4"):
        arrays = guest.encode(TEXTS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guest.encode(TEXTS)
    assert (arrays["input_ids"][arrays["attention_mask"] == 0] == 4).all()
    ids, mask = (torch.from_numpy(array) for array in arrays.values())
    with untouched(model), pytest.raises(ValueError, match="batch sizes > 1"):
        model(input_ids=ids, attention_mask=mask)
    assert model.config.pad_token_id is None


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        ("the cat", TypeError, "Wrap it in a list"),
        (["the cat", ""], ValueError, "no empty text; row 1"),
        (
            np.array([1.0, 2.0], dtype=object),
            TypeError,
            "row 0 holds 1.0 of type float",
        ),
        (np.ones((3, 4)), TypeError, "X must hold texts, pairs of texts, or token ids"),
        ([[1, 2], [3, 20]], ValueError, r"in \[0, 20\).*got 20 in row 1"),
        ({"input_ids": [[1]], "labels": [0]}, ValueError, r"Leave out \['labels'\]"),
        ([[5] * 17], ValueError, "no longer than the 16 tokens"),
        ([[0, 0], [5, 6]], ValueError, "at least one token .* row 0 has none"),
    ],
)
def test_bad_inputs_are_named(X: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        backbone("Bert").encode(X)


def test_texts_need_a_tokenizer() -> None:
    with pytest.raises(ValueError, match=r"need a tokenizer.*Pass tokenizer=\.\.\."):
        HFBackbone(classifier("Bert")).encode(TEXTS)


# ----------------------------------------------------------------------- what is run


@pytest.mark.parametrize("kind", ENCODERS)
def test_a_classifier_is_run_as_it_is(kind: str) -> None:
    guest = backbone(kind)
    arrays = guest.encode(TEXTS)
    with untouched(guest.model):
        logits = run(guest.build(3), arrays)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    with torch.no_grad():
        assert torch.equal(logits, guest.model.eval()(**tensors).logits)


@no_padding_id
@pytest.mark.parametrize("kind", DECODERS)
def test_a_decoder_scores_its_last_real_token(kind: str) -> None:
    """As the model itself does for one text, which needs no padding."""
    guest = backbone(kind)
    logits = run(guest.build(3), guest.encode(TEXTS))
    words, model = bare_tokenizer(), guest.model.eval()
    with torch.no_grad():
        alone = [model(**words(text, return_tensors="pt")).logits for text in TEXTS]
    torch.testing.assert_close(logits, torch.cat(alone), atol=1e-5, rtol=1e-4)


def test_one_output_is_a_regression() -> None:
    model = classifier("Bert", n_labels=1)
    guest = HFBackbone(model, tokenizer=tokenizer())
    assert run(guest.build(1), guest.encode(TEXTS)).shape == (4, 1)


@no_padding_id
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("train", [None, "head"])
@pytest.mark.parametrize("kind", [*ENCODERS, *DECODERS, "T5Encoder"])
def test_a_row_is_the_same_alone_and_padded_on_either_side(
    kind: str, train: str | None, side: str
) -> None:
    """The exact pass and the members; GPT-2 counts positions from the first column."""
    if kind == "T5Encoder" and train is None:
        pytest.skip("it has no head of its own")
    guest = backbone(kind, train)
    words = guest.tokenizer
    words.padding_side = side
    words.pad_token = words.pad_token or words.eos_token
    types = kind in ENCODERS
    arrays = guest.encode(words(TEXTS, padding=True, return_token_type_ids=types))
    alone = [guest.encode([text]) for text in TEXTS]
    module = guest.build(3).eval()
    exact = torch.cat([run(module, each) for each in alone])
    torch.testing.assert_close(run(module, arrays), exact, atol=1e-5, rtol=1e-4)
    redrawn = torch.cat([members(module, each)[0] for each in alone])
    torch.testing.assert_close(
        members(module, arrays)[0], redrawn, atol=1e-5, rtol=1e-4
    )
    assert not torch.allclose(redrawn, exact, atol=1e-3)


def members(module: Any, arrays: dict[str, Any], n_draws: int | None = 4) -> Any:
    """Redraw two members, (2, N, C)."""
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}
    passes = forward_members(module, [batch], n_draws=n_draws, seeds=[5, 6])
    return torch.stack([output for _, _, output in passes])


def test_a_mapping_padded_on_the_left_is_the_same_as_on_the_right() -> None:
    guest = backbone("GPT2", "head")
    ids, mask = np.array([[5, 6, 7], [5, 6, 0]]), np.array([[1, 1, 1], [1, 1, 0]])
    left = {"input_ids": ids.copy(), "attention_mask": mask.copy()}
    for array in left.values():
        array[1] = np.roll(array[1], 1)
    expected = guest.encode({"input_ids": ids, "attention_mask": mask})
    for name, array in guest.encode(left).items():
        np.testing.assert_array_equal(array, expected[name])


def test_a_model_that_pools_itself_is_padded_on_its_own_side() -> None:
    """XLNet reads its last column, whatever stands there."""
    model = classifier("XLNet")
    words = tokenizer(padding_side="left")
    guest = HFBackbone(model, tokenizer=words)
    arrays = guest.encode(TEXTS)
    assert (arrays["attention_mask"][:, -1] == 1).all()
    module = guest.build(3)
    alone = torch.cat([run(module, guest.encode([text])) for text in TEXTS])
    torch.testing.assert_close(run(module, arrays), alone, atol=1e-5, rtol=1e-4)


@no_padding_id
@pytest.mark.parametrize("train", [None, "head", "all"])
@pytest.mark.parametrize("kind", ["Bert", "Llama"])
def test_members_differ_and_no_draws_give_the_model(
    kind: str, train: str | None
) -> None:
    guest = backbone(kind, train)
    arrays = guest.encode(TEXTS)
    with untouched(guest.model):
        module = guest.build(3).eval()
        exact = run(module, arrays).detach()
        first, second = members(module, arrays)
        assert torch.equal(members(module, arrays, None)[0], exact)
    assert not torch.allclose(first, second, atol=1e-3)


# ------------------------------------------------------------------- what is trained


@pytest.mark.parametrize(("train", "trains"), [(None, False), ("head", True)])
def test_the_protocol_of_guests_is_kept(train: Any, trains: bool) -> None:
    guest = backbone("Bert", train)
    assert isinstance(guest, GuestProtocol)
    assert guest.trains is trains


@pytest.mark.parametrize("train", ["head", "all", "lora"])
@pytest.mark.parametrize("kind", ["Bert", "T5Encoder"])
def test_training_is_of_what_was_said_and_never_of_the_guest(
    kind: str, train: Any
) -> None:
    if train == "lora":
        pytest.importorskip("peft", reason="low-rank updates need peft")
    guest = backbone(kind, train)
    guest.model.get_input_embeddings().weight.requires_grad = False
    arrays = guest.encode(TEXTS)
    with untouched(guest.model):
        module = guest.build(2).train()
        body = digest(module.guest)
        trained = [p for p in module.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained, lr=0.01)
        losses = []
        for _ in range(30):
            loss = (run(module, arrays) - torch.eye(2).repeat(2, 1)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert (digest(module.guest) == body) == (train == "head")
    n_layers = sum(isinstance(m, torch.nn.Linear) for m in guest.model.modules())
    n_trained = {
        "head": 2,
        "all": len([*module.parameters()]),
        "lora": 2 + 2 * n_layers,
    }
    assert len(trained) == n_trained[train]


@pytest.mark.parametrize("n_outputs", [2, 3])
def test_a_head_that_fits_is_trained_on_and_others_are_new(n_outputs: int) -> None:
    model = classifier("Bert", n_labels=3)
    module = HFBackbone(model, train="all").build(n_outputs)
    assert (module.head is None) == (n_outputs == 3)
    assert type(module.guest).__name__ == (
        "BertForSequenceClassification" if n_outputs == 3 else "BertModel"
    )


def test_pooling_is_by_the_last_token_for_decoders_alone() -> None:
    for kind, pooling in {"Bert": "mean", "Llama": "last"}.items():
        assert backbone(kind, "head").build(1).read.keywords == {"pooling": pooling}
    cls = backbone("Bert", "head", pooling="cls").build(1)
    assert cls.read.keywords == {"pooling": "cls"}


@pytest.mark.parametrize("task", ["Model", "ForMaskedLM"])
def test_a_model_without_a_head_must_train_one(task: str) -> None:
    guest = HFBackbone(make("Bert", task), tokenizer=tokenizer())
    with pytest.raises(ValueError, match=r"Pass train='head' to train"):
        run(guest.build(2), guest.encode(TEXTS))


def test_another_number_of_classes_is_named() -> None:
    guest = backbone("Bert")
    with pytest.raises(ValueError, match=r"\(4, 2\) numbers.*got shape \(4, 3\)"):
        run(guest.build(2), guest.encode(TEXTS))


# ----------------------------------------------------------- the thing handed in


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model_or_path": 3}, TypeError, "takes a transformers model.*got int"),
        ({"train": "heads"}, ValueError, "got train='heads'"),
        ({"pooling": "max"}, ValueError, "got pooling='max'"),
        ({"max_length": 0}, ValueError, "got max_length=0"),
    ],
)
def test_wrong_arguments_are_named(options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        HFBackbone(**{"model_or_path": "bert"} | options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Save a classifier with its tokenizer."""
    classifier("Bert").save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    return tmp_path


def test_a_folder_holds_all_and_is_read_when_needed(folder: Path) -> None:
    guest = HFBackbone(folder)
    assert repr(guest) == f"HFBackbone({str(folder)!r}, train=None)"
    assert guest._loaded == {}
    assert guest.model is guest.model
    expected = backbone("Bert")
    torch.testing.assert_close(
        run(guest.build(3), guest.encode(TEXTS)),
        run(expected.build(3), expected.encode(TEXTS)),
    )


def test_a_guest_given_by_name_is_pickled_by_name(folder: Path) -> None:
    guest = HFBackbone(folder, train="head")
    logits = run(guest.build(3).guest, {"input_ids": np.array([[2, 5, 3]])})
    dumped = pickle.dumps(guest)
    assert len(dumped) < 1000
    again = pickle.loads(dumped).build(3).guest
    copy = run(again, {"input_ids": np.array([[2, 5, 3]])})
    assert torch.equal(copy.last_hidden_state, logits.last_hidden_state)


def test_a_guest_given_as_a_model_is_pickled_with_it_once() -> None:
    guest = backbone("Bert")
    dumped = pickle.dumps((guest, guest.build(3)))
    copy, module = pickle.loads(dumped)
    assert module.guest is copy.model
    arrays = copy.encode(TEXTS)
    assert torch.equal(run(module, arrays), run(guest.build(3), guest.encode(TEXTS)))


def test_cloning_shares_the_weights() -> None:
    guest = backbone("Bert")
    assert clone(guest) is guest
    assert repr(guest) == "HFBackbone(BertForSequenceClassification, train=None)"
