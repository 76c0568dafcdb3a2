"""A regressor and a classifier that know their uncertainty, without torch."""

from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression, LogisticRegression


def define_normal_linear():
    """Define the toy in a function: other processes get such a class by value."""

    class NormalLinear(RegressorMixin, BaseEstimator):
        """Least squares with normal noise, its residuals' deviation times `factor`."""

        def __init__(self, factor=1.0):
            self.factor = factor

        def fit(self, X, y, sample_weight=None):
            self.linear_ = LinearRegression().fit(X, y, sample_weight)
            self.std_ = self.factor * np.std(y - self.linear_.predict(X), axis=0)
            return self

        def predict(self, X, return_std=False):
            mean = self.linear_.predict(X)
            return (mean, np.full_like(mean, self.std_)) if return_std else mean

        def predict_ensemble(self, X):
            grid = (np.arange(40) + 0.5) / 40
            return SimpleNamespace(
                members=np.moveaxis(self.predict_quantiles(X, grid), 1, 0)
            )

        def predict_quantiles(self, X, quantiles):
            steps = np.multiply.outer(norm.ppf(quantiles), self.std_)
            return self.predict(X)[:, None] + steps

        def predict_interval(self, X, confidence_level=0.9):
            level = np.asarray(confidence_level)
            ends = np.stack([(1 - level) / 2, (1 + level) / 2])
            values = self.predict_quantiles(X, ends.reshape(-1))
            return values.reshape(len(X), *ends.shape, *values.shape[2:])

    return NormalLinear


@pytest.fixture(scope="session")
def normal_linear():
    """Class of the toy regressor."""
    return define_normal_linear()


@pytest.fixture(scope="session")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    return X, X @ [1.0, 2.0, 3.0] + rng.normal(size=150)


@pytest.fixture(scope="session")
def fitted(data, normal_linear):
    return normal_linear().fit(*data)


@pytest.fixture(scope="session")
def labelled():
    """Rows of three named classes that overlap."""
    rng = np.random.default_rng(1)
    codes = rng.integers(3, size=240)
    X = rng.normal(size=(240, 2)) + 1.2 * np.eye(3)[codes, :2]
    return X, np.array(["ash", "birch", "cedar"])[codes]


@pytest.fixture(scope="session")
def classifier(labelled):
    return LogisticRegression().fit(*labelled)
