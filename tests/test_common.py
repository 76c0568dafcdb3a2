"""scikit-learn's own contract, for every public estimator."""

from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from uqformer import StochasticAttentionClassifier, StochasticAttentionRegressor

TINY = {
    "max_epochs": 8,
    "n_members": 4,
    "n_draws": 8,
    "backbone_params": {"d_token": 16, "n_heads": 2, "n_blocks": 2},
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
        StochasticAttentionRegressor(**TINY),
        StochasticAttentionRegressor(**TINY, interval="ensemble", point="mean"),
        StochasticAttentionClassifier(**TINY),
    ],
    expected_failed_checks=excused_checks,
)
def test_estimator_keeps_the_contract_of_sklearn(estimator: Any, check: Any) -> None:
    check(estimator)
