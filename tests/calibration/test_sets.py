"""Prediction sets: scores by hand, exact coverage, groups, and never an empty set."""

import math

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from scipy.stats import betabinom
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer.calibration import ConformalSets
from uqformer.calibration._sets import _uniforms
from uqformer.exceptions import InsufficientCalibrationError

METHODS = ["lac", "aps", "raps"]
EXCUSED = dict.fromkeys(
    [
        "check_estimators_fit_returns_self",
        "check_estimators_overwrite_params",
        "check_readonly_memmap_input",
    ],
    "the check has three labels and two columns, but predictions have a column for "
    "each label",
)


def labelled(n_rows, n_classes=5, seed=0, sharpness=1.0):
    """Probabilities that are right for `sharpness=1`, and labels drawn."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n_rows, n_classes))
    y = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return softmax(sharpness * logits, axis=1), y


def covered(sets, y):
    return sets[np.arange(len(y)), y]


@parametrize_with_checks(
    [ConformalSets(), ConformalSets("raps")], expected_failed_checks=lambda _: EXCUSED
)
def test_sets_keep_the_contract_of_sklearn(estimator, check):
    check(estimator)


# -- Scores -------------------------------------------------------------------------


def test_least_ambiguous_sets_take_what_lies_above_one_probability():
    y_proba, y = labelled(300)
    sets = ConformalSets("lac", allow_empty=True).fit(y_proba, y)
    scores = np.sort(1 - y_proba[np.arange(300), y])
    threshold = scores[math.ceil(301 * 0.8) - 1]
    new, _ = labelled(50, seed=1)
    np.testing.assert_array_equal(sets.predict_set(new, 0.8), 1 - new <= threshold)


@pytest.mark.parametrize("method", ["aps", "raps"])
def test_adaptive_scores_are_their_definition(method):
    y_proba, y = labelled(200)
    sets = ConformalSets(method, rank_penalty=0.03, n_free_ranks=2, random_state=0)
    sets.fit(y_proba, y)
    uniforms = _uniforms(y_proba, sets.seed_)
    for row in range(200):
        own = y_proba[row, y[row]]
        above = y_proba[row][y_proba[row] > own]
        expected = above.sum() + uniforms[row] * own
        if method == "raps":
            expected += 0.03 * max(0, len(above) + 1 - 2)
        assert sets.scores_[row] == pytest.approx(expected)


@pytest.mark.parametrize("method", METHODS)
def test_sets_are_taken_from_the_top(method):
    y_proba, y = labelled(300)
    sets = ConformalSets(method, random_state=0).fit(y_proba, y).predict_set(y_proba)
    order = np.argsort(-y_proba, axis=1)
    ordered = np.take_along_axis(sets, order, axis=1)
    assert (np.diff(ordered.astype(int), axis=1) <= 0).all()


def test_penalised_ranks_shorten_the_longest_sets():
    y_proba, y = labelled(2000, n_classes=30)
    plain = ConformalSets("aps", random_state=0).fit(y_proba, y).predict_set(y_proba)
    raps = ConformalSets("raps", rank_penalty=0.1, n_free_ranks=3, random_state=0)
    penalised = raps.fit(y_proba, y).predict_set(y_proba)
    assert penalised.sum(axis=1).max() < plain.sum(axis=1).max()


def test_least_ambiguous_sets_are_the_smallest_for_right_probabilities():
    y_proba, y = labelled(4000)
    sizes = [
        ConformalSets(method, random_state=0).fit(y_proba, y).predict_set(y_proba).sum()
        for method in METHODS
    ]
    assert sizes[0] == min(sizes)


# -- Coverage -----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "level"), [(9, 0.9), (60, 0.8), (200, 0.95)])
@pytest.mark.parametrize("sharpness", [1.0, 3.0])
def test_coverage_is_exact_on_average(method, n, level, sharpness):
    n_resamples, n_new = 200, 100
    counts = []
    for seed in range(n_resamples):
        y_proba, y = labelled(n + n_new, seed=seed, sharpness=sharpness)
        sets = ConformalSets(method, allow_empty=True, random_state=seed)
        sets.fit(y_proba[:n], y[:n])
        counts.append(covered(sets.predict_set(y_proba[n:], level), y[n:]).sum())
    rank = math.ceil(round((n + 1) * level, 9))
    law = betabinom(n_new, rank, n + 1 - rank)
    margin = 4 * law.std() / np.sqrt(n_resamples)
    assert np.mean(counts) == pytest.approx(law.mean(), abs=margin)
    # and their spread over resamples is that of the law, not of a lucky mean
    assert np.std(counts) == pytest.approx(law.std(), rel=0.3)


@pytest.mark.parametrize("method", METHODS)
def test_sets_that_may_not_be_empty_cover_no_less(method):
    y_proba, y = labelled(1200, sharpness=3.0)
    strict = ConformalSets(method, allow_empty=True, random_state=0)
    full = ConformalSets(method, random_state=0)
    at = [
        sets.fit(y_proba[:600], y[:600]).predict_set(y_proba[600:], 0.5)
        for sets in (strict, full)
    ]
    assert (at[0].sum(axis=1) == 0).any()
    assert (at[1].sum(axis=1) >= 1).all()
    assert (at[1] >= at[0]).all()
    first = y_proba[600:].argmax(axis=1)
    assert (at[1][np.arange(600), first]).all()
    np.testing.assert_array_equal(at[1].sum(axis=1), np.maximum(at[0].sum(axis=1), 1))


def test_sets_grow_with_the_level():
    y_proba, y = labelled(400)
    sets = ConformalSets("aps", random_state=0).fit(y_proba, y)
    levels = [0.5, 0.8, 0.95]
    together = sets.predict_set(y_proba, levels)
    assert together.shape == (400, 5, 3)
    assert (np.diff(together.astype(int), axis=2) >= 0).all()
    for k, level in enumerate(levels):
        alone = sets.predict_set(y_proba, level)
        assert alone.dtype == bool
        np.testing.assert_array_equal(together[:, :, k], alone)
    assert sets.predict_set(y_proba, [0.5]).shape == (400, 5, 1)


@pytest.mark.parametrize("level", [0.0, 1.0, 90])
def test_levels_lie_between_zero_and_one(level):
    y_proba, y = labelled(40)
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        ConformalSets().fit(y_proba, y).predict_set(y_proba, level)


def test_too_few_rows_for_a_level_are_refused():
    y_proba, y = labelled(12)
    sets = ConformalSets().fit(y_proba, y)
    assert sets.predict_set(y_proba, 0.9).any()
    with pytest.raises(InsufficientCalibrationError, match=r"at least 19 .* got 12"):
        sets.predict_set(y_proba, 0.95)


# -- Groups and classes -------------------------------------------------------------


def _grouped(n_rows, seed):
    """Two groups; in the second the predictions know nothing."""
    y_proba, y = labelled(n_rows, seed=seed)
    group = np.random.default_rng(seed).integers(0, 2, size=n_rows)
    y = np.where(group == 1, np.random.default_rng(seed + 1).permutation(y), y)
    return y_proba, y, np.array(["known", "strange"])[group]


def test_each_group_is_covered():
    shares = {"known": [], "strange": []}
    plain = {"known": [], "strange": []}
    for seed in range(60):
        y_proba, y, group = _grouped(600, seed)
        by_group = ConformalSets(allow_empty=True).fit(
            y_proba[:300], y[:300], by=group[:300]
        )
        inside = covered(
            by_group.predict_set(y_proba[300:], 0.8, by=group[300:]), y[300:]
        )
        alike = ConformalSets(allow_empty=True).fit(y_proba[:300], y[:300])
        without = covered(alike.predict_set(y_proba[300:], 0.8), y[300:])
        for name in shares:
            shares[name].append(inside[group[300:] == name].mean())
            plain[name].append(without[group[300:] == name].mean())
    for values in shares.values():
        assert np.mean(values) == pytest.approx(0.8, abs=0.025)
    assert np.mean(plain["strange"]) < 0.75 < 0.85 < np.mean(plain["known"])


@pytest.mark.parametrize("method", METHODS)
def test_each_class_is_covered(method):
    shares = []
    for seed in range(60):
        y_proba, y = labelled(800, n_classes=3, seed=seed)
        # the last class is predicted far too seldom
        y_proba = softmax(np.log(y_proba) - [0.0, 0.0, 2.0], axis=1)
        sets = ConformalSets(method, per_class=True, allow_empty=True, random_state=0)
        sets.fit(y_proba[:400], y[:400])
        inside = covered(sets.predict_set(y_proba[400:], 0.8), y[400:])
        shares.append([inside[y[400:] == k].mean() for k in range(3)])
    np.testing.assert_allclose(np.mean(shares, axis=0), 0.8, atol=0.03)


def test_groups_and_classes_together_have_their_own_thresholds():
    y_proba, y, group = _grouped(900, 0)
    sets = ConformalSets(per_class=True, allow_empty=True).fit(y_proba, y, by=group)
    found = sets.predict_set(y_proba, 0.8, by=group)
    for name in ("known", "strange"):
        for k in range(5):
            inside = (group == name) & (y == k)
            scores = np.sort(1 - y_proba[inside, k])
            threshold = scores[math.ceil((inside.sum() + 1) * 0.8) - 1]
            expected = 1 - y_proba[group == name, k] <= threshold
            np.testing.assert_array_equal(found[group == name, k], expected)


def test_a_small_group_or_class_is_named():
    y_proba, y = labelled(60)
    group = np.where(np.arange(60) < 5, "few", "many")
    sets = ConformalSets().fit(y_proba, y, by=group)
    with pytest.raises(InsufficientCalibrationError, match=r"group 'few'.* got 5"):
        sets.predict_set(y_proba, 0.9, by=group)
    names = np.array(list("abcde"))
    sets = ConformalSets(per_class=True, classes=names)
    sets.fit(y_proba[y != 3], names[y[y != 3]])
    with pytest.raises(InsufficientCalibrationError, match=r"class 'd'.* got 0"):
        sets.predict_set(y_proba, 0.5)


def test_groups_come_to_both_or_to_neither():
    y_proba, y, group = _grouped(60, 0)
    with pytest.raises(ValueError, match=r"fit had groups, predict_set got none"):
        ConformalSets().fit(y_proba, y, by=group).predict_set(y_proba)
    with pytest.raises(ValueError, match=r"fit had no groups, predict_set got some"):
        ConformalSets().fit(y_proba, y).predict_set(y_proba, by=group)
    sets = ConformalSets().fit(y_proba, y, by=group)
    with pytest.raises(ValueError, match=r"got by='new', of which there is no"):
        sets.predict_set(y_proba[:1], by=["new"])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        sets.predict_set(y_proba, by=group[:5])


# -- Chance -------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["aps", "raps"])
def test_a_row_has_the_same_set_in_any_company(method):
    y_proba, y = labelled(400)
    sets = ConformalSets(method, random_state=0).fit(y_proba, y)
    whole = sets.predict_set(y_proba)
    order = np.random.default_rng(1).permutation(400)
    np.testing.assert_array_equal(sets.predict_set(y_proba[order]), whole[order])
    np.testing.assert_array_equal(sets.predict_set(y_proba[7:8]), whole[7:8])
    again = clone(sets).fit(y_proba, y)
    np.testing.assert_array_equal(again.predict_set(y_proba), whole)
    other = clone(sets).set_params(random_state=1).fit(y_proba, y)
    assert (other.predict_set(y_proba) != whole).any()


def test_numbers_of_rows_are_uniform_and_follow_the_seed():
    y_proba, _ = labelled(20_000)
    numbers = _uniforms(y_proba, 1)
    assert ((numbers >= 0) & (numbers < 1)).all()
    counts = np.bincount((10 * numbers).astype(int), minlength=10)
    np.testing.assert_allclose(counts, 2000, atol=4 * np.sqrt(20_000 * 0.09))
    assert abs(np.corrcoef(numbers, _uniforms(y_proba, 2))[0, 1]) < 0.03
    assert abs(np.corrcoef(numbers, y_proba[:, 0])[0, 1]) < 0.03


# -- Input --------------------------------------------------------------------------


def test_logits_and_single_columns_are_read_as_calibrators_read_them():
    y_proba, y = labelled(200, n_classes=2)
    expected = ConformalSets().fit(y_proba, y).predict_set(y_proba)
    logits = log_softmax(np.log(y_proba), axis=1) - 3
    by_logits = ConformalSets(input="logits").fit(logits, y)
    np.testing.assert_array_equal(by_logits.predict_set(logits), expected)
    flat = y_proba[:, 1]
    names = np.array(["no", "yes"])[y]
    by_column = ConformalSets(input="proba").fit(flat, names)
    np.testing.assert_array_equal(by_column.predict_set(flat), expected)
    assert by_column.classes_.tolist() == ["no", "yes"]


def test_mapie_makes_the_same_least_ambiguous_sets():
    classification = pytest.importorskip("mapie.classification")
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = (X + rng.gumbel(size=X.shape)).argmax(axis=1)
    model = LogisticRegression().fit(X[:300], y[:300])
    theirs = classification.SplitConformalClassifier(
        model, confidence_level=0.8, conformity_score="lac", prefit=True
    )
    theirs.conformalize(X[300:600], y[300:600])
    ours = ConformalSets("lac", allow_empty=True)
    ours.fit(model.predict_proba(X[300:600]), y[300:600])
    expected = theirs.predict_set(X[600:])[1][:, :, 0]
    found = ours.predict_set(model.predict_proba(X[600:]), 0.8)
    np.testing.assert_array_equal(found, expected)
