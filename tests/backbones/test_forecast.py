"""ForecastBackbone: what forecasters give, in what order, and row by row."""

import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor, nn

from tests.backbones.guests import D, H, run, untouched
from uqformer.attention import stochastic_attention
from uqformer.backbones import ForecastBackbone
from uqformer.backbones._adapters import GuestProtocol

STEPS, HORIZON, CHANNELS = 16, 4, 2
LEVELS = [0.1, 0.5, 0.9]
SIZE = {"num_hidden_layers": 1, "num_attention_heads": H, "initializer_range": 0.5}
PATCHTST = {
    "context_length": STEPS, "prediction_length": HORIZON, "patch_length": 4,
    "patch_stride": 4, "d_model": D, "ffn_dim": 8, "init_std": 0.5,
}  # fmt: skip
TIMESFM = {
    "context_length": STEPS, "horizon_length": HORIZON, "patch_length": 4,
    "hidden_size": D, "intermediate_size": 8, "head_dim": 4, "quantiles": LEVELS,
}  # fmt: skip
LONG = {"num_key_value_heads": H, "output_quantile_len": HORIZON, "decode_index": 2}


def make(name: str, **options: Any) -> Any:
    """Build a tiny forecaster with random weights, in training mode."""
    transformers = pytest.importorskip(
        "transformers", reason="these forecasters need transformers"
    )
    transformers.logging.set_verbosity_error()
    sizes = {"PatchTST": PATCHTST | {"num_input_channels": CHANNELS}}
    sizes |= {"TimesFm": TIMESFM, "TimesFm2_5": TIMESFM | LONG}
    task = "ForPrediction" if name == "PatchTST" else "ModelForPrediction"
    model_class = getattr(transformers, f"{name}{task}")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return model_class(
            model_class.config_class(**SIZE | sizes[name] | options)
        ).train()


def windows(*shape: int) -> NDArray[np.float32]:
    rng = np.random.default_rng(0)
    return rng.standard_normal(shape).cumsum(axis=1).astype(np.float32)


class Quantiles(nn.Module):
    """Gives levels around the last value: (n, Q, horizon), or (n, horizon, Q)."""

    def __init__(self, axis: int = 1, named: bool = True, **config: Any) -> None:
        super().__init__()
        self.axis, self.named = axis, named
        self.config = SimpleNamespace(**config)

    def forward(self, context: Tensor, mask: Tensor | None = None) -> Any:
        steps = torch.arange(1, HORIZON + 1)
        point = context[:, -1:, None] + steps[None, None]  # (N, 1, horizon)
        output = point + torch.tensor([-1.0, 0.0, 1.0])[:, None]  # (N, Q, horizon)
        output = output if self.axis == 1 else output.transpose(1, 2)
        return SimpleNamespace(quantile_preds=output) if self.named else output


# ---------------------------------------------------------------------- what is given


def test_patchtst_is_run_as_it_is() -> None:
    model, X = make("PatchTST"), windows(3, STEPS, CHANNELS)
    guest = ForecastBackbone(model)
    with untouched(model):
        output = run(guest.build(HORIZON * CHANNELS), guest.encode(X))
    with torch.no_grad():
        own = model.eval()(past_values=torch.from_numpy(X)).prediction_outputs
    assert torch.equal(output, own.flatten(1))


@pytest.mark.parametrize("family", ["student_t", "normal"])
def test_of_a_distribution_the_mean_is_taken(family: str) -> None:
    model = make("PatchTST", loss="nll", distribution_output=family)
    guest, X = ForecastBackbone(model), windows(3, STEPS, CHANNELS)
    output = run(guest.build(HORIZON * CHANNELS), guest.encode(X))
    with torch.no_grad(), torch.random.fork_rng():
        torch.manual_seed(0)
        model.config.num_parallel_samples = 4_000
        drawn = model.eval().generate(past_values=torch.from_numpy(X[:1])).sequences[0]
    drawn = drawn.flatten(1)  # (draws, horizon * channels)
    error = (drawn.mean(dim=0) - output[0]).abs()
    assert (error < 5 * drawn.std(dim=0) / 4_000**0.5).all()


@pytest.mark.parametrize("name", ["TimesFm", "TimesFm2_5"])
def test_timesfm_is_run_as_it_is(name: str) -> None:
    model, X = make(name), windows(3, STEPS)
    guest = ForecastBackbone(model)
    with untouched(model):
        output = run(guest.build(HORIZON), guest.encode(X))
    with torch.no_grad():
        own = model.eval()(past_values=[torch.from_numpy(row) for row in X])
    torch.testing.assert_close(output, own.mean_predictions)


@pytest.mark.parametrize("name", ["TimesFm", "TimesFm2_5"])
def test_a_forecast_does_not_depend_on_its_neighbours(name: str) -> None:
    """TimesFM 2.5 alone cuts at zero if no value of the whole batch is below."""
    model = make(name)
    X = np.stack([windows(1, STEPS)[0] ** 2, -(windows(1, STEPS)[0] ** 2) - 1])
    X = np.concatenate([X, 0.01 * X])
    guest = ForecastBackbone(model)
    module = guest.build(HORIZON).eval()
    whole = run(module, guest.encode(X))
    alone = torch.cat([run(module, guest.encode(X[i : i + 1])) for i in range(4)])
    torch.testing.assert_close(whole, alone, atol=1e-5, rtol=1e-4)
    with torch.no_grad():
        own = [model.eval()(past_values=torch.tensor(X[[i]])) for i in range(4)]
        own = torch.cat([each.mean_predictions for each in own])
    torch.testing.assert_close(whole, own, atol=1e-5, rtol=1e-4)


def test_forecasts_of_what_is_positive_are_cut_at_zero() -> None:
    """The test above would see nothing if no forecast were cut."""
    model = make("TimesFm2_5")
    X = torch.tensor(0.01 * windows(1, STEPS) ** 2)
    with torch.no_grad():
        free = model(past_values=X, truncate_negative=False).mean_predictions
    if (free >= 0).all():
        X = X.flip(1)
        free = model(past_values=X, truncate_negative=False).mean_predictions
    assert (free < 0).any()
    guest = ForecastBackbone(model)
    output = run(guest.build(HORIZON), guest.encode(X.numpy()))
    assert (output == 0).any()


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("named", [True, False])
def test_of_quantiles_the_median_is_taken(axis: int, named: bool) -> None:
    config = {"chronos_config": {"quantiles": LEVELS, "context_length": STEPS}}
    X = windows(3, STEPS)
    expected = X[:, -1:] + np.arange(1, HORIZON + 1)
    for options, levels in (({}, LEVELS), (config, None)):
        guest = ForecastBackbone(Quantiles(axis, named, **options), quantiles=levels)
        output = run(guest.build(HORIZON), guest.encode(X))
        np.testing.assert_allclose(output, expected, rtol=1e-6)


def test_channels_of_a_forecaster_of_single_series_go_step_by_step() -> None:
    X = windows(3, STEPS, CHANNELS)
    guest = ForecastBackbone(Quantiles(), quantiles=LEVELS, horizon=2)
    output = run(guest.build(2 * CHANNELS), guest.encode(X)).numpy()
    steps = np.arange(1, 3)[:, None]
    expected = X[:, -1:] + steps  # (n, horizon, channels)
    np.testing.assert_allclose(output, expected.reshape(3, -1), rtol=1e-6)


def test_the_first_steps_of_the_horizon_are_taken() -> None:
    model, X = make("PatchTST"), windows(3, STEPS, CHANNELS)
    whole, part = ForecastBackbone(model), ForecastBackbone(model, horizon=3)
    full = run(whole.build(HORIZON * CHANNELS), whole.encode(X))
    first = run(part.build(3 * CHANNELS), part.encode(X))
    assert torch.equal(first, full[:, : 3 * CHANNELS])


@pytest.mark.parametrize("name", ["PatchTST", "TimesFm", "TimesFm2_5"])
def test_attention_is_redrawn_row_by_row(name: str) -> None:
    channels = CHANNELS if name == "PatchTST" else 1
    X = windows(3, STEPS, channels)
    guest = ForecastBackbone(make(name))
    module = guest.build(HORIZON * channels).eval()
    exact = run(module, guest.encode(X))

    def redraw(X: NDArray[np.float32]) -> Tensor:
        with stochastic_attention(module, n_draws=2, seed=0):
            return run(module, guest.encode(X))

    with untouched(guest.model):
        redrawn = redraw(X)
    assert not torch.allclose(redrawn, exact, atol=1e-3)
    alone = torch.cat([redraw(X[i : i + 1]) for i in range(3)])
    torch.testing.assert_close(alone, redrawn, atol=1e-4, rtol=1e-4)


# ------------------------------------------------------------------------ what goes in


def test_the_last_steps_of_longer_windows_are_seen() -> None:
    X = windows(3, STEPS + 5)
    guest = ForecastBackbone(make("TimesFm"), context_length=STEPS)
    np.testing.assert_array_equal(guest.encode(X)["past_values"], X[:, 5:])


def test_windows_come_as_lists_mappings_and_columns() -> None:
    X = windows(3, STEPS)
    guest = ForecastBackbone(make("TimesFm"))
    for form in (X.tolist(), {"past_values": X}, X.astype(np.float64)):
        np.testing.assert_array_equal(guest.encode(form)["past_values"], X)


@pytest.mark.parametrize(
    ("name", "X", "error", "message"),
    [
        ("TimesFm", np.ones(9), ValueError, r"shape \(n_samples, time\).*got \(9,\)"),
        ("TimesFm", np.ones((0, 9)), ValueError, r"got \(0, 9\)"),
        ("TimesFm", [["a"]], TypeError, "array of numbers.*dtype=<U1"),
        ("TimesFm", np.ones((2, 17)), ValueError, "longer than the 16 .*length=16"),
        ("TimesFm", np.full((2, 9), np.nan), ValueError, "infinity in row 0. Fill"),
        (
            "TimesFm",
            {"X": np.ones((2, 9))},
            ValueError,
            "must hold 'past_values' alone",
        ),
        ("PatchTST", np.ones((2, 16)), ValueError, "16 steps and 2 .*got 16 and 1"),
        ("PatchTST", np.ones((2, 9, 2)), ValueError, "got 9 and 2"),
    ],
)
def test_bad_windows_are_named(name: str, X: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        ForecastBackbone(make(name)).encode(X)


class NeedsMore(nn.Module):
    def forward(self, past_values: Tensor, past_time_features: Tensor) -> Tensor:
        return past_values


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"model": "chronos"}, TypeError, "takes a torch.nn.Module; got str"),
        ({"model": NeedsMore()}, TypeError, r"needs \['past_time_features'\] too"),
        ({"horizon": 0}, ValueError, "at least 1 and at most 4.*got horizon=0"),
        ({"horizon": 5}, ValueError, "got horizon=5"),
        ({"context_length": 17}, ValueError, "at most 16.*got context_length=17"),
        ({"quantiles": [0.1, 0.9]}, ValueError, r"0.5 among them; got \[0.1, 0.9\]"),
    ],
)
def test_wrong_arguments_are_named(options: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        ForecastBackbone(**{"model": make("TimesFm")} | options)


def test_levels_that_are_not_said_are_asked_for() -> None:
    X = {"context": windows(2, STEPS)}
    with pytest.raises(ValueError, match=r"shape \(2, 3, 4\); pass quantiles="):
        run(ForecastBackbone(Quantiles()).build(HORIZON), X)
    wrong = ForecastBackbone(Quantiles(), quantiles=[0.5])
    with pytest.raises(ValueError, match="got 1 levels for an output of shape"):
        run(wrong.build(HORIZON), X)


def test_another_number_of_targets_is_named() -> None:
    guest = ForecastBackbone(make("TimesFm"))
    with pytest.raises(ValueError, match=r"got shape \(2, 4\)\. .* set horizon"):
        run(guest.build(3), guest.encode(windows(2, STEPS)))


def test_a_forecaster_that_gives_no_tensor_is_named() -> None:
    class Words(nn.Module):
        def forward(self, past_values: Tensor) -> str:
            return "up"

    guest = ForecastBackbone(Words())
    with pytest.raises(TypeError, match="Words gives str, of which no forecast"):
        run(guest.build(1), guest.encode(windows(2, STEPS)))


def test_it_is_a_guest_that_is_shared_and_pickled() -> None:
    guest = ForecastBackbone(make("TimesFm"), horizon=2)
    assert isinstance(guest, GuestProtocol)
    assert not guest.trains
    assert clone(guest) is guest
    assert repr(guest) == "ForecastBackbone(TimesFmModelForPrediction, horizon=2)"
    X = windows(2, STEPS)
    copy = pickle.loads(pickle.dumps(guest))
    output = run(guest.build(2), guest.encode(X))
    assert torch.equal(run(copy.build(2), copy.encode(X)), output)
