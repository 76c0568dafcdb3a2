"""Held-out predictions: who predicts whom, which columns, and which rows count."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array, dok_matrix
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import (
    KFold,
    PredefinedSplit,
    RepeatedKFold,
    ShuffleSplit,
    StratifiedKFold,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC

from uqformer.calibration._crossfit import hold_out, respond
from uqformer.calibration._split import is_mapping, take_rows
from uqformer.exceptions import CalibrationWarning


class Memory(ClassifierMixin, BaseEstimator):
    """Is sure of the rows it was fitted on (told by their only feature)."""

    def fit(self, X, y, note=None, tag="same"):
        self.seen_, self.note_, self.tag_ = set(np.ravel(X)), note, tag
        self.classes_ = np.unique(y)
        return self

    def predict_proba(self, X):
        known = np.array([row in self.seen_ for row in np.ravel(X)])
        n_classes = len(self.classes_)
        proba = np.full((len(known), n_classes), 1 / n_classes)
        proba[known] = np.eye(n_classes)[0]
        return proba


X = np.arange(30.0)[:, None]
y = np.arange(30) % 3
CLASSES = np.arange(3)


def held(estimator, X=X, y=y, cv=None, classes=CLASSES, **fit_params):
    return hold_out(
        estimator,
        X,
        y,
        classes=classes,
        cv=cv,
        fit_params=fit_params,
        split_params={},
    )


@pytest.mark.parametrize("cv", [None, 3, KFold(4, shuffle=True, random_state=0)])
def test_every_row_is_predicted_by_a_model_that_has_not_seen_it(cv):
    found = held(Memory(), cv=cv)
    np.testing.assert_allclose(found.predictions, 1 / 3)
    assert sorted(found.rows) == list(range(30))
    assert found.estimator.seen_ == set(range(30))
    assert found.kind == "proba"


def test_after_one_split_the_model_of_its_training_rows_is_kept():
    cv = ShuffleSplit(1, test_size=10, random_state=0)
    found = held(Memory(), cv=cv)
    ((train, test),) = cv.split(X)
    assert found.estimator.seen_ == set(X[train, 0])
    np.testing.assert_array_equal(found.rows, test)
    np.testing.assert_allclose(found.predictions, 1 / 3)


def test_a_frozen_estimator_is_kept_and_predicts_all_rows():
    guest = Memory().fit(X[:5], y[:5])
    frozen = FrozenEstimator(guest)
    found = held(frozen)
    assert found.estimator is frozen
    np.testing.assert_array_equal(found.rows, np.arange(30))
    assert guest.seen_ == set(range(5))


def test_rows_are_held_out_at_most_once():
    for cv in (RepeatedKFold(n_splits=2, n_repeats=2), ShuffleSplit(5, test_size=9)):
        with pytest.raises(ValueError, match="cv must hold out each row at most once"):
            held(Memory(), cv=cv)


def test_logits_are_preferred_as_in_scikit_learn():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2))
    labels = np.arange(60) % 3
    assert held(SVC(), rows, labels).kind == "logits"
    assert held(GaussianNB(), rows, labels).kind == "proba"


def test_two_classes_are_given_both_their_columns():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(40, 2)), np.arange(40) % 2
    model = SVC().fit(rows, labels)
    found = respond(model, rows, "logits", np.arange(2))
    np.testing.assert_allclose(found[:, 1] - found[:, 0], model.decision_function(rows))


def test_scores_of_pairs_of_classes_are_refused():
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(40, 2)), np.arange(40) % 4
    model = SVC(decision_function_shape="ovo").fit(rows, labels)
    with pytest.raises(ValueError, match="one column for each of its 4 classes"):
        respond(model, rows, "logits", np.arange(4))


@pytest.mark.parametrize("estimator", [SVC(), GaussianNB()])
def test_unknown_classes_get_a_column_that_says_never(estimator):
    rng = np.random.default_rng(0)
    rows, labels = rng.normal(size=(40, 2)), np.array(["b", "d"])[np.arange(40) % 2]
    model = estimator.fit(rows, labels)
    classes = np.array(["a", "b", "c", "d"])
    kind = "logits" if hasattr(model, "decision_function") else "proba"
    found = respond(model, rows, kind, classes)
    known = respond(model, rows, kind, classes[[1, 3]])
    np.testing.assert_array_equal(found[:, [1, 3]], known)
    if kind == "proba":
        assert (found[:, [0, 2]] == 0).all()
    else:
        assert (found[:, [0, 2]] < known.min(axis=1, keepdims=True) - 27).all()


@pytest.mark.filterwarnings("ignore:The least populated class")
def test_a_row_alone_with_its_class_does_not_calibrate():
    labels = np.array([0, 1] * 14 + [0, 2])
    with pytest.warns(CalibrationWarning, match="1 of 30 rows are alone"):
        found = held(Memory(), y=labels, cv=StratifiedKFold(5))
    assert 29 not in found.rows
    assert len(found.rows) == 29
    assert found.estimator.classes_.tolist() == [0, 1, 2]
    # the other rows of that fold were predicted without the class
    assert np.count_nonzero(found.predictions[:, 2] == 0) == 5


def test_fit_parameters_are_cut_to_the_rows_of_the_fold():
    note = np.arange(30)
    found = held(Memory(), cv=ShuffleSplit(1, random_state=0), note=note, tag="kept")
    np.testing.assert_array_equal(found.estimator.note_, np.ravel(sorted_seen(found)))
    assert found.estimator.tag_ == "kept"
    listed = held(Memory(), cv=3, note=note.tolist())
    assert listed.estimator.note_ == list(range(30))


def sorted_seen(found):
    ((train, _),) = ShuffleSplit(1, random_state=0).split(X)
    return X[train]


def test_a_splitter_of_ones_own_is_followed():
    folds = np.where(np.arange(30) < 12, -1, 0)
    found = held(Memory(), cv=PredefinedSplit(folds))
    np.testing.assert_array_equal(found.rows, np.arange(12, 30))


ROWS = np.array([2, 0])


@pytest.mark.parametrize(
    ("rows_of", "expected"),
    [
        (np.arange(6).reshape(3, 2), [[4, 5], [0, 1]]),
        (["a", "b", "c"], ["c", "a"]),
        (("a", "b", "c"), ["c", "a"]),
        (pd.Series([7, 8, 9], index=[5, 6, 7]), [9, 7]),
    ],
)
def test_rows_are_taken_of_what_estimators_take(rows_of, expected):
    assert np.array(take_rows(rows_of, ROWS)).tolist() == expected


def test_rows_are_taken_of_frames_sparse_arrays_and_mappings():
    frame = pd.DataFrame({"a": [1, 2, 3]}, index=list("xyz"))
    assert take_rows(frame, ROWS).index.tolist() == ["z", "x"]
    sparse = csr_array(np.eye(3))
    np.testing.assert_array_equal(take_rows(sparse, ROWS).toarray(), np.eye(3)[ROWS])
    mapping = {"ids": np.arange(3), "text": ["a", "b", "c"]}
    taken = take_rows(mapping, ROWS)
    assert taken["ids"].tolist() == [2, 0]
    assert taken["text"] == ["c", "a"]
    assert is_mapping(mapping)
    assert not is_mapping(dok_matrix((2, 2)))
