"""DirectorRegressor among scikit-learn's tools, and on a line with noise."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from tests.estimators.director_models import fitted_regressor, numbers, tiny_regressor
from uqformer import DirectorRegressor, predict_interval

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def test_a_clone_is_unfitted_and_equal() -> None:
    twin = clone(fitted_regressor())
    assert twin.get_params() == fitted_regressor().get_params()
    assert not hasattr(twin, "module_")


def test_a_pickled_regressor_predicts_the_same() -> None:
    X, _ = numbers()
    model = fitted_regressor()
    twin = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        twin.predict_interval(X, 0.5), model.predict_interval(X, 0.5)
    )


def test_in_a_pipeline() -> None:
    X, y = numbers()
    model = make_pipeline(StandardScaler(), tiny_regressor(distil_epochs=1))
    assert len(cross_val_score(model, X, y, cv=2)) == 2
    model.fit(X, y)
    point, std = model.predict(X, return_std=True)
    assert point.shape == std.shape == (90,)
    assert predict_interval(model, X, 0.5).shape == (90, 2)


def test_the_number_of_draws_is_chosen_by_the_spread() -> None:
    """An error of no size at all would ask for the most draws; this one does not."""
    X, y = numbers()
    model = tiny_regressor(n_draws="auto", distil_epochs=1).fit(X, y)
    assert 1 <= model.n_draws_ < 256


@pytest.mark.slow
def test_the_defaults_learn_a_line() -> None:
    X, y = numbers(400, seed=2)
    new, truth = numbers(400, seed=3)
    model = DirectorRegressor(random_state=0).fit(X, y)
    assert model.score(new, truth) > 0.75
    ends = model.predict_interval(new, 0.9)
    assert 0.82 < np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) < 0.97
