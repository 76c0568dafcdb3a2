"""All or nothing: what a broken fit, a bad input or a pickle leaves behind."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from tests.estimators.conftest import Guest, tiny
from uqformer.backbones import FrozenBackbone

Data = tuple[np.ndarray, np.ndarray]


def spoilt(array: np.ndarray, value: float) -> np.ndarray:
    array = array.copy()
    array[3] = value
    return array


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_must_be_finite(heteroscedastic: Data, value: float) -> None:
    X, y = heteroscedastic
    model = tiny(backbone=Guest, backbone_params=None).fit(X, y)
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        model.predict(spoilt(X, value))
    with pytest.raises(ValueError, match=r"Input y contains (NaN|infinity)"):
        model.fit(X, spoilt(y, value))
    with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
        model.fit(spoilt(X, value), y)


def test_a_table_may_lack_numbers_but_not_hold_infinite_ones(
    heteroscedastic: Data, fitted: Any
) -> None:
    X, y = heteroscedastic
    assert np.isfinite(fitted.predict_std(spoilt(X, np.nan))).all()
    with pytest.raises(ValueError, match=r"got inf \(infinity\) in column 0, row 3"):
        fitted.predict(spoilt(X, np.inf))
    with pytest.raises(ValueError, match=r"finite numbers or missing ones; got -inf"):
        tiny().fit(spoilt(X, -np.inf), y)
    with pytest.raises(ValueError, match=r"Input y contains NaN"):
        tiny().fit(X, spoilt(y, np.nan))


def test_too_few_rows(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    with pytest.raises(ValueError, match=r"0 sample\(s\)"):
        tiny().fit(X[:0], y[:0])
    with pytest.raises(ValueError, match=r"1 sample\(s\).*minimum of 5"):
        tiny().fit(X[:1], y[:1])
    with pytest.raises(ValueError, match=r"must leave 3 rows to train on"):
        tiny(calibration_fraction=0.9, validation_fraction=0.09).fit(X, y)


def test_words_get_a_way_out(heteroscedastic: Data, fitted: Any) -> None:
    X, y = heteroscedastic
    words = X.astype(object)
    words[0, 0] = "red"
    other = tiny(backbone=Guest, backbone_params=None).fit(X, y)
    expected = r"must be numbers.*'ft_transformer', which .*OneHotEncoder"
    with pytest.raises(ValueError, match=expected):
        other.predict(words)
    with pytest.raises(ValueError, match=expected):
        other.fit(words, y)
    with pytest.raises(ValueError, match=r"numbers or text in column 0; .*'red'"):
        tiny().fit(words, y)
    with pytest.raises(ValueError, match=r"must hold numbers in column 0; got 'red'"):
        fitted.predict(words)


def test_sparse_input_is_told_what_to_do(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    with pytest.raises(TypeError, match=r"toarray"):
        tiny().fit(sparse.csr_array(X), y)


def test_other_columns_than_in_fit(fitted: Any, heteroscedastic: Data) -> None:
    with pytest.raises(ValueError, match=r"2 features.*expecting 3"):
        fitted.predict(heteroscedastic[0][:, :2])


def test_values_beyond_float32(heteroscedastic: Data, guest: Guest) -> None:
    X, y = heteroscedastic
    model = tiny(backbone=FrozenBackbone(guest), backbone_params=None)
    with pytest.raises(ValueError, match=r"float32 range.*1e\+300"):
        model.fit(spoilt(X, 1e300), y)


@pytest.mark.parametrize(
    ("level", "sentence"),
    [(95, "For 95 % pass 0.95"), (0, "strictly between"), (1.0, "strictly between")],
)
def test_levels(
    fitted: Any, heteroscedastic: Data, level: float, sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        fitted.predict_interval(heteroscedastic[0], confidence_level=level)


def test_unfitted(heteroscedastic: Data) -> None:
    X, _ = heteroscedastic
    for verb in ("predict", "predict_std", "predict_interval", "predict_ensemble"):
        with pytest.raises(NotFittedError):
            getattr(tiny(), verb)(X)
    with pytest.raises(NotFittedError):
        tiny().predict_quantiles(X, [0.5])


@pytest.mark.parametrize("where", ["forward", "calibration"])
def test_ctrl_c_leaves_an_unfitted_estimator(
    heteroscedastic: Data, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    X, y = heteroscedastic
    model = tiny().fit(X, y)

    def interrupt(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    if where == "forward":
        monkeypatch.setattr(
            "uqformer._training.WeightedSquaredError.forward", interrupt
        )
    else:
        monkeypatch.setattr("uqformer.calibration.AdaptiveConformal.fit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y)
    assert not [name for name in vars(model) if name.endswith("_")]
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_failed_fit_keeps_metadata_requests(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    model = tiny()
    before = set(vars(model))
    with pytest.raises(ValueError, match=r"infinity"):
        model.fit(spoilt(X, np.inf), y)
    assert set(vars(model)) == before


def test_a_pickle_holds_cpu_weights(fitted: Any) -> None:
    twin = pickle.loads(pickle.dumps(fitted))
    assert {p.device.type for p in twin.module_.parameters()} == {"cpu"}
    assert twin.module_ is not fitted.module_


def test_a_shallow_copy_of_an_unfitted_estimator(heteroscedastic: Data) -> None:
    X, y = heteroscedastic
    twin = copy.copy(tiny())
    assert twin.fit(X, y) is twin
