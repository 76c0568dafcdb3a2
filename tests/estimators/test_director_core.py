"""The course of a fit: what is trained, what stays, and what is kept."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

from tests.director.conftest import digest
from tests.estimators.conftest import Guest, Reader, texts
from tests.estimators.director_models import (
    classes,
    fitted_classifier,
    fitted_regressor,
    numbers,
    tiny_classifier,
    tiny_regressor,
)
from uqformer._random import seeded
from uqformer.backbones import FrozenBackbone
from uqformer.calibration import TemperatureCalibrator
from uqformer.estimators._director_core import (
    AUTO_EPOCHS,
    AUTO_STEPS,
    LEAST_PATIENCE,
)
from uqformer.estimators._director_distil import Distillation

BARE = {"backbone_params": None, "student_share": 2.0}

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


@pytest.fixture
def guest() -> Guest:
    with seeded(0):
        return Guest(n_outputs=3)


def test_what_a_fit_leaves() -> None:
    model = fitted_classifier()
    assert [entry["epoch"] for entry in model.history_] == [1, 2, 3, 4]
    assert len(model.backbone_history_) == 6
    assert set(model.fit_times_) == {
        "training", "variance", "distillation", "temperature", "conformal"
    }  # fmt: skip
    assert model.n_draws_ == 8
    assert model.performance_weight_ == 10.0
    assert model.n_steps_ == 2
    assert model.n_members == model.n_chains == 3
    assert model.n_parameters_ == {
        name: sum(parameter.numel() for parameter in module.parameters())
        for name, module in (("student", model.module_), ("backbone", model.backbone_))
    }
    assert model.n_parameters_["student"] < model.n_parameters_["backbone"]


@pytest.mark.parametrize("head", ["trained", "frozen"])
def test_a_guest_leaves_bit_for_bit_as_it_came(guest: Guest, head: Any) -> None:
    guest.train()
    for parameter in guest.parameters():
        parameter.requires_grad_(False)
    guest.head.weight.requires_grad_(True)
    before = digest(guest)
    model = tiny_classifier(backbone=FrozenBackbone(guest), head=head, **BARE)
    model.fit(*classes())
    model.predict_set(classes()[0], 0.6)
    model.predict_uncertainty(classes()[0])
    assert digest(guest) == before
    assert guest.training
    assert model.backbone_ is guest
    assert guest.head.weight.requires_grad
    assert not guest.lift.weight.requires_grad
    assert all(parameter.grad is None for parameter in guest.parameters())
    assert not hasattr(model, "backbone_history_")
    assert "training" not in model.fit_times_
    own = {id(parameter) for parameter in guest.parameters()}
    shared = {id(p) for p in model.module_.shell.parameters()} <= own
    assert shared == (head == "frozen")


def test_global_generators_stay_as_they_were() -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    tiny_classifier().fit(*classes()).predict_proba(classes()[0])
    assert torch.equal(torch.get_rng_state(), torch_before)
    assert all(map(np.array_equal, numpy_before, np.random.get_state()))  # noqa: NPY002


def test_one_seed_is_behind_all() -> None:
    X, y = classes()
    proba = fitted_classifier().predict_proba(X)
    np.testing.assert_array_equal(tiny_classifier().fit(X, y).predict_proba(X), proba)
    other = tiny_classifier(random_state=1).fit(X, y)
    assert not np.allclose(other.predict_proba(X), proba)


def test_any_company_and_any_batch() -> None:
    for model, X in (
        (copy.copy(fitted_classifier()), classes()[0]),
        (copy.copy(fitted_regressor()), numbers()[0]),
    ):
        whole = model.predict_ensemble(X).members
        np.testing.assert_allclose(
            model.predict_ensemble(X[7:12]).members,
            whole[:, 7:12],
            rtol=1e-4,
            atol=1e-5,
        )
        model.predict_batch_size = 5
        np.testing.assert_allclose(
            model.predict_ensemble(X).members, whole, rtol=1e-4, atol=1e-5
        )


def test_more_chains_begin_with_the_same() -> None:
    X = classes()[0]
    model = copy.copy(fitted_classifier())
    few = model.predict_ensemble(X).members
    model.set_params(n_chains=6)
    many = model.predict_ensemble(X).members
    assert many.shape == (6, 90, 3)
    np.testing.assert_allclose(many[:3], few, atol=1e-6)
    assert model.predict_proba(X).shape == (90, 3)  # calibrated anew


def test_a_pickled_estimator_predicts_the_same(guest: Guest) -> None:
    X, y = classes()
    frozen = tiny_classifier(backbone=FrozenBackbone(guest), head="frozen", **BARE)
    for model in (fitted_classifier(), frozen.fit(X, y)):
        twin = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(twin.backbone_proba(X), model.backbone_proba(X))
        # tensors that both share are kept once
        own = {id(parameter) for parameter in twin.backbone_.parameters()}
        shared = {id(p) for p in twin.module_.shell.parameters()} <= own
        assert shared == (model.head == "frozen")


def test_texts_under_names() -> None:
    with seeded(0):
        reader = Reader()
    X, codes = texts(60)
    model = tiny_classifier(backbone=FrozenBackbone(reader), **BARE).fit(X, codes)
    proba = model.predict_proba(X)
    some = {name: array[3:9] for name, array in X.items()}
    np.testing.assert_allclose(model.predict_proba(some), proba[3:9], atol=1e-5)


def test_steps_are_those_of_the_fit() -> None:
    X, y = classes()
    model = tiny_classifier(n_steps=1).fit(X, y)
    assert model.n_steps_ == 1
    assert model.predict_uncertainty(X).representation.shape == (90, 1)
    whole = fitted_classifier().predict_proba(X)
    assert not np.allclose(model.predict_proba(X), whole)
    with pytest.raises(ValueError, match=r"n_steps must be between 1 and 2"):
        tiny_classifier(n_steps=3).fit(X, y)


@pytest.mark.parametrize("n_rows", [40, 400, 100_000])
def test_epochs_grow_as_rows_grow_fewer(n_rows: int) -> None:
    model = tiny_classifier(distil_epochs="auto", n_iter_no_change=7)
    recipe = model._recipe(n_rows)
    n_steps = recipe.max_epochs * -(-n_rows // recipe.batch_size)
    fewest, most = AUTO_EPOCHS
    assert fewest <= recipe.max_epochs <= most
    if fewest < recipe.max_epochs < most:
        assert n_steps == pytest.approx(AUTO_STEPS, rel=0.05)
    assert (recipe.max_epochs == most) == (n_rows == 40)
    assert (recipe.max_epochs == fewest) == (n_rows == 100_000)
    assert recipe.n_iter_no_change == max(7, recipe.max_epochs // LEAST_PATIENCE)
    assert tiny_classifier()._recipe(n_rows).n_iter_no_change == 30
    assert tiny_classifier()._recipe(n_rows).max_epochs == 4


def test_whatever_goes_wrong_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = tiny_classifier().fit(*classes())

    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(model), "_calibrate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        model.fit(*classes())
    assert not [name for name in vars(model) if name.endswith("_")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_chains": 0}, "n_chains"),
        ({"variance": "softmax"}, "variance"),
        ({"n_draws": None}, "n_draws"),
        ({"loss": "l1"}, "loss"),
        ({"performance_weight": -1.0}, "performance_weight"),
        ({"student_share": 0.0}, "student_share"),
        ({"head": "none"}, "head"),
        ({"n_steps": 0}, "n_steps"),
        ({"distil_epochs": 0}, "distil_epochs"),
        ({"distil_learning_rate": 0.0}, "distil_learning_rate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_parameters(changes: dict[str, Any], message: str) -> None:
    for estimator, data in (
        (tiny_classifier(**changes), classes()),
        (tiny_regressor(**changes), numbers()),
    ):
        with pytest.raises(ValueError, match=f"The '{message}' parameter"):
            clone(estimator).fit(*data)


def test_a_backbone_that_is_no_chain() -> None:
    with pytest.raises(ValueError, match="attention"):
        tiny_classifier(backbone=torch.nn.Linear(3, 3), **BARE).fit(*classes())


# -- What a student is taught ---------------------------------------------------------


class Taught(Exception):
    """Stop a fit where the student would be taught."""


def taught(monkeypatch: pytest.MonkeyPatch, model: Any, data: Any) -> list[Any]:
    """Return inputs and targets of both parts, and stop."""
    seen: list[Any] = []

    def run(self: Any, backbone: Any, train: Any, valid: Any, *tasks: Any) -> None:
        seen.extend([train, valid])
        raise Taught

    monkeypatch.setattr(Distillation, "run", run)
    with pytest.raises(Taught):
        model.fit(*data)
    return seen


def test_soft_labels_are_the_backbones_probabilities(
    monkeypatch: pytest.MonkeyPatch, guest: Guest
) -> None:
    """In the columns of the guest, at the temperature of the validation rows."""
    order = ["cat", "ant", "bee"]
    backbone = FrozenBackbone(guest, classes=order)
    hard, soft, mixed = (
        taught(
            monkeypatch,
            tiny_classifier(backbone=backbone, soft_labels=share, **BARE),
            classes(),
        )
        for share in (0.0, 1.0, 0.25)
    )
    for (x, y), (_, own), (_, both) in zip(hard, soft, mixed, strict=True):
        assert set(y[:, :3].unique().tolist()) == {0.0, 1.0}
        assert torch.equal(y[:, 3], own[:, 3])
        if len(x) == len(hard[1][0]):  # the validation rows judge, and stay
            assert torch.equal(y, own)
            continue
        torch.testing.assert_close(both, 0.75 * y + 0.25 * own)
        with torch.no_grad():
            log_proba = guest.eval()(x).log_softmax(dim=1)
        (x_valid, y_valid) = hard[1]
        with torch.no_grad():
            valid_logits = guest(x_valid).numpy()
        temperature = (
            TemperatureCalibrator(input="logits")
            .fit(valid_logits, y_valid[:, :3].argmax(dim=1).numpy())
            .temperature_
        )
        expected = (log_proba / temperature).softmax(dim=1)
        torch.testing.assert_close(own[:, :3], expected, rtol=1e-4, atol=1e-5)
        assert temperature != 1


def test_soft_targets_are_the_backbones_predictions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with seeded(0):
        guest = Guest(n_outputs=1).eval()
    backbone = FrozenBackbone(guest)
    (x, y), hard = taught(
        monkeypatch,
        tiny_regressor(backbone=backbone, soft_labels=0.5, **BARE),
        numbers(),
    )
    (_, true), _ = taught(
        monkeypatch, tiny_regressor(backbone=backbone, soft_labels=0, **BARE), numbers()
    )
    with torch.no_grad():
        output = guest(x)[:, 0]
    torch.testing.assert_close(y[:, 0], 0.5 * true[:, 0] + 0.5 * output)
    assert not torch.isclose(y[:, 0], true[:, 0]).all()
    assert np.isin(hard[1][:, 0].numpy(), numbers()[1].astype(np.float32)).all()
