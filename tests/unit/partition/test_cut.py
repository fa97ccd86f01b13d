import numpy as np
import pytest
from hypothesis import given
from random_graphs import clusters

from dorylus.errors import ConfigError
from dorylus.partition import make_cut, plain_cut


@given(clusters())
def test_servers_own_consecutive_intervals_that_cover_the_cluster(cluster):
    cut = cluster.cut
    assert [i for server in range(cut.num_servers) for i in cut.mine(server)] == list(range(cut.num_intervals))
    for server, layout in enumerate(cut.layouts):
        assert len(cut.mine(server)) == layout.num_intervals


@given(clusters())
def test_every_vertex_lies_in_an_interval_of_its_owner(cluster):
    cut = cluster.cut
    for server, layout in enumerate(cut.layouts):
        assert sorted(layout.order) == np.flatnonzero(cut.parts == server).tolist()
        for interval in range(layout.num_intervals):
            own = layout.order[layout.bounds[interval] : layout.bounds[interval + 1]]
            assert (cut.interval[own] == cut.bounds[server] + interval).all()


@given(clusters())
def test_needed_rows_come_first_in_every_interval_of_every_server(cluster):
    cut = cluster.cut
    for layout in cut.layouts:
        for level in range(cut.num_layers + 1):
            rows = [range(*layout.rows(level, interval)) for interval in range(layout.num_intervals)]
            needed = layout.order[[row for part in rows for row in part]]
            assert sorted(needed) == sorted(layout.order[cut.deepest[layout.order] >= level])


def cut_of_sizes(sizes, intervals):
    parts = np.repeat(np.arange(len(sizes)), sizes).astype(np.int32)
    degrees, order = np.ones(len(parts), np.int64), np.arange(len(parts), dtype=np.int32)
    return make_cut(degrees, order, parts, len(sizes), np.full(len(parts), 1, np.int8), 1, intervals)


def test_more_intervals_than_a_shard_has_vertices_are_refused_by_its_number():
    sentence = (
        r"^intervals=512, but shard 2 has 300 vertices\. An interval holds at least one vertex: "
        r"use at most 300, or fewer servers\.$"
    )
    with pytest.raises(ConfigError, match=sentence):
        cut_of_sizes([600, 600, 300], [512, 512, 512])


def test_one_server_is_told_of_the_graph():
    with pytest.raises(ConfigError, match=r"^intervals=9, but the graph has 8 vertices\. .* use at most 8\.$"):
        cut_of_sizes([8], [9])


def test_servers_may_have_different_numbers_of_intervals():
    cut = cut_of_sizes([4, 2, 3], [2, 1, 3])
    assert cut.bounds == (0, 2, 3, 6)
    assert cut.interval.tolist() == [0, 0, 1, 1, 2, 2, 3, 4, 5]


def test_a_plain_cut_is_one_server_with_every_vertex_needed_and_keeps_nothing_for_single_vertices():
    cut = plain_cut(np.arange(0, 3_000_003, 3, dtype=np.int64), 2, 8)
    assert (cut.num_servers, cut.num_intervals, cut.mine(0)) == (1, 8, range(8))
    assert cut.parts.shape == cut.deepest.shape == (1_000_000,)
    assert set(cut.parts[::997].tolist()) == {0}
    assert set(cut.deepest[::997].tolist()) == {2}
    assert {array.strides for array in (cut.parts, cut.deepest, cut.interval)} == {(0,)}  # one number for all


def test_a_plain_cut_of_more_intervals_than_vertices_is_refused():
    with pytest.raises(ConfigError, match=r"intervals=5, but the graph has 4 vertices\..* use at most 4"):
        plain_cut(np.arange(5, dtype=np.int64), 2, 5)
