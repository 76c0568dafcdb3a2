"""scikit-learn's own contract, for every public estimator."""

from functools import partial
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer import (
    DirectorClassifier,
    DirectorRegressor,
    StochasticAttentionClassifier,
    StochasticAttentionRegressor,
)
from uqformer.backbones import FTTransformer

SHAPE = {"d_token": 16, "n_heads": 2, "n_blocks": 2}
TINY = {"max_epochs": 8, "n_members": 4, "n_draws": 8}
NAMED = TINY | {"backbone_params": SHAPE}  # is given tables
CALLED = TINY | {"backbone": partial(FTTransformer, **SHAPE)}  # is given numbers
DISTILLED = {
    "max_epochs": 2,
    "soft_labels": 0.0,  # a backbone of two epochs is no teacher
    "distil_epochs": 15,
    "distil_learning_rate": 1e-2,
    "n_chains": 3,
    "n_draws": 8,
    "performance_weight": 10.0,
    "backbone": CALLED["backbone"],
}

EXCUSED = {
    "check_sample_weight_equivalence_on_dense_data": (
        "training goes by mini-batches, and a row of weight 2 is in one batch where a "
        "row that is there twice is in two"
    ),
}


def excused_checks(estimator: Any) -> dict[str, str]:
    return EXCUSED


@pytest.mark.filterwarnings("ignore::uqformer.exceptions.UQFormerWarning")
@parametrize_with_checks(
    [
        StochasticAttentionRegressor(**NAMED),
        StochasticAttentionRegressor(**CALLED, interval="ensemble", point="mean"),
        StochasticAttentionClassifier(**NAMED),
        StochasticAttentionClassifier(**CALLED),
        DirectorRegressor(**DISTILLED),
        DirectorClassifier(**DISTILLED),
    ],
    expected_failed_checks=excused_checks,
)
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)
