"""The course of a fit that regressor and classifier share: guests, names, tokens."""

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from torch import Tensor, nn

from tests.estimators.conftest import Guest, Reader, texts, tiny, tiny_classifier
from uqformer.backbones import FrozenBackbone

Data = tuple[np.ndarray, np.ndarray]
BARE = {"backbone_params": None}

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


class Headed(nn.Module):
    """A new head on the words of a guest that stays as it is."""

    def __init__(self, guest: Reader, n_outputs: int) -> None:
        super().__init__()
        self.body = copy.deepcopy(guest).requires_grad_(False)
        self.body.head = nn.Identity()
        self.head = nn.Linear(8, n_outputs)

    def forward(self, **inputs: Tensor) -> Tensor:
        output: Tensor = self.head(self.body(**inputs))
        return output


class Texts:
    """A guest as somebody else might wrap it: reads words, trains a new head."""

    trains = True
    classes: list[str] | None = None

    def __init__(self, guest: Reader) -> None:
        self.guest = guest

    def encode(self, X: Any) -> Any:
        if isinstance(X, dict):
            return {name: np.asarray(array) for name, array in X.items()}
        rows = [[1 + ord(letter) % 18 for letter in text] for text in X]
        width = max(map(len, rows))
        ids = np.array([row + [0] * (width - len(row)) for row in rows])
        return {"input_ids": ids, "attention_mask": (ids > 0).astype(np.int32)}

    def build(self, n_outputs: int) -> nn.Module:
        return Headed(self.guest, n_outputs)

    def __sklearn_clone__(self) -> "Texts":
        return self


def _same(state: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(value, other[name]) for name, value in state.items())


# -- Arrays by name -----------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_a_guest_takes_arrays_by_name(reader: Reader, kind: str) -> None:
    X, codes = texts(60)
    before = copy.deepcopy(reader.state_dict())
    if kind == "classifier":
        model = tiny_classifier(backbone=FrozenBackbone(reader), **BARE).fit(X, codes)
        answer = model.predict_proba
    else:
        reader.head = nn.Linear(8, 1)
        before = copy.deepcopy(reader.state_dict())
        model = tiny(backbone=FrozenBackbone(reader), **BARE).fit(X, codes * 1.5)
        answer = model.predict_std
    whole = answer(X)
    assert model.module_ is reader
    assert _same(before, reader.state_dict())
    assert not hasattr(model, "n_features_in_")
    # the first row alone has no padding, and the same answer
    length = X["attention_mask"][0].sum()
    alone = {name: array[:1, :length] for name, array in X.items()}
    np.testing.assert_allclose(answer(alone), whole[:1], rtol=1e-4, atol=1e-6)
    small = copy.copy(model).set_params(predict_batch_size=7)
    rows = np.arange(60)[::-1]
    turned = {name: array[rows] for name, array in X.items()}
    np.testing.assert_allclose(
        getattr(small, answer.__name__)(turned)[rows], whole, rtol=1e-3, atol=1e-5
    )
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(getattr(twin, answer.__name__)(X), whole)


def test_numbers_reach_the_module_as_they_are_due() -> None:
    class Notes(Guest):
        seen: dict[str, torch.dtype]

        def forward(self, x: Tensor, ids: Tensor, real: Tensor) -> Tensor:
            self.seen = {"x": x.dtype, "ids": ids.dtype, "real": real.dtype}
            return super().forward(x)

    module, rng = Notes(), np.random.default_rng(0)
    X = {
        "x": rng.standard_normal((30, 3)),
        "ids": np.arange(30, dtype=np.int32),
        "real": np.ones((30, 3), dtype=bool),
    }
    tiny(backbone=FrozenBackbone(module), **BARE).fit(X, rng.standard_normal(30))
    assert module.seen == {"x": torch.float32, "ids": torch.int64, "real": torch.bool}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"attention_mask": np.ones((5, 9))}, r"lengths {'input_ids': 60, 'attent"),
        ({"attention_mask": np.full((60, 9), np.nan)}, r"X\['attention_mask'\] .*fini"),
    ],
)
def test_bad_arrays_by_name(reader: Reader, change: Any, sentence: str) -> None:
    X, codes = texts(60)
    model = tiny_classifier(backbone=FrozenBackbone(reader), **BARE)
    with pytest.raises(ValueError, match=sentence):
        model.fit(X | change, codes)
    fitted = model.fit(X, codes)
    with pytest.raises(ValueError, match=sentence):
        fitted.predict(X | change)


def test_names_and_lengths_are_those_of_fit(reader: Reader) -> None:
    X, codes = texts(60)
    model = tiny_classifier(backbone=FrozenBackbone(reader), **BARE)
    with pytest.raises(ValueError, match=r"got 60 rows in X and 59 in y"):
        model.fit(X, codes[:59])
    few = {name: array[:4] for name, array in X.items()}
    with pytest.raises(ValueError, match=r"4 sample\(s\) while a minimum of 5"):
        model.fit(few, codes[:4])
    model.fit(X, codes)
    with pytest.raises(ValueError, match=r"as in fit; got \['input_ids'\]"):
        model.predict({"input_ids": X["input_ids"]})
    with pytest.raises(ValueError, match=r"at least one row; got none"):
        model.predict({name: array[:0] for name, array in X.items()})


def test_only_a_guest_takes_arrays_by_name(three_classes: Data) -> None:
    X, codes = texts(20)
    expected = r"not a guest; got a mapping of \['attention_mask', 'input_ids'\]\. Hand"
    with pytest.raises(ValueError, match=expected):
        tiny_classifier().fit(X, codes)
    with pytest.raises(ValueError, match=expected):
        tiny_classifier().fit(*three_classes).predict(X)


# -- Guests that train --------------------------------------------------------------


def test_a_guest_may_train_a_part_of_what_it_builds(reader: Reader) -> None:
    X, codes = texts(150)
    before = copy.deepcopy(reader.state_dict())
    wrapped = Texts(reader)
    model = tiny_classifier(
        backbone=wrapped, max_epochs=30, learning_rate=1e-2, **BARE
    ).fit(X, codes)
    assert _same(before, reader.state_dict())
    body = model.module_.body.state_dict()
    assert _same({k: v for k, v in before.items() if "head" not in k}, body)
    losses = [epoch["valid_loss"] for epoch in model.history_]
    assert min(losses) < 0.8 * losses[0]
    assert model.score(*texts(150, seed=1)) > 0.5
    assert clone(model).backbone is wrapped
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))


def test_a_guest_that_trains_may_name_its_columns(reader: Reader) -> None:
    X, codes = texts(150)
    labels = np.array(["b", "c", "a"])[codes]
    wrapped = Texts(reader)
    wrapped.classes = ["c", "a", "b"]
    model = tiny_classifier(
        backbone=wrapped, max_epochs=30, learning_rate=1e-2, **BARE
    ).fit(X, labels)
    assert model.score(X, labels) > 0.5
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in X.items()}
        columns = model.module_(**tensors).argmax(dim=1).numpy()
    named = np.array(wrapped.classes)[columns]
    assert np.mean(named == labels) > 0.5


def test_a_guest_reads_what_it_wants(reader: Reader) -> None:
    words = np.random.default_rng(0).choice(list("abcdefgh"), size=(40, 6))
    X = ["".join(row[: 2 + i % 5]) for i, row in enumerate(words)]
    y = ["with a" if "a" in text else "without" for text in X]
    model = tiny_classifier(backbone=Texts(reader), **BARE).fit(X, y)
    assert set(model.predict(X[:7])) <= {"with a", "without"}
    np.testing.assert_allclose(
        model.predict_proba(X[:1]), model.predict_proba(X)[:1], rtol=1e-4
    )
    regressor = tiny(backbone=Texts(reader), **BARE).fit(X, np.arange(40.0))
    # targets are brought to scale for a head that is trained
    assert regressor.target_center_[0] > 1


class Frames(Texts):
    """Reads the one column of a data frame."""

    def encode(self, X: Any) -> Any:
        return super().encode(X.iloc[:, 0].tolist())


def test_a_guest_that_reads_columns_keeps_their_names(reader: Reader) -> None:
    X = pd.DataFrame({"text": ["abc", "de", "fgha", "b"] * 10})
    model = tiny_classifier(backbone=Frames(reader), **BARE)
    model.fit(X, X["text"].str.contains("a"))
    assert model.feature_names_in_.tolist() == ["text"]
    assert model.n_features_in_ == 1
    assert model.predict_proba(X[:3]).shape == (3, 2)
    with pytest.raises(ValueError, match=r"feature names should match"):
        model.predict(X.rename(columns={"text": "words"}))


def test_parameters_of_a_backbone_are_not_for_guests(reader: Reader) -> None:
    X, codes = texts(20)
    model = tiny_classifier(backbone=FrozenBackbone(reader))
    with pytest.raises(ValueError, match=r"backbone_params .* guest FrozenBackbone"):
        model.fit(X, codes)


# -- Shapes and tokens --------------------------------------------------------------


class Tokens(nn.Module):
    """Says itself that its inputs are token ids."""

    takes_tokens = True

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__()
        self.reader = Reader(n_outputs)

    def forward(self, ids: Tensor) -> Tensor:
        output: Tensor = self.reader(ids, torch.ones_like(ids))
        return output


def test_token_ids_are_not_scaled() -> None:
    ids = np.random.default_rng(0).integers(1, 19, size=(40, 5))
    model = tiny_classifier(backbone=Tokens, **BARE).fit(ids, ids[:, 0] > 9)
    assert model.feature_scaler_ is None
    assert model.predict_proba(ids.astype(float)).shape == (40, 2)
    with pytest.raises(ValueError, match=r"whole numbers; got 1.5\. Tokenize"):
        model.predict(np.full((1, 5), 1.5))


def test_a_backbone_may_scale_its_inputs_itself(three_classes: Data) -> None:
    class Scaler(Guest):
        scales_inputs = True
        largest = 0.0

        def adapt(self, x: Tensor) -> None:
            self.largest = float(x.abs().max())

    X, _ = three_classes
    model = tiny(backbone=Scaler(), **BARE).fit(100 * X, X[:, 0])
    assert model.feature_scaler_ is None
    assert 100 < model.module_.largest <= abs(100 * X).max() * 1.001


def test_windows_of_one_series_are_not_scaled_step_by_step() -> None:
    X = np.random.default_rng(0).standard_normal((40, 8)) * np.arange(1, 9)
    model = tiny(backbone="sequence").fit(X, X[:, -1])
    assert model.feature_scaler_ is None
    module = model.module_
    assert module.channel_scale.item() == pytest.approx(X.std(), rel=0.2)


def test_windows_have_no_columns_to_count_but_a_shape() -> None:
    class Windows(Guest):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x[:, :, 0])

    X = np.random.default_rng(0).standard_normal((40, 3, 2))
    model = tiny(backbone=Windows(), **BARE).fit(X, X[:, 0, 0])
    assert not hasattr(model, "n_features_in_")
    with pytest.raises(ValueError, match=r"shape \(3, 2\) as in fit; got \(4, 2\)"):
        model.predict(np.zeros((5, 4, 2)))


# -- Hugging Face -------------------------------------------------------------------


class Logits(nn.Module):
    """Picks the logits of a Hugging Face model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> Tensor:
        logits: Tensor = self.model(**inputs).logits
        return logits


def test_bert_through_a_frozen_backbone() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        vocab_size=20,
        max_position_embeddings=16,
        initializer_range=0.5,
        num_labels=3,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        bert = transformers.BertForSequenceClassification(config)
    X, codes = texts(60)
    labels = np.array(["a", "b", "c"])[codes]
    before = copy.deepcopy(bert.state_dict())
    model = tiny_classifier(backbone=FrozenBackbone(Logits(bert)), **BARE)
    model.fit(X, labels)
    proba = model.predict_proba(X)
    assert model.predict_ensemble(X).mutual_information().max() > 1e-3
    assert model.predict_set(X, 0.8).any(axis=1).all()
    assert _same(before, bert.state_dict())
    with torch.no_grad():
        tensors = {name: torch.from_numpy(array) for name, array in X.items()}
        exact = bert.eval()(**tensors).logits.softmax(dim=1).numpy()
    plain = copy.copy(model).set_params(n_draws=None, calibration=None)
    np.testing.assert_allclose(plain.predict_proba(X), exact, rtol=1e-4, atol=1e-6)
    order = np.argsort(X["attention_mask"].sum(axis=1))
    shortest = {name: array[order[:5]] for name, array in X.items()}
    np.testing.assert_allclose(
        model.predict_proba(shortest), proba[order[:5]], rtol=1e-3, atol=1e-5
    )
