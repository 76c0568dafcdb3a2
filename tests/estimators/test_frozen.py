"""as_frozen: the trained network as a guest, in the units of those who fitted it."""

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from torch import nn

from tests.estimators.conftest import TINY, Reader, texts, tiny, tiny_classifier
from uqformer import DirectorRegressor
from uqformer.backbones import FrozenBackbone
from uqformer.exceptions import CalibrationWarning

pytestmark = pytest.mark.filterwarnings(
    "ignore:Even n_draws:uqformer.exceptions.CalibrationWarning",
    "ignore:Every number:uqformer.exceptions.CalibrationWarning",
)


def _table(n_rows: int = 90) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers with gaps, words and dates; targets far from zero, of large units."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "length": rng.normal(50, 10, n_rows),
            "kind": rng.choice(["u", "v"], n_rows),
            "day": pd.date_range("2020-01-01", periods=n_rows),
        }
    )
    y = 1e4 + 100 * X["length"].to_numpy() + 300 * rng.standard_normal(n_rows)
    X.loc[::7, "length"] = np.nan
    return X, y


def _calibrated_anew(model: Any, X: Any, y: Any) -> Any:
    params = {"backbone": model.as_frozen(), "backbone_params": None}
    return clone(model).set_params(**params).fit(X, y)


def test_it_takes_the_same_table_and_speaks_the_same_units() -> None:
    X, y = _table()
    model = tiny().fit(X[:60], y[:60])
    later = _calibrated_anew(model, X[60:], y[60:])
    np.testing.assert_allclose(later.predict(X), model.predict(X), rtol=1e-6)
    members = later.predict_ensemble(X).members
    np.testing.assert_allclose(members, model.predict_ensemble(X).members, rtol=1e-6)
    assert later.feature_names_in_.tolist() == ["length", "kind", "day"]
    assert later.n_features_in_ == 3
    held = later.calibration_
    assert len(held.validation) + len(held.calibration) == 30
    with pytest.raises(ValueError, match="feature names should match"):
        later.predict(X.rename(columns={"day": "night"}))


def test_its_intervals_are_those_of_the_later_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (300, 3))
    y = 50 + X[:, 0] + np.where(np.arange(300) < 150, 0.1, 3.0) * rng.normal(size=300)
    model = tiny(max_epochs=20).fit(X[:150], y[:150])
    later = _calibrated_anew(model, X[150:], y[150:])
    widths = [np.ptp(m.predict_interval(X), axis=1).mean() for m in (model, later)]
    assert widths[1] > 4 * widths[0]


def test_columns_of_classes_keep_their_names(three_classes: Any) -> None:
    X, y = three_classes
    model = tiny_classifier().fit(X[:80], y[:80])
    rare = y[80:].copy()
    rare[rare == "bee"] = "cat"  # a class that later rows lack
    later = _calibrated_anew(model, X[80:], rare)
    assert later.classes_.tolist() == ["ant", "bee", "cat"]
    both = (m.predict_ensemble(X).mean_proba() for m in (model, later))
    np.testing.assert_allclose(*both, rtol=1e-5)
    again = _calibrated_anew(later, X[80:], rare)  # a guest of a guest
    np.testing.assert_array_equal(again.predict_proba(X), later.predict_proba(X))


def test_columns_that_a_guest_has_in_another_order(reader: Reader) -> None:
    X, codes = texts(60)
    labels = np.array(["c", "a", "b"])[codes]
    guest = FrozenBackbone(reader, classes=["c", "a", "b"])
    bare = {"backbone_params": None, "calibration": None, "conformal": None}
    model = tiny_classifier(backbone=guest, **bare).fit(X, labels)
    assert model.as_frozen().classes.tolist() == ["c", "a", "b"]
    later = _calibrated_anew(model, X, labels)
    np.testing.assert_allclose(later.predict_proba(X), model.predict_proba(X))


def test_windows_and_several_targets_pass_through() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((80, 12, 1)).cumsum(axis=1)
    y = X[:, -1] * 10 + 100 + rng.standard_normal((80, 2))
    shape = {"d_token": 8, "n_blocks": 1}
    model = tiny(backbone="sequence", backbone_params=shape).fit(X[:50], y[:50])
    later = _calibrated_anew(model, X[50:], y[50:])
    np.testing.assert_allclose(later.predict(X), model.predict(X), rtol=1e-6)
    with pytest.raises(ValueError, match=r"rows of shape \(12, 1\)"):
        later.predict(X[:, 1:])


def test_a_later_fit_leaves_the_guest_as_it_was() -> None:
    X, y = _table()
    model = tiny().fit(X[:60], y[:60])
    later = _calibrated_anew(model, X[60:], y[60:])
    before = later.predict(X)
    model.fit(X, -y)
    np.testing.assert_array_equal(later.predict(X), before)
    copy = pickle.loads(pickle.dumps(later))
    np.testing.assert_array_equal(copy.predict(X), before)


def test_a_director_gives_its_backbone() -> None:
    X, y = _table()
    params = {"max_epochs": 2, "distil_epochs": 2, "performance_weight": 10.0}
    shape = TINY["backbone_params"]
    director = DirectorRegressor(backbone_params=shape, random_state=0, **params)
    director.fit(X, y)
    guest = director.as_frozen()
    model = tiny(backbone=guest, backbone_params=None).fit(X, y)
    expected = director.backbone_predict(X)
    np.testing.assert_allclose(model.predict(X), expected, rtol=1e-6)
    student = clone(director).set_params(backbone=guest, backbone_params=None)
    student.fit(X, y)
    np.testing.assert_allclose(student.backbone_predict(X), expected, rtol=1e-6)


# -- FrozenBackbone(model.module_) ---------------------------------------------------


def test_a_module_that_knows_other_units_is_no_silent_guest(
    fitted: Any, fitted_classifier: Any
) -> None:
    with pytest.warns(CalibrationWarning, match=r"inputs and targets; .*as_frozen"):
        FrozenBackbone(fitted.module_)
    with pytest.warns(CalibrationWarning, match="knows only standardised inputs;"):
        FrozenBackbone(fitted_classifier.module_)


def test_a_module_that_knows_the_users_units_is_welcome(guest: nn.Module) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 6, 1))
    shape = {"d_token": 8, "n_blocks": 1}
    model = tiny_classifier(
        backbone="sequence", backbone_params=shape, max_epochs=2, calibration=None
    ).fit(X, X[:, -1, 0] > 0)  # neither windows nor logits are scaled
    FrozenBackbone(model.module_)
    regressor = tiny(backbone=FrozenBackbone(guest), backbone_params=None)
    regressor.fit(rng.standard_normal((40, 3)), rng.standard_normal(40))
    assert regressor.module_ is guest
    FrozenBackbone(regressor.module_)
