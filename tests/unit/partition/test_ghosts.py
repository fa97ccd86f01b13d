import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from random_graphs import clusters, dense_matrix

from dorylus.partition.ghosts import make_ghosts


@st.composite
def ghost_tables(draw):
    """(ids, interval, level, number of layers, ghosts)."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    count, intervals, layers = draw(st.integers(0, 40)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    ids = rng.permutation(100)[:count].astype(np.int32)
    interval = rng.integers(0, intervals, count).astype(np.int32)
    level = rng.integers(-1, layers + 1, count).astype(np.int8)
    return ids, interval, level, layers, make_ghosts(ids, interval, level, intervals, layers)


@given(ghost_tables())
def test_ghosts_stand_by_interval_then_level_then_number(case):
    ids, interval, level, _, ghosts = case
    places = {
        vertex: (i, -lv, vertex) for vertex, i, lv in zip(*(a.tolist() for a in (ids, interval, level)), strict=True)
    }
    assert ghosts.ids.tolist() == sorted(places, key=lambda vertex: places[vertex])
    assert ghosts.num_rows == len(ids)


@given(ghost_tables())
def test_an_intervals_ghosts_of_a_level_are_one_range(case):
    ids, interval, level, layers, ghosts = case
    for depth in range(layers + 1):
        for i in range(len(ghosts.first) - 1):
            begin, end = ghosts.rows(depth, i)
            assert sorted(ghosts.ids[begin:end]) == sorted(ids[(interval == i) & (level >= depth)])
        assert ghosts.num_needed(depth) == (level >= depth).sum()


@given(ghost_tables())
def test_everything_needs_every_ghost_at_every_level(case):
    _, _, _, layers, ghosts = case
    whole = ghosts.everything()
    for depth in range(layers + 1):
        assert whole.num_needed(depth) == ghosts.num_rows
        for i in range(len(ghosts.first) - 1):
            assert whole.rows(depth, i) == (ghosts.first[i], ghosts.first[i + 1])
    np.testing.assert_array_equal(whole.ids, ghosts.ids)


@given(clusters())
def test_a_ghost_is_needed_where_a_row_of_the_next_level_reads_it(cluster):
    matrix, deepest = dense_matrix(cluster.graph) != 0, cluster.plan.deepest
    for server in cluster.servers:
        own = server.layout.order
        for level in range(cluster.plan.num_layers + 1):
            read = matrix[own[deepest[own] > level]].any(axis=0)
            ranges = [server.ghosts.rows(level, i) for i in range(cluster.plan.num_intervals)]
            found = np.concatenate([server.ghosts.ids[begin:end] for begin, end in ranges])
            assert sorted(found) == np.flatnonzero(read & (cluster.plan.parts != server.server)).tolist()


@given(clusters())
def test_an_out_ghost_is_needed_where_its_own_row_is(cluster):
    matrix, deepest = dense_matrix(cluster.graph) != 0, cluster.plan.deepest
    for server in cluster.servers:
        remote = matrix.T[server.layout.order].any(axis=0) & (cluster.plan.parts != server.server)
        for level in range(cluster.plan.num_layers + 1):
            ids = server.out_ghosts.ids_at(level)
            ranges = [server.out_ghosts.rows(level, i) for i in range(cluster.plan.num_intervals)]
            found = np.concatenate([ids[begin:end] for begin, end in ranges])
            assert sorted(found) == np.flatnonzero(remote & (deepest >= level)).tolist()


@given(clusters())
def test_ghosts_lie_in_the_intervals_their_owners_have_them_in(cluster):
    for server in cluster.servers:
        for ghosts in (server.ghosts, server.out_ghosts, server.out_ghosts.everything()):
            counts = np.diff(ghosts.first)
            for ids in (ghosts.ids, ghosts.whole):
                expected = np.repeat(np.arange(cluster.plan.num_intervals), counts)
                np.testing.assert_array_equal(cluster.plan.interval[ids], expected)
            assert counts[server.mine.start : server.mine.stop].sum() == 0  # no vertex is a ghost of its own server


@given(clusters())
def test_a_vertex_travels_once_to_a_peer_and_arrives_in_its_row(cluster):
    for sender, receiver in cluster.pairs():
        for ghosts in (receiver.ghosts, receiver.out_ghosts, receiver.ghosts.everything()):
            sends = sender.send_list(ghosts)
            for level in range(cluster.plan.num_layers + 1):
                sent = []
                for interval in sender.mine:
                    rows, (begin, end) = sends.rows(level, interval), ghosts.rows(level, interval)
                    assert rows.dtype == np.int32
                    assert sender.layout.order[rows].tolist() == ghosts.ids_at(level)[begin:end].tolist()
                    assert sends.has_ghosts_in(interval) or not rows.size
                    sent += rows.tolist()
                assert len(sent) == len(set(sent))


@given(clusters())
def test_rows_sent_are_those_that_arrive(cluster):
    for level in range(cluster.plan.num_layers + 1):
        for receiver in cluster.servers:
            peers = [peer for peer in cluster.servers if peer is not receiver]
            arriving = tuple(
                sum(len(peer.send_list(ghosts).rows(level, i)) for peer in peers for i in peer.mine)
                for ghosts in (receiver.ghosts, receiver.out_ghosts)
            )
            needed = receiver.ghosts.num_needed(level), receiver.out_ghosts.num_needed(level)
            assert needed == arriving


@given(clusters())
def test_all_rows_of_a_send_list_are_the_own_rows_of_the_peers_ghosts(cluster):
    for sender, receiver in cluster.pairs():
        sends, first = sender.send_list(receiver.ghosts), receiver.ghosts.first
        mine = receiver.ghosts.ids[first[sender.mine.start] : first[sender.mine.stop]]
        np.testing.assert_array_equal(sender.layout.order[sends.all_rows], mine)
        assert [sends.has_ghosts_in(i) for i in sender.mine] == [first[i] < first[i + 1] for i in sender.mine]
