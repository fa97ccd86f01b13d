"""Edge messages on one of several servers: what ApplyEdge reads, and how the gradients of sources find their owners."""

from itertools import permutations

import numpy as np
import pytest
from small_shards import context_of, edge_gather, small_shards

from dorylus.servers.graph.edges import EdgeGather, Sums
from dorylus.servers.graph.pass_context import Grad


@pytest.fixture(params=[True, False], ids=["directed", "undirected"])
def edges(request):
    """The edges of the middle one of three servers."""
    shard = small_shards(directed=request.param)[1]
    return EdgeGather(edge_gather(), context_of(shard))


def both(edges):
    return edges.over.source, edges.over.destination


def in_edges(edges, interval):
    """(source vertex, destination vertex, weight) of the interval's in-edges whose destination is needed."""
    shard = edges.context.shard
    begin, end = edges.context.layout.rows(edges.over.level, interval)
    graph = shard.graph
    found = []
    for vertex in shard.ids[begin:end].tolist():
        span = slice(graph.indptr[vertex], graph.indptr[vertex + 1])
        found += [(u, vertex, w) for u, w in zip(graph.indices[span], graph.edge_weight[span], strict=True)]
    return found


def test_an_edge_reads_the_rows_of_its_two_ends_wherever_they_are(edges):
    context = edges.context
    for slot in set(both(edges)):
        values = context.values(slot)
        values[:] = context.shard.ids[: len(values), None]  # every row holds its own vertex id
    seen_ghost = False
    for interval in range(2):
        source, destination, weight = (part.numpy() for part in edges.inputs(interval))
        expected = in_edges(edges, interval)
        found = zip(source[:, 0], destination[:, 0], weight[:, 0], strict=True)
        assert sorted(found) == sorted(expected)
        seen_ghost |= bool(edges.ghosts_of(interval).size)
    assert seen_ghost


def test_the_ghosts_of_an_interval_are_the_remote_sources_of_its_edges(edges):
    shard = edges.context.shard
    for interval in range(2):
        ghosts = edges.ghosts_of(interval)
        assert (np.diff(ghosts) > 0).all()
        remote = {u for u, _, _ in in_edges(edges, interval)} - set(shard.layout.order.tolist())
        assert set(shard.ghosts.ids[ghosts].tolist()) == remote


def give_grads(edges, interval, source=1.0, destination=None):
    """Sets the result of ∇AE: the same number for every edge."""
    count = len(in_edges(edges, interval))
    columns = edges.over.source.columns
    made = [None if value is None else np.full((count, columns), value, np.float32) for value in (source, destination)]
    edges.grads[interval] = tuple(made)


def test_sums_of_ghosts_are_sent_to_their_owners_and_dropped(edges):
    for interval in range(2):
        give_grads(edges, interval)
        ghosts, sums = edges.grad_scatter(interval, {})
        ids = edges.context.shard.ghosts.ids[ghosts]
        counts = [sum(u == ghost for u, _, _ in in_edges(edges, interval)) for ghost in ids]
        np.testing.assert_array_equal(sums[:, 0], counts)
        give_grads(edges, interval, source=0.0)
        assert not edges.grad_scatter(interval, {})[1].any()


def test_an_interval_takes_the_sums_of_edges_and_peers_exactly_once(edges):
    slot, layout = edges.over.source, edges.context.layout
    own = {slot: np.full((1, slot.columns), 10.0, np.float32)}
    for interval in range(2):
        give_grads(edges, interval)
        edges.grad_scatter(interval, own if interval == 0 else {})
    everything = [edge for interval in range(2) for edge in in_edges(edges, interval)]
    for interval in range(2):
        begin, end = layout.rows(slot.level, interval)
        counts = np.array(
            [sum(u == v for u, _, _ in everything) for v in edges.context.shard.ids[begin:end]], np.float32
        )
        if interval == 0:
            counts[0] += 10.0
        np.testing.assert_array_equal(edges.take(slot, interval)[:, 0], counts)
        assert not edges.take(slot, interval).any()


def test_a_layer_whose_sources_need_no_gradient_has_nothing_for_their_owners(edges):
    give_grads(edges, 0, source=None, destination=1.0)
    _, sums = edges.grad_scatter(0, {})
    assert not sums.any()
    begin, end = edges.context.layout.rows(edges.over.level, 0)
    counts = [sum(v == vertex for _, v, _ in in_edges(edges, 0)) for vertex in edges.context.shard.ids[begin:end]]
    np.testing.assert_array_equal(edges.take(edges.over.destination, 0)[: end - begin, 0], counts)


def sums_of(edges, interval, rows, value):
    rows = np.array(rows, np.int32)
    return Sums(interval, rows, np.full((len(rows), edges.over.source.columns), value, np.float32))


def test_sums_of_peers_wait_for_the_interval_of_their_rows(edges):
    slot, bounds = edges.over.source, edges.context.layout.bounds
    first, second = 0, int(bounds[1])
    edges.receive(sums_of(edges, 0, [first, second], 2.0))
    assert edges.take(slot, 0)[0, 0] == 2.0
    edges.receive(sums_of(edges, 5, [second], 1.0))
    assert edges.take(slot, 1)[0, 0] == 3.0
    assert not edges.take(slot, 0).any()
    assert not edges.take(slot, 1).any()


def test_the_order_in_which_peers_sums_arrive_does_not_change_a_bit(edges):
    slot = edges.over.source
    messages = [sums_of(edges, interval, [0], value) for interval, value in ((0, 1e8), (1, 1.0), (4, -1e8), (5, 3.1))]
    found = []
    for order in permutations(messages):
        for message in order:
            edges.receive(message)
        found.append(edges.take(slot, 0))
    assert all(np.array_equal(found[0], other) for other in found)


def test_forgotten_sums_are_never_taken(edges):
    slot = edges.over.source
    give_grads(edges, 0)
    edges.grad_scatter(0, {slot: np.ones((1, slot.columns), np.float32)})
    edges.receive(sums_of(edges, 0, [0], 1.0))
    edges.drop_untaken()
    assert not any(edges.take(each, interval).any() for each in both(edges) for interval in range(2))


def test_sums_begin_at_zero_in_reused_memory(edges):
    matrices, slot = edges.context.matrices, edges.over.source
    edges.take(slot, 0)
    matrices.get(Grad(slot), 0, 0).fill(np.nan)
    edges.drop_untaken()
    assert not edges.take(slot, 0).any()
