"""Fitting a classifier: labels, weights, columns of guests, and whether sets cover."""

import copy
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from torch import Tensor, nn

from tests.estimators.conftest import Guest, tiny_classifier
from uqformer.backbones import FrozenBackbone
from uqformer.exceptions import InsufficientCalibrationError

Data = tuple[np.ndarray, np.ndarray]
BARE = {"backbone_params": None}

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


class Line(nn.Module):
    """Logits that are the columns themselves, through an attention that idles."""

    def __init__(self, scale: float = 1.0, spread: float = 0.1) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.scale = scale
        self.spread = spread

    def forward(self, x: Tensor) -> Tensor:
        tokens = x[..., None].expand(-1, -1, 4)  # (N, T, 4)
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=False)
        output: Tensor = self.scale * x + self.spread * mixed.mean(dim=-1)
        return output


def labelled(n_rows: int, seed: int, names: Any = ("a", "b", "c")) -> Data:
    """Rows whose classes have the softmax of their columns for probabilities."""
    rng = np.random.default_rng(seed)
    X = 1.5 * rng.standard_normal((n_rows, len(names)))
    return X, np.array(names)[(X + rng.gumbel(size=X.shape)).argmax(axis=1)]


# -- Labels -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "labels",
    [
        ["no", "yes"],
        [False, True],
        [-1, 1],
        [3, 7, 11],
        [0.0, 1.0, 2.0],
        np.array(["x", "y"], dtype=object),
    ],
    ids=["words", "bool", "signs", "gaps", "whole floats", "objects"],
)
def test_any_labels(labels: Any) -> None:
    X, y = labelled(60, 0, labels)
    model = tiny_classifier(backbone=Guest, max_epochs=2, n_draws=None, **BARE)
    model.fit(X, y)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.classes_.dtype == np.unique(y).dtype
    assert set(model.predict(X).tolist()) <= set(y.tolist())
    assert model.predict_proba(X).shape == (60, len(labels))


def test_labels_that_are_no_classes(three_classes: Data) -> None:
    X, y = three_classes
    with pytest.raises(ValueError, match=r"Unknown label type"):
        tiny_classifier().fit(X, np.linspace(0, 1, len(y)))
    with pytest.raises(ValueError, match=r"at least 2 .* got 1 class, 'cat', in all"):
        tiny_classifier().fit(X, np.full(len(y), "cat"))
    weight = (y == "cat").astype(float)
    with pytest.raises(ValueError, match=r"at least 2 classes .* positive sample_wei"):
        tiny_classifier().fit(X, y, sample_weight=weight)


@pytest.mark.parametrize(
    ("backbone", "params"),
    [
        ("ft_transformer", {"d_token": 16, "n_heads": 2, "n_blocks": 2}),
        ("sequence", {"d_token": 16, "n_heads": 2, "n_blocks": 1}),
        (Guest, None),
    ],
    ids=["table", "windows", "callable"],
)
def test_the_only_column_of_a_frame_keeps_its_name(backbone: Any, params: Any) -> None:
    pd = pytest.importorskip("pandas")
    X, y = labelled(60, 0, ("no", "yes"))
    frame = pd.DataFrame({"size": X[:, 0]})
    model = tiny_classifier(
        backbone=backbone, backbone_params=params, max_epochs=1, n_draws=4
    )
    model.fit(frame, y)
    assert model.feature_names_in_.tolist() == ["size"]
    assert model.n_features_in_ == 1
    assert model.predict_proba(frame[:3]).shape == (3, 2)
    with pytest.raises(ValueError, match=r"feature names should match"):
        model.predict(frame.rename(columns={"size": "weight"}))
    model.fit(frame.to_numpy(), y)
    assert not hasattr(model, "feature_names_in_")


def test_classes_of_weightless_rows_are_not_classes(three_classes: Data) -> None:
    X, y = three_classes
    kept = y != "bee"
    model = tiny_classifier().fit(X, y, sample_weight=kept)
    assert model.classes_.tolist() == ["ant", "cat"]
    without = tiny_classifier().fit(X[kept], y[kept])
    np.testing.assert_allclose(model.predict_proba(X), without.predict_proba(X))


def test_a_class_may_miss_where_rows_are_held_out(three_classes: Data) -> None:
    X, y = three_classes
    rare = np.where(np.arange(len(y)) == 5, "rare", y)
    model = tiny_classifier().fit(X, rare)
    code = model.classes_.tolist().index("rare")
    assert code not in model.calibration_.validation.y
    assert code not in model.calibration_.calibration.y
    assert model.predict_proba(X).shape == (120, 4)
    assert model.predict_set(X, 0.8).shape == (120, 4)


# -- Columns of a guest -------------------------------------------------------------


def test_a_guest_may_name_its_columns() -> None:
    X, y = labelled(300, 0, ("c", "a", "b"))  # the columns are in this order
    named = FrozenBackbone(Line(), classes=["c", "a", "b"])
    model = tiny_classifier(backbone=named, **BARE).fit(X, y)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.score(X, y) > 0.6
    unnamed = tiny_classifier(backbone=FrozenBackbone(Line()), **BARE).fit(X, y)
    assert unnamed.score(X, y) < 0.4
    # one that knows more classes than y holds has columns for them all the same
    kept = y != "a"
    model = tiny_classifier(backbone=named, **BARE).fit(X[kept], y[kept])
    assert model.predict_proba(X).shape == (300, 3)


def test_columns_that_are_not_the_classes() -> None:
    X, y = labelled(60, 0)
    two = y != "c"
    model = tiny_classifier(backbone=FrozenBackbone(Line()), **BARE)
    expected = r"= \(2, 2\); Line returned \(2, 3\)\. Its columns .* classes=\[\.\.\.\]"
    with pytest.raises(ValueError, match=expected):
        model.fit(X[two], y[two])
    for classes in (["a", "b"], ["a", "b", "b"], ["a", "b", "d"]):
        named = FrozenBackbone(Line(), classes=classes)
        with pytest.raises(ValueError, match=r"must name each of its columns once"):
            tiny_classifier(backbone=named, **BARE).fit(X, y)


# -- Weights ------------------------------------------------------------------------


def _share_of_rare(**changes: Any) -> float:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = (X[:, 0] + rng.standard_normal(300) > 1.8).astype(int)
    weight = changes.pop("sample_weight", lambda y: None)(y)
    params = {"d_token": 8, "n_heads": 2, "n_blocks": 1}
    model = tiny_classifier(backbone_params=params, n_draws=None, **changes)
    return float(model.fit(X, y, sample_weight=weight).predict(X).mean())


def test_class_weights_count_as_rows() -> None:
    plain = _share_of_rare()
    balanced = _share_of_rare(class_weight="balanced")
    by_rows = _share_of_rare(sample_weight=lambda y: np.where(y == 1, 9.0, 1.0))
    by_dict = _share_of_rare(class_weight={1: 9.0})
    assert plain < 0.15 < balanced
    assert by_rows == by_dict > 0.15


def test_a_class_that_weighs_nothing_is_told(three_classes: Data) -> None:
    with pytest.raises(ValueError, match=r"class_weight must be positive .*'ant': 0"):
        tiny_classifier(class_weight={"ant": 0}).fit(*three_classes)


# -- Chance, temperature, sets ------------------------------------------------------


def test_the_seed_is_the_only_source_of_chance(three_classes: Data) -> None:
    X, y = three_classes
    twins = [tiny_classifier(random_state=3).fit(X, y) for _ in range(2)]
    np.testing.assert_array_equal(*(twin.predict_proba(X) for twin in twins))
    other = tiny_classifier(random_state=4).fit(X, y).predict_proba(X)
    assert not np.allclose(other, twins[0].predict_proba(X))


@pytest.mark.parametrize("scale", [4.0, 0.25])
def test_the_temperature_undoes_a_wrong_scale(scale: float) -> None:
    X, y = labelled(1500, 0)
    model = tiny_classifier(
        backbone=FrozenBackbone(Line(scale, spread=0.01)), n_draws=256, **BARE
    ).fit(X[:1000], y[:1000])
    assert model.temperature_ == pytest.approx(scale, rel=0.3)
    bare = copy.copy(model).set_params(calibration=None)
    assert bare.temperature_ == 1
    before, after = (
        log_loss(y[1000:], m.predict_proba(X[1000:])) for m in (bare, model)
    )
    assert after < before - 0.05
    assert model.score(X, y) == bare.score(X, y)


def test_sets_cover_over_many_small_resamples() -> None:
    """40 rows calibrate a guest, 20 judge: 150 times, pooled inside a binomial band."""
    levels = np.array([0.5, 0.8, 0.9])
    hits, n_resamples, n_test = np.zeros(3), 150, 20
    for seed in range(n_resamples):
        X, y = labelled(60 + n_test, seed)
        model = tiny_classifier(
            backbone=FrozenBackbone(Line(3.0)), random_state=seed, **BARE
        ).fit(X[:60], y[:60])
        sets = model.predict_set(X[60:], levels)
        codes = np.searchsorted(model.classes_, y[60:])
        hits += sets[np.arange(n_test), codes].sum(axis=0)
    n_calibration = len(model.calibration_.calibration)
    least = levels
    most = np.ceil((n_calibration + 1) * levels) / (n_calibration + 1)
    # rows of a resample share its calibration: their coverage is beta distributed
    variance = most * (1 - most) * (1 / n_test + 1 / (n_calibration + 2))
    bound = 4 * np.sqrt(variance / n_resamples)
    covered = hits / (n_resamples * n_test)
    assert (covered > least - bound).all()
    # never empty: the first class is in, so half may be exceeded, but not nine tenths
    assert (covered[1:] < most[1:] + bound[1:]).all()


def test_sets_need_rows(three_classes: Data) -> None:
    X, y = three_classes
    model = tiny_classifier().fit(X, y)
    with pytest.raises(InsufficientCalibrationError, match=r"at least 99 .* got 24"):
        model.predict_set(X, 0.99)
    bare = tiny_classifier(conformal=None).fit(X, y)
    assert len(bare.calibration_.calibration) == 0
    assert not hasattr(bare, "predict_set")
    with pytest.raises(AttributeError, match=r"has no attribute 'predict_set'"):
        bare.predict_set(X)
    with pytest.raises(InsufficientCalibrationError, match=r"kept none\. Fit it again"):
        bare.set_params(conformal="aps").predict_set(X)


def test_it_learns_what_a_line_cannot() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (600, 3))
    y = np.where(X[:, 0] * X[:, 1] > 0, "same", "other")
    model = tiny_classifier(max_epochs=60).fit(X[:500], y[:500])
    line = LogisticRegression().fit(X[:500], y[:500]).score(X[500:], y[500:])
    assert model.score(X[500:], y[500:]) > 0.9 > 0.7 > line
    losses = [epoch["valid_loss"] for epoch in model.history_]
    assert min(losses) < 0.5 * losses[0]
