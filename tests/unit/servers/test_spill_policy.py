from dataclasses import replace

import pytest
from small_shards import Messages

import dorylus
from dorylus.saga import Savings, lower
from dorylus.saga.columns import in_blocks
from dorylus.saga.stages import ApplyEdge, Slot
from dorylus.servers import SpillPolicy
from dorylus.servers.graph.pass_context import Extra, Grad, Published

NEAR, FAR = Slot("near", 4, 0, 0), Slot("far", 4, 0, 0, gathered=True)
OF_ROWS = [NEAR, Grad(NEAR), Grad(FAR), Extra(NEAR, "ties"), Extra(FAR, "lse"), "features"]
NOTHING = SpillPolicy(rows=False, gathered=False, published=False)


def plan_of(program, *, training=True):
    return lower(program, sparse_features=False, training=training, savings=Savings())


@pytest.fixture(scope="module")
def plan():
    return plan_of(dorylus.gcn(hidden=40).build(40, 24))


def test_everything_is_paged_by_default(plan):
    assert all(SpillPolicy().pages(name, plan) for name in (*OF_ROWS, FAR, Published(NEAR, "cotangent")))


@pytest.mark.parametrize("name", OF_ROWS, ids=str)
def test_the_rows_setting_decides_about_matrices_of_own_rows(name, plan):
    assert not SpillPolicy(rows=False).pages(name, plan)
    assert SpillPolicy(gathered=False, published=False).pages(name, plan)


def test_the_gathered_and_published_settings_decide_about_gathered_matrices(plan):
    assert not SpillPolicy(gathered=False).pages(FAR, plan)
    assert SpillPolicy(rows=False, published=False).pages(FAR, plan)
    assert not SpillPolicy(published=False).pages(Published(FAR, "share"), plan)
    assert SpillPolicy(rows=False, gathered=False).pages(Published(FAR, "share"), plan)


@pytest.mark.parametrize("blocks", [1, 2])
def test_the_results_of_a_pass_are_always_paged(blocks):
    plan = in_blocks(plan_of(dorylus.gcn(hidden=40).build(40, 24), training=False), blocks)
    assert plan.results
    assert all(NOTHING.pages(slot, plan) for slot in plan.results)
    assert not any(NOTHING.pages(name, plan) for name in OF_ROWS)


def test_unchanged_features_are_always_paged_and_dropped_out_ones_are_not(plan):
    features = Slot("features", 4, 0, 0, 0.5, source="features")
    assert NOTHING.pages(features, plan)  # to rows that are read, dropout is applied then
    assert NOTHING.pages(replace(features, dropout=0.0, gathered=True), plan)
    assert not NOTHING.pages(replace(features, gathered=True), plan)


def test_sums_of_edges_are_never_paged():
    plan = plan_of(dorylus.Program([Messages(40, 36), Messages(36, 24)]))
    stages = [stage for stage in plan.stages if isinstance(stage, ApplyEdge)]
    ends = {slot for stage in stages for slot in (stage.source, stage.destination)}
    assert ends
    assert not any(SpillPolicy().pages(Grad(slot), plan) for slot in ends)
    assert all(SpillPolicy().pages(slot, plan) for slot in ends)
