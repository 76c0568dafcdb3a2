"""Shares of the attention in the spread, and the displays that ask estimators."""

import copy
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.estimators.conftest import Guest, Reader, texts, tiny, tiny_classifier
from uqformer.attention import attention_variance
from uqformer.backbones import FrozenBackbone
from uqformer.plotting import AttentionVarianceDisplay, ConcentrationDisplay

Data = tuple[np.ndarray, np.ndarray]

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def test_shares_of_a_regressor_are_those_of_its_module(
    fitted: Any, heteroscedastic: Data
) -> None:
    X, _ = heteroscedastic
    shares = fitted.attention_shares(X)
    rows = torch.from_numpy(fitted.feature_scaler_.transform(X).astype(np.float32))
    expected = attention_variance(
        fitted.module_, rows, n_draws=8, method="gradient"
    ).shares
    assert shares == pytest.approx(expected)
    assert list(shares) == ["blocks.0.attention", "blocks.1.attention"]
    heads = fitted.attention_shares(X, by="head")
    for name, share in shares.items():
        parts = [value for head, value in heads.items() if head.startswith(name)]
        assert len(parts) == 2
        assert sum(parts) == pytest.approx(share)
    one = copy.copy(fitted).set_params(layers=[1]).attention_shares(X)
    assert one == pytest.approx({"blocks.1.attention": 1})


def test_shares_of_a_classifier_are_in_differences_of_logits(
    fitted_classifier: Any, three_classes: Data
) -> None:
    X, _ = three_classes
    model = fitted_classifier
    rows = torch.from_numpy(model.feature_scaler_.transform(X).astype(np.float32))

    def differences(module: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        logits = module(batch)
        return torch.stack([logits[:, i] - logits.mean(1) for i in range(3)], dim=1)

    expected = attention_variance(
        model.module_, rows, n_draws=8, method="gradient", forward=differences
    ).shares
    shares = model.attention_shares(X)
    assert shares == pytest.approx(expected, rel=1e-4)
    assert sum(shares.values()) == pytest.approx(1)


def test_shares_need_no_search(heteroscedastic: Data, fitted: Any) -> None:
    X, _ = heteroscedastic
    later = copy.deepcopy(fitted).set_params(n_draws="auto")
    assert later.attention_shares(X) == fitted.attention_shares(X)
    assert later.calibration_.searches == {}


@pytest.mark.parametrize("kind", ["columns", "names"])
def test_shares_of_guests(kind: str, guest: Guest, reader: Reader) -> None:
    if kind == "names":
        X, y = texts(60)
        model = tiny_classifier(backbone=FrozenBackbone(reader), backbone_params=None)
    else:
        X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60.0)
        model = tiny(backbone=FrozenBackbone(guest), backbone_params=None)
    shares = model.fit(X, y).attention_shares(X)
    names = [f"encoder.layers.{layer}.self_attn" for layer in (0, 1)]
    assert list(shares) == names
    assert sum(shares.values()) == pytest.approx(1)
    assert min(shares.values()) > 0


def test_words_that_are_no_parts(fitted: Any, heteroscedastic: Data) -> None:
    with pytest.raises(ValueError, match=r"'layer' or 'head'; got by='block'"):
        fitted.attention_shares(heteroscedastic[0], by="block")


# -- Displays -----------------------------------------------------------------------


def test_the_display_of_shares_takes_an_estimator(
    fitted: Any,
    fitted_classifier: Any,
    heteroscedastic: Data,
    three_classes: Data,
    pyplot: ModuleType,
) -> None:
    for model, data in (
        (fitted, heteroscedastic),
        (fitted_classifier, three_classes),
    ):
        display = AttentionVarianceDisplay.from_estimator(model, data[0], by="head")
        widths = [bar.get_width() for bar in display.bars_]
        shares = model.attention_shares(data[0], by="head")
        assert widths == pytest.approx(list(shares.values()))
        assert display.name == type(model).__name__


def test_the_display_of_the_search_takes_a_regressor(
    heteroscedastic: Data, fitted_classifier: Any, pyplot: ModuleType
) -> None:
    model = tiny(n_draws="auto").fit(*heteroscedastic)
    display = ConcentrationDisplay.from_estimator(model)
    assert display.result is model.search_
    assert display.chosen_.get_label() == f"chosen: {model.n_draws_} draws"
    low, high = model.search_.interval
    assert low <= model.search_.n_draws <= high
    for other in (tiny(), fitted_classifier):
        with pytest.raises(AttributeError, match=r"keep its search"):
            ConcentrationDisplay.from_estimator(other)
