"""Passes: batches change nothing, moments are those of the members, modes come back."""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor, nn

from uqformer._random import member_seeds, seeded
from uqformer.attention import attention_variance
from uqformer.backbones import FTTransformer
from uqformer.estimators._passes import Passes, evaluating, resolve_device
from uqformer.predictive import ClassificationEnsemble

Array: TypeAlias = NDArray[np.float32]

X = np.random.default_rng(0).standard_normal((25, 4)).astype(np.float32)
SEEDS = member_seeds(0, 6)
CPU = torch.device("cpu")


def _model(n_outputs: int) -> FTTransformer:
    with seeded(0):
        model = FTTransformer(4, n_outputs, d_token=16, n_heads=2, n_blocks=2)
        return model.adapt(torch.from_numpy(X))


def _passes(n_outputs: int = 2, **changes: Any) -> Passes:
    settings: dict[str, Any] = {"layers": "all", "device": CPU, "batch_size": 1024}
    settings |= {"module": _model(n_outputs), "n_outputs": n_outputs} | changes
    return Passes(**settings)


# -- What the passes give -----------------------------------------------------------


def test_the_exact_pass_is_the_module_in_eval_mode() -> None:
    passes = _passes()
    exact = passes.exact(X)
    assert exact.shape == (25, 2)
    assert exact.dtype == np.float64
    with torch.no_grad():
        expected = passes.module.eval()(torch.from_numpy(X)).numpy()
    np.testing.assert_array_equal(exact, expected)


@pytest.mark.parametrize("batch_size", [1, 7, 25])
def test_batches_change_nothing(batch_size: int) -> None:
    whole, parted = _passes(), _passes(batch_size=batch_size)
    exact = whole.exact(X)
    np.testing.assert_allclose(parted.exact(X), exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        parted.members(X, 8, SEEDS), whole.members(X, 8, SEEDS), rtol=1e-5, atol=1e-5
    )
    moments = [p.deviations(X, exact, 8, SEEDS) for p in (parted, whole)]
    np.testing.assert_allclose(moments[0].mean, moments[1].mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(
        moments[0].mean_square, moments[1].mean_square, rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("batch_size", [10, 1024])
@pytest.mark.parametrize("n_draws", [1, 8])
def test_moments_are_those_of_the_members(n_draws: int, batch_size: int) -> None:
    passes = _passes(batch_size=batch_size)
    exact = passes.exact(X)
    members = passes.members(X, n_draws, SEEDS)
    assert members.shape == (6, 25, 2)
    moments = passes.deviations(X, exact, n_draws, SEEDS)
    distance = members - exact
    np.testing.assert_allclose(moments.mean, distance.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.mean_square, (distance**2).mean(axis=0))
    np.testing.assert_allclose(moments.std(), members.std(axis=0), atol=1e-9)
    assert moments.std().min() > 1e-4


@pytest.mark.parametrize("batch_size", [10, 1024])
def test_a_mixture_says_what_its_members_say(batch_size: int) -> None:
    passes = _passes(3, batch_size=batch_size)
    mixture = passes.mixture(X, 4, SEEDS)
    ensemble = ClassificationEnsemble(softmax(passes.members(X, 4, SEEDS), axis=2))
    np.testing.assert_allclose(mixture.proba, ensemble.mean_proba(), rtol=1e-5)
    np.testing.assert_allclose(mixture.entropy, ensemble.expected_entropy(), rtol=1e-5)
    parts = mixture.uncertainty()
    np.testing.assert_allclose(parts.total, ensemble.entropy(), rtol=1e-5)
    np.testing.assert_allclose(parts.aleatoric, mixture.entropy)
    np.testing.assert_allclose(
        parts.epistemic, ensemble.mutual_information(), rtol=1e-3, atol=1e-6
    )
    assert parts.epistemic.max() > 1e-3


def test_without_draws_a_mixture_is_the_exact_pass() -> None:
    passes = _passes(3)
    mixture = passes.mixture(X, None, SEEDS)
    np.testing.assert_array_equal(mixture.proba, softmax(passes.exact(X), axis=1))
    np.testing.assert_array_equal(mixture.uncertainty().epistemic, np.zeros(25))


@pytest.mark.parametrize("batch_size", [10, 1024])
def test_the_variance_of_one_pass_is_that_of_many_members(batch_size: int) -> None:
    passes = _passes(batch_size=batch_size)
    derived = passes.variance(X, 1024)
    assert derived.shape == (25, 2)
    assert derived.dtype == np.float64
    ratio = derived / passes.members(X, 1024, member_seeds(0, 200)).var(axis=0, ddof=1)
    # a variance of 200 members errs by a tenth, and a few rows are far from linear
    assert 0.5 < ratio.min() < ratio.max() < 2
    assert ratio.mean() == pytest.approx(1, abs=0.2)
    np.testing.assert_allclose(passes.variance(X, 16), 64 * derived, rtol=1e-5)
    assert not passes.variance(X, None).any()


@pytest.mark.parametrize("by", ["layer", "head"])
@pytest.mark.parametrize("batch_size", [10, 1024])
def test_shares_are_those_of_the_layers(by: Any, batch_size: int) -> None:
    passes = _passes(batch_size=batch_size)
    shares = passes.shares(X, by, of_logits=False)
    expected = attention_variance(
        passes.module.eval(), torch.from_numpy(X), n_draws=8, method="gradient", by=by
    ).shares
    assert list(shares) == list(expected)
    np.testing.assert_allclose(list(shares.values()), list(expected.values()))
    assert sum(shares.values()) == pytest.approx(1)
    one = _passes(layers=[1]).shares(X, "layer", of_logits=False)
    assert one == pytest.approx({"blocks.1.attention": 1})


def test_what_moves_all_logits_alike_has_no_share() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = _model(3)

        def forward(self, x: Tensor) -> Tensor:
            output = self.model(x)
            return output + 50 * output[:, :1]

    plain, shifted = _passes(3), _passes(3, module=Shifted())
    expected = list(plain.shares(X, "layer", of_logits=True).values())
    shares = list(shifted.shares(X, "layer", of_logits=True).values())
    np.testing.assert_allclose(shares, expected, rtol=1e-3)
    moved = list(shifted.shares(X, "layer", of_logits=False).values())
    assert not np.allclose(moved, expected, rtol=1e-2)


def test_columns_are_taken_in_the_order_asked() -> None:
    module = _model(3)
    plain, turned = (
        _passes(3, module=module, columns=columns)
        for columns in (None, np.array([2, 0, 1]))
    )
    np.testing.assert_array_equal(turned.exact(X), plain.exact(X)[:, [2, 0, 1]])
    np.testing.assert_array_equal(
        turned.members(X, 8, SEEDS), plain.members(X, 8, SEEDS)[:, :, [2, 0, 1]]
    )
    np.testing.assert_array_equal(
        turned.variance(X, 8), plain.variance(X, 8)[:, [2, 0, 1]]
    )


def test_a_spread_that_rounds_below_zero_is_zero() -> None:
    passes = _passes()
    exact = passes.exact(X)
    moments = passes.deviations(X, exact - 1e6, 8, SEEDS[:1])
    assert np.isfinite(moments.std()).all()


def test_a_member_does_not_depend_on_how_many_there_are() -> None:
    passes = _passes()
    many = passes.members(X, 8, SEEDS)
    few = passes.members(X, 8, SEEDS[:2])
    np.testing.assert_allclose(few, many[:2], rtol=1e-5, atol=1e-6)
    assert np.abs(many[0] - many[1]).max() > 1e-3


def test_without_draws_all_members_are_the_exact_pass() -> None:
    passes = _passes()
    exact = passes.exact(X)
    members = passes.members(X, None, SEEDS[:3])
    np.testing.assert_allclose(members, np.stack([exact] * 3), rtol=1e-5, atol=1e-6)
    moments = passes.deviations(X, exact, None, SEEDS)
    assert not moments.mean.any()
    assert not moments.mean_square.any()


def test_layers_choose_what_is_redrawn() -> None:
    module = _model(2)
    exact = _passes(module=module).exact(X)
    spreads = {
        layers: _passes(module=module, layers=layers).deviations(X, exact, 4, SEEDS)
        for layers in ("all", (0,), (1,))
    }
    means = [spread.mean_square.mean() for spread in spreads.values()]
    assert len(set(means)) == 3
    assert min(means) > 0
    # to first order the layers' variances add up
    whole, first, second = (
        _passes(module=module, layers=layers).variance(X, 4)
        for layers in ("all", (0,), (1,))
    )
    np.testing.assert_allclose(first + second, whole, rtol=1e-4)
    assert first.min() > 0
    assert second.min() > 0


@pytest.mark.parametrize("method", ["exact", "members", "deviations", "variance"])
def test_dropout_is_off_and_modes_come_back(method: str) -> None:
    passes = _passes()
    passes.module.train()
    passes.module.blocks[0].eval()
    before = [part.training for part in passes.module.modules()]
    arguments: dict[str, tuple[Any, ...]] = {
        "exact": (X,),
        "members": (X, 8, SEEDS),
        "deviations": (X, np.zeros((25, 2)), 8, SEEDS),
        "variance": (X, 8),
    }
    first, second = (getattr(passes, method)(*arguments[method]) for _ in range(2))
    if method == "deviations":
        first, second = first.mean, second.mean
    np.testing.assert_array_equal(first, second)
    assert [part.training for part in passes.module.modules()] == before


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_bar_is_shown_only_when_asked(
    verbose: int, capsys: pytest.CaptureFixture[str]
) -> None:
    _passes(verbose=verbose, batch_size=10).exact(X)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert ("3/3" in shown.err) == bool(shown.err) == bool(verbose)


# -- Modes --------------------------------------------------------------------------


def _mixed() -> nn.Module:
    module = nn.Sequential(nn.Dropout(), nn.Sequential(nn.Dropout(), nn.Dropout()))
    module.train()
    module[1].eval()
    module[1][0].train()
    return module


def _modes(module: nn.Module) -> list[bool]:
    return [part.training for part in module.modules()]


def test_evaluating_gives_every_part_its_own_mode_back() -> None:
    module = _mixed()
    before = _modes(module)
    with evaluating(module):
        assert not any(_modes(module))
    assert _modes(module) == before == [True, True, False, True, False]


def test_evaluating_gives_modes_back_after_an_error() -> None:
    module = _mixed()
    before = _modes(module)
    with pytest.raises(KeyError), evaluating(module):
        raise KeyError
    assert _modes(module) == before


# -- Outputs that are none ----------------------------------------------------------


class _Answers(nn.Module):
    """Returns what a function makes of the inputs."""

    def __init__(self, answer: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, x: Tensor) -> Any:
        return self.answer(x)


def _with_nan(x: Tensor) -> Tensor:
    output = x[:, :2].clone()
    output[3, 0] = torch.nan
    output[4] = torch.inf
    return output


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (lambda x: (x[:, :2], x), TypeError, "_Answers returned tuple. Wrap it"),
        (lambda x: {"logits": x}, TypeError, "_Answers returned dict. Wrap it"),
        (
            lambda x: x[:, :3],
            ValueError,
            r"= \(25, 2\); _Answers returned \(25, 3\)\. Wrap it",
        ),
        (lambda x: x[:, 0], ValueError, r"= \(25, 2\); _Answers returned \(25,\)"),
        (lambda x: x[:5, :2], ValueError, r"= \(25, 2\); _Answers returned \(5, 2\)"),
        (lambda x: x[None, :, :2], ValueError, r"returned \(1, 25, 2\)"),
        (_with_nan, ValueError, r"finite numbers; .* infinity for 2 of 25 rows"),
    ],
)
def test_what_is_no_prediction_is_said(
    answer: Callable[[Tensor], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _passes(module=_Answers(answer)).exact(X)


def test_one_output_may_come_without_its_axis() -> None:
    passes = _passes(module=_Answers(lambda x: x[:, 1]), n_outputs=1)
    np.testing.assert_array_equal(passes.exact(X), X[:, [1]])


def test_half_precision_is_an_output_too() -> None:
    passes = _passes(module=_Answers(lambda x: x[:, :2].bfloat16()))
    np.testing.assert_allclose(passes.exact(X), X[:, :2], rtol=1e-2)


def test_check_shows_mistakes_early() -> None:
    _passes().check(X)
    with pytest.raises(
        ValueError, match=r"= \(2, 3\); FTTransformer returned \(2, 2\)"
    ):
        _passes(module=_model(2), n_outputs=3).check(X)


@pytest.mark.parametrize("available", [True, False])
def test_auto_takes_an_accelerator_where_there_is_one(
    available: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: available)
    assert resolve_device("auto").type == ("cuda" if available else "cpu")
    assert resolve_device("cpu").type == "cpu"


# -- Devices ------------------------------------------------------------------------


def test_devices_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == resolve_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match=r"device must be 'auto' or .* got .*'cudaa'"):
        resolve_device("cudaa")
    with pytest.raises(ValueError, match="torch sees none here"):
        resolve_device("cuda:1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_device("auto") == torch.device("cuda")
