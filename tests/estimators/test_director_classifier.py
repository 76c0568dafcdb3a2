"""DirectorClassifier among scikit-learn's tools, and what it is for."""

import copy
import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.estimators.director_models import classes, fitted_classifier, tiny_classifier
from uqformer import DirectorClassifier
from uqformer._random import seeded
from uqformer.backbones import FrozenBackbone, PatchTransformer
from uqformer.metrics import expected_calibration_error

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def test_a_clone_is_unfitted_and_equal() -> None:
    twin = clone(fitted_classifier())
    assert twin.get_params() == fitted_classifier().get_params()
    assert not hasattr(twin, "module_")


def test_in_a_pipeline_and_a_search() -> None:
    X, y = classes()
    model = make_pipeline(StandardScaler(), tiny_classifier(distil_epochs=1))
    search = GridSearchCV(
        model, {"directorclassifier__student_share": [0.6, 0.9]}, cv=2
    ).fit(X, y)
    assert search.predict_proba(X).shape == (90, 3)
    sizes = [
        tiny_classifier(distil_epochs=1, student_share=share).fit(X, y).n_parameters_
        for share in (0.6, 0.9)
    ]
    assert sizes[0]["student"] < sizes[1]["student"]


def test_blocks_in_front_can_be_kept() -> None:
    X, y = classes()
    model = tiny_classifier(n_kept_blocks=1, distil_epochs=2).fit(X, y)
    assert model.n_steps_ == 1
    copies = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
    for twin in copies:
        np.testing.assert_allclose(
            twin.predict_proba(X), model.predict_proba(X), atol=1e-6
        )
    sizes = (
        model.n_parameters_,
        tiny_classifier(distil_epochs=1).fit(X, y).n_parameters_,
    )
    assert sizes[0]["student"] > sizes[1]["student"]
    with pytest.raises(ValueError, match=r"leave one of the 2 blocks .* got 2"):
        tiny_classifier(n_kept_blocks=2).fit(X, y)


def test_a_data_frame_with_words_and_gaps() -> None:
    pd = pytest.importorskip("pandas")
    X, y = classes()
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["word"] = np.where(y == "cat", "soft", "hard")
    frame.loc[3, "a"] = np.nan
    model = tiny_classifier(distil_epochs=60, distil_learning_rate=5e-3).fit(frame, y)
    assert model.feature_names_in_.tolist() == ["a", "b", "c", "word"]
    is_cat = model.predict(frame) == "cat"
    assert np.mean(is_cat == (y == "cat")) > 0.8


@pytest.mark.slow
def test_the_defaults_learn_a_small_table() -> None:
    X, y = load_iris(return_X_y=True)
    model = DirectorClassifier(random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9
    assert model.performance_weight_ in model.findings_.trials


def noisy_digits(noise: float) -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(y))
    X = X.reshape(-1, 8, 8) / 16 + noise * rng.standard_normal((len(y), 8, 8))
    return X[order], y[order]


def too_sure(X: np.ndarray, y: np.ndarray) -> PatchTransformer:
    """Train for too long, until the rows are known by heart."""
    x = torch.from_numpy(X).float()
    codes = torch.from_numpy(y)
    with seeded(0):
        model = PatchTransformer(8, 10, patch_size=2, d_token=32, n_blocks=4).adapt(x)
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        for _ in range(60):
            for rows in torch.randperm(len(x)).split(64):
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(
                    model(x[rows]), codes[rows]
                ).backward()
                optimizer.step()
    model.zero_grad()
    return model.eval()


@pytest.mark.slow
def test_a_student_is_better_calibrated_than_its_backbone() -> None:
    """Noisy digits: the gain in calibration stays, and little accuracy is lost.

    The student learns from four fifths of the rows that its backbone learned from.
    """
    X, y = noisy_digits(0.5)
    train, test = slice(0, 800), slice(800, None)
    backbone = too_sure(X[train], y[train])
    model = DirectorClassifier(
        FrozenBackbone(backbone), calibration=None, conformal=None, n_draws=16,
        performance_weight=10.0, validation_fraction=0.2, distil_epochs=60,
        random_state=0,
    ).fit(X[train], y[train])  # fmt: skip
    plain, chains = model.backbone_proba(X[test]), model.predict_proba(X[test])
    accuracy = [(p.argmax(axis=1) == y[test]).mean() for p in (plain, chains)]
    errors = [expected_calibration_error(y[test], p) for p in (plain, chains)]
    assert accuracy[1] > accuracy[0] - 0.04
    assert errors[1] < 0.6 * errors[0]
    assert log_loss(y[test], chains) < log_loss(y[test], plain) - 0.05
    assert model.n_parameters_["student"] < 0.7 * model.n_parameters_["backbone"]
    # rows of noise alone look less familiar
    strange = np.random.default_rng(1).standard_normal((500, 8, 8))
    familiar = model.score_samples(X[test])
    assert np.mean(familiar > np.median(model.score_samples(strange))) > 0.6
