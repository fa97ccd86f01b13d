from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.cost import Budget
from dorylus.errors import ConfigError


def dollars_of(*amounts):
    return [Decimal(str(amount)) for amount in amounts]


def test_an_epoch_that_fits_is_trained():
    assert Budget.of(1).decide(Decimal("0.5"), dollars_of(0.2, 0.2)).go_on


def test_an_epoch_that_would_pass_the_budget_is_not_trained():
    decision = Budget.of(1).decide(Decimal("0.9"), dollars_of(0.2, 0.2))
    assert not decision.go_on
    assert decision.expected_usd == Decimal("0.2")
    assert decision.reason == "$0.90 of $1.00 spent, the next epoch costs about $0.20"


def test_a_budget_may_be_used_to_the_last_cent():
    assert Budget.of("0.3").decide(Decimal("0.2"), dollars_of(0.1)).go_on
    assert Budget.of(0.3).decide(Decimal("0.2"), dollars_of(0.1)).go_on


def test_the_dearest_of_the_last_three_epochs_is_expected():
    budget = Budget.of(10)
    assert budget.decide(Decimal(0), dollars_of(9, 1, 2, 1.5)).expected_usd == 2
    assert budget.decide(Decimal(0), dollars_of(1, 3)).expected_usd == 3


def test_the_first_epoch_begins_if_anything_is_left():
    assert Budget.of(1).decide(Decimal("0.99"), []).go_on
    assert not Budget.of(1).decide(Decimal(1), []).go_on


def test_what_closing_costs_is_kept_back():
    assert Budget.of(1).decide(Decimal("0.7"), dollars_of(0.2)).go_on
    assert not Budget.of(1).decide(Decimal("0.7"), dollars_of(0.2), closing=Decimal("0.2")).go_on


money = st.decimals("0.000001", 100, places=6)


@given(money, money, st.lists(money, min_size=1, max_size=60))
def test_a_budget_is_never_passed_by_more_than_one_epochs_cost(limit, setup, costs):
    budget, spent, epochs = Budget(limit), setup, []
    for cost in costs:
        if not budget.decide(spent, epochs).go_on:
            break
        epochs.append(cost)
        spent += cost
    assert spent <= max(setup, limit + (epochs[-1] if epochs else 0))


@given(money, money, st.integers(1, 200))
def test_a_budget_is_not_passed_at_all_when_epochs_cost_the_same(limit, cost, num_epochs):
    budget, spent, epochs = Budget(limit), Decimal(0), []
    while len(epochs) < num_epochs and budget.decide(spent, epochs).go_on:
        epochs.append(cost)
        spent += cost
    assert spent <= max(limit, cost)
    assert len(epochs) == min(num_epochs, max(1, limit // cost))


@pytest.mark.parametrize("bad", [0, -1, float("nan"), float("inf"), "five"])
def test_a_budget_is_a_positive_number(bad):
    with pytest.raises(ConfigError, match=r"budget_usd=.*a positive number of dollars"):
        Budget.of(bad)
