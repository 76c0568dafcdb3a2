"""Tables as they come, from end to end: text, gaps, booleans and dates in a frame."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags

from tests.estimators.conftest import TINY, Guest, tiny, tiny_classifier
from uqformer import StochasticAttentionClassifier
from uqformer.backbones import FTTransformer
from uqformer.exceptions import UQFormerWarning
from uqformer.scorers import get_scorer

pytestmark = pytest.mark.filterwarnings(
    "ignore::uqformer.exceptions.CalibrationWarning"
)


def passengers(n_rows: int = 160, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Who was on board, and was saved: mostly women, and those whose fare is lost."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": rng.choice(["male", "female"], n_rows),
            "age": rng.uniform(1, 80, n_rows).round(),
            "fare": rng.lognormal(3, 1, n_rows),
            "deck": rng.choice(["A", "B", "C"], n_rows),
            "alone": rng.random(n_rows) < 0.5,
            "boarded": pd.Timestamp("1912-04-10")
            + pd.to_timedelta(rng.integers(0, 40, n_rows), "h"),
        }
    )
    logit = 5.0 * (frame["sex"] == "female") - 3
    unknown = rng.random(n_rows) < 0.3
    frame.loc[unknown, "fare"] = np.nan
    frame.loc[rng.random(n_rows) < 0.3, "deck"] = None
    saved = rng.random(n_rows) < 1 / (1 + np.exp(-logit - 4 * unknown))
    return frame, saved.map({True: "saved", False: "lost"}).rename("fate")


def years_left(frame: pd.DataFrame) -> np.ndarray:
    """A number that text, dates and numbers tell together."""
    hours = (frame["boarded"] - frame["boarded"].min()) / pd.Timedelta("1h")
    woman = frame["sex"] == "female"
    years: np.ndarray = (80 - frame["age"] + 20 * woman - hours).to_numpy(float)
    return years


@pytest.fixture(scope="module")
def classifier() -> Any:
    return tiny_classifier(max_epochs=40).fit(*passengers())


@pytest.fixture(scope="module")
def regressor() -> Any:
    X, _ = passengers()
    return tiny(max_epochs=30).fit(X, years_left(X))


# -- Fit and predict ----------------------------------------------------------------


def test_a_classifier_learns_from_text_and_gaps(classifier: Any) -> None:
    X, y = passengers(300, seed=1)
    assert classifier.classes_.tolist() == ["lost", "saved"]
    assert classifier.score(X, y) > 0.75 > 0.65 > (y == "saved").mean()
    proba = classifier.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    # what a missing fare says has been learnt, and not as if it were the mean
    mean = classifier.feature_scaler_.scaler_.mean_[1]
    gone, paid = (
        classifier.predict_proba(X.assign(fare=fare))[:, 1].mean()
        for fare in (np.nan, mean)
    )
    assert gone > proba[:, 1].mean() + 0.02 > paid + 0.04
    assert classifier.predict_set(X, 0.8).shape == (300, 2)


def test_a_regressor_learns_from_text_and_dates(regressor: Any) -> None:
    X, _ = passengers(300, seed=1)
    y = years_left(X)
    assert regressor.score(X, y) > 0.5
    for changed in (X.assign(sex="male"), X.assign(boarded=X["boarded"].min())):
        assert np.abs(regressor.predict(changed) - regressor.predict(X)).mean() > 2
    ends = regressor.predict_interval(X, 0.8)
    covered = (ends[:, 0] <= y) & (y <= ends[:, 1])
    assert covered.mean() > 0.6  # 32 rows calibrate
    assert regressor.predict_std(X, method="moments").min() > 0
    assert sum(regressor.attention_shares(X).values()) == pytest.approx(1)
    assert regressor.predict_quantiles(X[:1], [0.3, 0.7]).shape == (1, 2)


def test_columns_have_their_names(classifier: Any) -> None:
    X, _ = passengers()
    assert classifier.feature_names_in_.tolist() == X.columns.tolist()
    assert classifier.n_features_in_ == 6
    with pytest.raises(ValueError, match=r"same order as they were in fit"):
        classifier.predict(X[X.columns[::-1]])
    with pytest.raises(ValueError, match=r"Feature names seen at fit time.*\n- sex"):
        classifier.predict(X.drop(columns="sex"))


def test_a_table_is_read_the_same_in_any_company(regressor: Any) -> None:
    X, _ = passengers(40, seed=2)
    whole = regressor.predict_interval(X, 0.5)
    part = regressor.predict_interval(X[7:12], 0.5)
    np.testing.assert_allclose(part, whole[7:12], rtol=1e-4, atol=1e-4)


def test_a_pickled_one_reads_tables_too(classifier: Any) -> None:
    X, _ = passengers(40, seed=2)
    twin = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(twin.predict_proba(X), classifier.predict_proba(X))


# -- What training has not shown ----------------------------------------------------


def test_an_unknown_category_is_like_any_other_unknown_one(classifier: Any) -> None:
    X, _ = passengers(40, seed=2)
    proba = [
        classifier.predict_proba(X.assign(sex=sex)) for sex in ("x", "y", "male", None)
    ]
    np.testing.assert_array_equal(proba[0], proba[1])
    assert np.abs(proba[0] - proba[2]).max() > 0.01
    assert np.isfinite(proba[3]).all()


def test_a_gap_where_training_had_none(regressor: Any) -> None:
    X, _ = passengers(40, seed=2)
    for name in X.columns:
        holed = X.assign(**{name: X[name].astype(object)})
        holed.loc[::2, name] = None
        for verb in (regressor.predict, regressor.predict_std):
            answer = verb(holed)
            assert np.isfinite(answer).all()
            np.testing.assert_allclose(answer[1::2], verb(X)[1::2], rtol=1e-4)
    # a number that is missing unexpectedly is taken for the mean
    mean = regressor.feature_scaler_.scaler_.mean_[0]
    np.testing.assert_allclose(
        regressor.predict(X.assign(age=np.nan)),
        regressor.predict(X.assign(age=mean)),
        rtol=1e-3,
    )


def test_text_in_a_column_of_numbers_is_told(regressor: Any) -> None:
    X, _ = passengers(40, seed=2)
    with pytest.raises(ValueError, match=r"numbers in column 'age'; got 'old'"):
        regressor.predict(X.assign(age="old"))


# -- Which columns are categories ---------------------------------------------------


def test_numbers_may_be_taken_for_categories() -> None:
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"code": rng.integers(0, 4, 120), "x": rng.normal(size=120)})
    y = np.array([0.0, 3.0, -3.0, 1.0])[X["code"]] + 0.1 * X["x"]
    for chosen in (["code"], [0], [True, False], np.array(["code"])):
        model = tiny(categorical_features=chosen, max_epochs=1).fit(X, y)
        assert model.module_.n_categories == [4, None]
    assert tiny(max_epochs=1).fit(X, y).module_.n_categories == [None, None]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categorical_features": None}, r"must hold numbers in column 'sex'"),
        ({"categorical_features": ["sx"]}, r"hold names of columns .* got 'sx'"),
        ({"categorical_features": "sex"}, r"'categorical_features' parameter .* 'sex'"),
        ({"backbone_params": {"n_categories": [2]}}, r"which fit counts; choose the"),
        (
            {"backbone": Guest, "categorical_features": ["sex"]},
            r"for backbone='ft_transformer' alone; got categorical_features=\['sex'\]",
        ),
    ],
    ids=["none", "typo", "word", "counted", "backbone"],
)
def test_a_wrong_choice_is_said(changes: dict[str, Any], message: str) -> None:
    X, y = passengers()
    with pytest.raises(ValueError, match=message):
        tiny_classifier(**changes).fit(X, y)


def test_the_class_reads_tables_as_its_name_does() -> None:
    X, y = passengers()
    models = [
        tiny_classifier(backbone=backbone, max_epochs=2).fit(X, y)
        for backbone in ("ft_transformer", FTTransformer)
    ]
    np.testing.assert_array_equal(*(model.predict_proba(X) for model in models))
    for model in models:
        assert get_tags(model).input_tags.allow_nan
    assert not get_tags(tiny(backbone=Guest)).input_tags.allow_nan


def test_lists_of_rows_are_tables_too() -> None:
    X, y = passengers()
    rows = X[["sex", "age", "alone"]].to_numpy(object).tolist()
    model = tiny_classifier(max_epochs=2).fit(rows, y)
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")
    assert model.predict_proba(rows[:1]).shape == (1, 2)
    with pytest.raises(ValueError, match=r"X has 2 features, but .* expecting 3"):
        model.predict([row[:2] for row in rows])


def test_frames_of_other_libraries_are_read_alike() -> None:
    pl = pytest.importorskip("polars")
    X, y = passengers()
    gapless = X.astype(object).where(X.notna(), None)
    other = pl.DataFrame({name: gapless[name].tolist() for name in X})
    models = [tiny_classifier(max_epochs=2).fit(frame, y) for frame in (X, other)]
    np.testing.assert_allclose(
        models[0].predict_proba(X), models[1].predict_proba(other)
    )
    assert models[1].feature_names_in_.tolist() == X.columns.tolist()


# -- scikit-learn's tools -----------------------------------------------------------


def _without_deck(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.drop(columns="deck")


def _pipeline(model: Any) -> Pipeline:
    return make_pipeline(FunctionTransformer(_without_deck), model)


def test_a_search_over_a_pipeline_of_tables() -> None:
    X, y = passengers()
    model = tiny_classifier(max_epochs=3)
    grid = {
        "stochasticattentionclassifier__n_draws": [1, "auto"],
        "stochasticattentionclassifier__categorical_features": ["auto", ["sex"]],
    }
    search = GridSearchCV(
        _pipeline(model), grid, scoring="neg_log_loss", cv=2, error_score="raise"
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    best = search.best_estimator_[-1]
    assert best.feature_names_in_.tolist() == X.columns.drop("deck").tolist()
    assert search.predict_proba(X[:3]).shape == (3, 2)


def test_a_regressor_in_a_pipeline_is_searched_by_its_intervals() -> None:
    X, _ = passengers()
    y = years_left(X)
    search = GridSearchCV(
        _pipeline(tiny()),
        {"stochasticattentionregressor__n_draws": [4, 64]},
        scoring=get_scorer("neg_winkler_loss", confidence_level=0.5),
        cv=2,
        error_score="raise",
    ).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    point, std = search.best_estimator_.predict(X, return_std=True)
    assert point.shape == std.shape == y.shape


# -- A real table -------------------------------------------------------------------


@pytest.mark.slow
def test_titanic_end_to_end(uci_dir: Path) -> None:
    frame = pd.read_csv(uci_dir.parent / "tabular" / "titanic.csv.gz")
    y = frame.pop("survived")
    X, X_test, y, y_test = train_test_split(frame, y, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UQFormerWarning)  # of cabins
        model = StochasticAttentionClassifier(**TINY | {"max_epochs": 60}).fit(X, y)
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype")
    text = X.select_dtypes(exclude="number").columns
    kinds = dict.fromkeys(text, "category")
    trees.fit(X.astype(kinds), y)
    rival = trees.score(X_test.astype(kinds), y_test)
    assert model.score(X_test, y_test) > rival - 2 * np.sqrt(0.25 / len(y_test))
    assert model.score(X_test, y_test) > 0.74
