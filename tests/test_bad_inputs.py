"""A newcomer's mistakes: each is answered by what was expected, what came, what to do.

Every case goes through a public door, most through ``fit`` of an estimator.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.backbones.guests import TEXTS, classifier, make, tokenizer
from uqformer import StochasticAttentionClassifier, StochasticAttentionRegressor
from uqformer.attention import stochastic_attention
from uqformer.backbones import ForecastBackbone, FrozenBackbone, HFBackbone
from uqformer.exceptions import UQFormerWarning
from uqformer.scorers import get_scorer
from uqformer.series import make_windows

QUICK: dict[str, Any] = {
    "max_epochs": 1,
    "n_members": 2,
    "n_draws": 4,
    "random_state": 0,
}
X = np.random.default_rng(0).normal(size=(40, 3))
Y = X[:, 0] - X[:, 1]
LABELS = np.where(Y > 0, "up", "down")
REVIEWS = TEXTS * 10

# so few rows calibrate badly, which is not the matter here
pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)

Regressor = partial(StochasticAttentionRegressor, **QUICK)
Classifier = partial(StochasticAttentionClassifier, **QUICK)


class Net(nn.Module):
    """Attention over the columns of a table, with as many outputs as asked."""

    def __init__(self, n_outputs: int = 1) -> None:
        super().__init__()
        self.lift = nn.Linear(1, 4)
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, n_outputs)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.lift(x[..., None])  # (N, T, D)
        mixed, _ = self.attention(tokens, tokens, tokens)
        out: Tensor = self.head(mixed.mean(dim=1))  # (N, C)
        return out


class Forecaster(nn.Module):
    """Attention over the steps of a window of at most 8, and 2 steps ahead."""

    context_length = 8

    def __init__(self) -> None:
        super().__init__()
        self.net = Net(2)
        self.config = self

    def forward(self, context: Tensor) -> Tensor:
        ahead: Tensor = self.net(context)
        return ahead


def _frame(**columns: Any) -> Any:
    pd = pytest.importorskip("pandas")
    town = np.where(X[:, 2] > 0, "Oslo", "Bergen")
    return pd.DataFrame({"size": X[:, 0], "town": town} | columns)


def _texts(X: Any, y: Any = LABELS, **options: Any) -> Any:
    options = {"tokenizer": tokenizer()} | options
    return Classifier(HFBackbone(classifier("Bert", 2), **options)).fit(X, y)


def _pictures(X: Any) -> Any:
    vit = make("ViT", "ForImageClassification", num_labels=2)
    return Classifier(HFBackbone(vit, processor="imagenet")).fit(X, LABELS)


def _tokens(n_masks: int) -> dict[str, Any]:
    ids = np.tile([2, 5, 3], (40, 1))
    return {"input_ids": ids, "attention_mask": np.ones((n_masks, 3), dtype=int)}


def _run_in_training_mode() -> None:
    net = Net().train()
    with stochastic_attention(net, n_draws=4, seed=0):
        net(torch.zeros(2, 3))


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a mapping of unequal arrays": (
        lambda: Regressor(FrozenBackbone(Net())).fit({"x": X, "z": X[:39]}, Y),
        ValueError,
        r"one row for each sample; got .*'x': 40, 'z': 39.* Pass arrays of equal",
    ),
    "tokens and masks of unequal length": (
        lambda: _texts(_tokens(n_masks=39)),
        ValueError,
        r"same number of rows.*; got .*'input_ids': 40, 'attention_mask': 39",
    ),
    "texts without a language model": (
        lambda: Classifier().fit(REVIEWS, LABELS),
        ValueError,
        r"reads no language; got 40 texts. Pass backbone=HFBackbone",
    ),
    "an array of texts without a language model": (
        lambda: Classifier("patch").fit(np.array(REVIEWS), LABELS),
        ValueError,
        r"reads no language; got 40 texts. Pass backbone=HFBackbone",
    ),
    "a mapping without a guest": (
        lambda: Regressor().fit({"x": X}, Y),
        ValueError,
        r"must be an array .*; got a mapping of \['x'\]. Hand the model in as Frozen",
    ),
    "colours last where they come first": (
        lambda: _pictures(np.zeros((40, 8, 8, 3), dtype=np.float32)),
        ValueError,
        r"3 channels at axis 1; got shape \(40, 8, 8, 3\).*X.transpose\(0, 3, 1, 2\)",
    ),
    "colours first where they come last": (
        lambda: _pictures(np.zeros((40, 3, 8, 8), dtype=np.uint8)),
        ValueError,
        r"channels last; row 0 has shape \(3, 8, 8\).*X.transpose\(0, 2, 3, 1\)",
    ),
    "colours last for a backbone of our own": (
        lambda: Classifier("patch").fit(np.zeros((40, 8, 8, 3)), LABELS),
        UQFormerWarning,
        r"read as 8 channels of 8 x 3 pixels.*X.transpose\(0, 3, 1, 2\)",
    ),
    "a table where images belong": (
        lambda: Classifier("patch").fit(X, LABELS),
        ValueError,
        r"takes images \(n_samples, 3, height, width\).*; got shape \(\d+, 3\)",
    ),
    "texts without a tokenizer": (
        lambda: _texts(REVIEWS, tokenizer=None),
        ValueError,
        r"Texts need a tokenizer, and .* a model alone. Pass tokenizer=",
    ),
    "an empty text": (
        lambda: _texts([*REVIEWS[:39], "  "]),
        ValueError,
        r"no empty text; row 39 is '  '. Drop such rows or fill them",
    ),
    "one text instead of a list": (
        lambda: _texts("the cat sat"),
        TypeError,
        r"a list of texts; got one str 'the cat sat'. Wrap it in a list",
    ),
    "a window longer than the series": (
        lambda: make_windows(np.arange(20.0), context_length=18, horizon=4),
        ValueError,
        r"at least context_length \+ horizon = 18 \+ 4 steps; got 20. Choose shorter",
    ),
    "a window longer than the forecaster takes": (
        lambda: Regressor(ForecastBackbone(Forecaster())).fit(np.zeros((40, 9)), Y),
        ValueError,
        r"no longer than the 8 steps .*; got 9. Pass context_length=8",
    ),
    "a gap in a window of a forecaster": (
        lambda: Regressor(ForecastBackbone(Forecaster())).fit(
            np.where(np.eye(40, 8) > 0, np.nan, 0), Y
        ),
        ValueError,
        r"must be finite; got NaN or infinity in row 0. Fill the gaps first",
    ),
    "infinity in a table": (
        lambda: Regressor().fit(np.where(np.eye(40, 3) > 0, np.inf, X), Y),
        ValueError,
        r"finite numbers or missing ones; got inf .*column 0, row \d+. Replace or clip",
    ),
    "text in a column of numbers": (
        lambda: Regressor().fit(_frame(), Y).predict(_frame(size="large")),
        ValueError,
        r"numbers in column 'size'; got 'large'. Clean the column, or name it",
    ),
    "a word among numbers": (
        lambda: Regressor().fit(_frame(size=[*range(39), "n/a"]), Y),
        ValueError,
        r"numbers or text in column 'size'; got both, 'n/a' among them. Clean the",
    ),
    "text for a backbone of numbers": (
        lambda: Regressor("sequence").fit(_frame(), Y),
        ValueError,
        r"must be numbers; got text .*'(Oslo|Bergen)'.* or encode them first",
    ),
    "X longer than y": (
        lambda: Regressor().fit(X, Y[:39]),
        ValueError,
        r"a row for each sample; got 40 rows in X and 39 in y",
    ),
    "texts and labels of unequal length": (
        lambda: _texts(REVIEWS, LABELS[:39]),
        ValueError,
        r"a row for each sample; got 40 rows in X and 39 in y",
    ),
    "one class only": (
        lambda: Classifier().fit(X, ["up"] * 40),
        ValueError,
        r"at least 2 classes .*; got 1 class, .*'up'.* Add rows of another class",
    ),
    "a label that the guest does not know": (
        lambda: Classifier(FrozenBackbone(Net(2), classes=["up", "flat"])).fit(
            X, LABELS
        ),
        ValueError,
        r"classes=\['up', 'flat'\] and labels \['down', 'up'\]. Name all columns",
    ),
    "a label that fit has not seen": (
        lambda: get_scorer("neg_expected_calibration_error")(
            Classifier().fit(X, LABELS), X, np.full(40, "flat")
        ),
        ValueError,
        r"only the labels \['down', 'up'\]; got 'flat' in 40 rows",
    ),
    "a module with too many classes": (
        lambda: Classifier(FrozenBackbone(Net(3))).fit(X, LABELS),
        ValueError,
        r"= \(2, 2\); Net returned \(2, 3\).* name them all with FrozenBackbone\(",
    ),
    "a module with too many targets": (
        lambda: Regressor(FrozenBackbone(Net(2))).fit(X, Y),
        ValueError,
        r"= \(2, 1\); Net returned \(2, 2\). Wrap it in a module that picks",
    ),
    "a model of Hugging Face with another head": (
        lambda: Classifier(
            HFBackbone(classifier("Bert", 3), tokenizer=tokenizer())
        ).fit(REVIEWS, LABELS),
        ValueError,
        r"= \(2, 2\) numbers, .*; got shape \(2, 3\). Pass train='head'",
    ),
    "a model in training mode": (
        _run_in_training_mode,
        ValueError,
        r"in evaluation mode; got Net with training=True.* Call model.eval\(\) first",
    ),
    "negative draws in fit": (
        lambda: Regressor(n_draws=-1).fit(X, Y),
        ValueError,
        r"'n_draws' .* must be an int in the range \[1, inf\).* Got -1 instead",
    ),
    "negative draws after fit": (
        lambda: Regressor().fit(X, Y).set_params(n_draws=-1).predict(X),
        ValueError,
        r"'n_draws' .* must be an int in the range \[1, inf\).* Got -1 instead",
    ),
    "a level in per cent": (
        lambda: Regressor().fit(X, Y).predict_interval(X, 90),
        ValueError,
        r"strictly between 0 and 1; got confidence_level=90. For 90 % pass 0.9",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_answered_in_a_line(mistake: str) -> None:
    call, error, pattern = MISTAKES[mistake]
    with pytest.raises(error, match=pattern) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 320


@pytest.mark.parametrize("kind", ["sequence", "guest"])
def test_a_gap_is_refused_where_there_is_no_place_for_it(kind: str) -> None:
    """In the words of scikit-learn, which its users know."""
    backbone: Any = FrozenBackbone(Net()) if kind == "guest" else kind
    with pytest.raises(ValueError, match="X contains NaN"):
        Regressor(backbone).fit(np.where(np.eye(40, 3) > 0, np.nan, X), Y)
    with pytest.raises(ValueError, match="y contains NaN"):
        Regressor(backbone).fit(X, np.where(np.arange(40) == 7, np.nan, Y))


# -- What is no mistake -------------------------------------------------------------


def test_a_category_that_fit_has_not_seen_is_predicted() -> None:
    model = Regressor().fit(_frame(), Y)
    unseen = model.predict(_frame(town="Tromsø"))
    assert np.isfinite(unseen).all()
    # one place for all that is unknown
    np.testing.assert_array_equal(unseen, model.predict(_frame(town="Bodø")))


def test_a_gap_in_a_table_is_predicted() -> None:
    gaps = np.where(np.eye(40, 3) > 0, np.nan, X)
    assert np.isfinite(Regressor().fit(gaps, Y).predict(gaps)).all()


@pytest.mark.parametrize("backbone", ["ft_transformer", "sequence"])
def test_objects_that_are_numbers_are_numbers(backbone: str) -> None:
    of_objects = Regressor(backbone).fit(X.astype(object), Y)
    of_numbers = Regressor(backbone).fit(X, Y)
    np.testing.assert_array_equal(
        of_objects.predict(X.astype(object)), of_numbers.predict(X)
    )


def test_a_guest_in_training_mode_is_run_in_evaluation_and_given_back() -> None:
    net = Net().train()
    model = Regressor(FrozenBackbone(net)).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), model.predict(X))
    assert net.training
