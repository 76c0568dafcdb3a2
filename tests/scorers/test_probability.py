"""Scorers of classifiers: whole matrix, named columns, absent classes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, LeaveOneOut, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from uqformer import metrics
from uqformer.scorers import SCORERS, ProbabilityScorer

NAMES = [name for name in SCORERS if isinstance(SCORERS[name], ProbabilityScorer)]
# these ask whether failures are found, so there have to be some
NEED_FAILURES = {"failure_aupr_score", "failure_auroc_score", "neg_fpr_at_tpr_error"}
WEIGHTED = [name for name in NAMES if SCORERS[name]._accept_sample_weight()]


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"neg_log_loss"}))
def test_number_is_that_of_the_metric(name, labelled, classifier):
    X, y = labelled
    metric = getattr(metrics, name.removeprefix("neg_"))
    number = metric(y, classifier.predict_proba(X), labels=classifier.classes_)
    sign = -1 if name.startswith("neg_") else 1
    assert SCORERS[name](classifier, X, y) == pytest.approx(sign * number)


def test_log_loss_is_sklearns(labelled, classifier):
    X, y = labelled
    assert SCORERS["neg_log_loss"](classifier, X, y) == pytest.approx(
        -log_loss(y, classifier.predict_proba(X))
    )


def test_the_metric_gets_both_columns_of_two_classes(labelled):
    X, y = labelled
    seen = {}

    def spy(y_true, y_proba, labels):
        seen.update(y_proba=y_proba, labels=labels)
        return 0.0

    model = LogisticRegression().fit(X, y == "ash")
    ProbabilityScorer(spy)(model, X, y == "ash")
    np.testing.assert_array_equal(seen["y_proba"], model.predict_proba(X))
    np.testing.assert_array_equal(seen["labels"], [False, True])


def test_a_metric_without_labels_is_called_without(labelled, classifier):
    def mean_confidence(y_true, y_proba):
        return y_proba.max(axis=1).mean()

    assert 1 / 3 < ProbabilityScorer(mean_confidence)(classifier, *labelled) < 1


@pytest.mark.parametrize("name", NAMES)
def test_absent_classes_are_no_trouble(name, labelled, classifier):
    """A part that lacks a class is scored like any other (MAPIE#294, #116)."""
    X, y = labelled
    only = y == "birch"
    assert np.isfinite(SCORERS[name](classifier, X[only], y[only]))


@pytest.mark.parametrize("name", sorted(set(NAMES) - NEED_FAILURES))
def test_one_row_is_scored(name, labelled, classifier):
    X, y = labelled
    assert np.isfinite(SCORERS[name](classifier, X[:1], y[:1]))


@pytest.mark.parametrize("name", ["neg_log_loss", "neg_brier_loss"])
def test_leave_one_out_leaves_all_classes_but_one_out(name, labelled):
    X, y = labelled
    scores = cross_val_score(
        LogisticRegression(), X[:20], y[:20], scoring=SCORERS[name], cv=LeaveOneOut()
    )
    assert np.isfinite(scores).all()


def test_a_class_the_model_never_saw_is_named(labelled, classifier):
    X, _ = labelled
    strangers = np.full(len(X), "elm")
    with pytest.raises(ValueError, match="got 'elm' in 240 rows"):
        SCORERS["neg_brier_loss"](classifier, X, strangers)


@pytest.mark.parametrize("name", WEIGHTED)
def test_weights_reach_the_metric(name, labelled, classifier):
    X, y = labelled
    weights = (np.arange(len(y)) < 90).astype(float)
    weighted = SCORERS[name](classifier, X, y, sample_weight=weights)
    assert weighted == pytest.approx(SCORERS[name](classifier, X[:90], y[:90]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda e: make_pipeline(StandardScaler(with_std=False), e),
        lambda e: GridSearchCV(e, {}, cv=2),
        lambda e: make_pipeline("passthrough", GridSearchCV(e, {}, cv=2)),
    ],
    ids=["pipeline", "search", "both"],
)
def test_wrappers_are_looked_through(name, wrap, labelled, classifier):
    wrapped = wrap(clone(classifier)).fit(*labelled)
    expected = pytest.approx(SCORERS[name](classifier, *labelled), rel=1e-2, abs=1e-3)
    assert SCORERS[name](wrapped, *labelled) == expected
    assert SCORERS[name](FrozenEstimator(wrapped), *labelled) == expected


def test_data_frames_and_series(labelled, classifier):
    X, y = labelled
    frame = pd.DataFrame(X, columns=["a", "b"])
    model = LogisticRegression().fit(frame, pd.Series(y))
    for name in NAMES:
        assert SCORERS[name](model, frame, pd.Series(y)) == pytest.approx(
            SCORERS[name](classifier, X, y)
        )


def test_search_in_a_pipeline_with_all_scores_and_two_processes(labelled):
    scoring = {name: SCORERS[name] for name in NAMES}
    here, there = (
        GridSearchCV(
            make_pipeline(StandardScaler(), LogisticRegression()),
            {"logisticregression__C": [1e-4, 1.0]},
            scoring=scoring,
            refit="neg_brier_loss",
            cv=3,
            n_jobs=n_jobs,
        ).fit(*labelled)
        for n_jobs in (1, 2)
    )
    assert here.best_params_ == {"logisticregression__C": 1.0}
    for name in NAMES:
        scores = here.cv_results_[f"mean_test_{name}"]
        assert np.isfinite(scores).all()
        np.testing.assert_allclose(there.cv_results_[f"mean_test_{name}"], scores)


@pytest.mark.parametrize("name", ["neg_log_loss", "neg_brier_loss"])
def test_proper_scores_prefer_a_model_that_looks(name, labelled, classifier):
    climate = DummyClassifier().fit(*labelled)
    assert SCORERS[name](classifier, *labelled) > SCORERS[name](climate, *labelled)


def test_calibration_error_alone_prefers_the_climate(labelled, classifier):
    """Why the guide says: select by a proper score, watch calibration."""
    scorer = SCORERS["neg_expected_calibration_error"]
    climate = DummyClassifier().fit(*labelled)
    assert scorer(climate, *labelled) > scorer(classifier, *labelled)


def test_classifier_without_probabilities_is_named(labelled):
    model = make_pipeline(StandardScaler(), RidgeClassifier()).fit(*labelled)
    with pytest.raises(AttributeError, match=r"got RidgeClassifier.*Calibrated"):
        SCORERS["neg_brier_loss"](model, *labelled)
