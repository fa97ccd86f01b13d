import numpy as np
import pytest
from hypothesis import given
from random_graphs import clusters

from dorylus.errors import ConfigError
from dorylus.partition import make_partition_plan, plain_partition_plan


@given(clusters())
def test_servers_own_consecutive_intervals_that_cover_the_cluster(cluster):
    plan = cluster.plan
    assert [i for server in range(plan.num_servers) for i in plan.mine(server)] == list(range(plan.num_intervals))
    for server, layout in enumerate(plan.layouts):
        assert len(plan.mine(server)) == layout.num_intervals


@given(clusters())
def test_every_vertex_lies_in_an_interval_of_its_owner(cluster):
    plan = cluster.plan
    for server, layout in enumerate(plan.layouts):
        assert sorted(layout.order) == np.flatnonzero(plan.parts == server).tolist()
        for interval in range(layout.num_intervals):
            own = layout.order[layout.bounds[interval] : layout.bounds[interval + 1]]
            assert (plan.interval[own] == plan.bounds[server] + interval).all()


@given(clusters())
def test_needed_rows_come_first_in_every_interval_of_every_server(cluster):
    plan = cluster.plan
    for layout in plan.layouts:
        for level in range(plan.num_layers + 1):
            rows = [range(*layout.rows(level, interval)) for interval in range(layout.num_intervals)]
            needed = layout.order[[row for part in rows for row in part]]
            assert sorted(needed) == sorted(layout.order[plan.deepest[layout.order] >= level])


def plan_of_sizes(sizes, intervals):
    parts = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    degrees, order = np.ones(len(parts), np.int64), np.arange(len(parts), dtype=np.int32)
    return make_partition_plan(degrees, order, parts, len(sizes), np.full(len(parts), 1, np.int8), 1, intervals)


def test_more_intervals_than_a_shard_has_vertices_are_refused_by_its_number():
    sentence = (
        r"^intervals=512, but shard 2 has 300 vertices\. An interval holds at least one vertex: "
        r"use at most 300, or fewer servers\.$"
    )
    with pytest.raises(ConfigError, match=sentence):
        plan_of_sizes([600, 600, 300], [512, 512, 512])


def test_with_one_server_the_error_names_the_graph():
    with pytest.raises(ConfigError, match=r"^intervals=9, but the graph has 8 vertices\. .* use at most 8\.$"):
        plan_of_sizes([8], [9])


def test_servers_may_have_different_numbers_of_intervals():
    plan = plan_of_sizes([4, 2, 3], [2, 1, 3])
    assert plan.bounds == (0, 2, 3, 6)
    assert plan.interval.tolist() == [0, 0, 1, 1, 2, 2, 3, 4, 5]


def test_a_plain_plan_is_one_server_with_every_vertex_needed_and_keeps_nothing_for_single_vertices():
    plan = plain_partition_plan(np.arange(0, 3_000_003, 3, dtype=np.int64), 2, 8)
    assert (plan.num_servers, plan.num_intervals, plan.mine(0)) == (1, 8, range(8))
    assert plan.parts.shape == plan.deepest.shape == (1_000_000,)
    assert set(plan.parts[::997].tolist()) == {0}
    assert set(plan.deepest[::997].tolist()) == {2}
    assert {array.strides for array in (plan.parts, plan.deepest, plan.interval)} == {(0,)}  # one number for all


def test_a_plain_plan_of_more_intervals_than_vertices_is_refused():
    with pytest.raises(ConfigError, match=r"intervals=5, but the graph has 4 vertices\..* use at most 4"):
        plain_partition_plan(np.arange(5, dtype=np.int64), 2, 5)
