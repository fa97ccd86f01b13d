"""Messages between servers: every row arrives in the ghosts that stand for it, and no other row is sent."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from small_shards import MessageBus, context_of, edge_gather, small_shards, task_of

from dorylus.pipeline import Kind
from dorylus.saga import GAT, GCN
from dorylus.saga.stages import Gather, Scatter, Slot
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.gathers import row_gatherer
from dorylus.servers.graph.ghosts import GhostExchange

CASES = [
    {"directed": directed, "pruned": pruned, "servers": servers}
    for directed, pruned, servers in product([True, False], [True, False], [2, 3])
]
ROWS = Slot("rows", 3, level=1, layer=1, gathered=True)
SCORES = Slot("scores", 2, level=1, layer=1, gathered=True, exact=True)


class World:
    """The exchanges of all servers over one kind of stage, and the messages between them."""

    def __init__(self, stage, *, narrow=False, bf16=False, **case):
        self.shards = small_shards(**case)
        self.bus, self.stage = MessageBus(self.shards), stage
        self.contexts = [context_of(shard, bf16=bf16) for shard in self.shards]
        self.gathers, self.edges = [{} for _ in self.shards], [{} for _ in self.shards]
        for context, gathers, edges in zip(self.contexts, self.gathers, self.edges, strict=True):
            if isinstance(stage, Gather) and stage.over is not None:
                edges[stage.over] = EdgeGather(stage, context)
            elif isinstance(stage, Gather):
                gathers[stage] = row_gatherer(stage, context)
        self.exchanges = [
            GhostExchange(context, self.bus.peers(context.shard), gathers, edges, narrow=narrow)
            for context, gathers, edges in zip(self.contexts, self.gathers, self.edges, strict=True)
        ]

    def each_interval(self):
        return [(k, interval) for k, shard in enumerate(self.shards) for interval in shard.mine]

    def deliver(self, stage=None):
        for _, peer, message in self.bus.posted:
            self.exchanges[peer].receive(message, stage or self.stage)


def write_ids(matrix, ids):
    """Own rows hold their vertex ids; ghosts are not known yet."""
    matrix.fill(np.nan)
    matrix[: len(ids)] = ids[:, None]


def assert_ghosts(matrix, own, ghosts, level):
    """Ghosts needed at a level are there, the others were left alone."""
    found = matrix[own:]
    for interval in range(len(ghosts.first) - 1):
        begin, end = ghosts.rows(level, interval)
        expected = ghosts.ids_at(level)[begin:end]
        np.testing.assert_array_equal(found[begin:end], np.broadcast_to(expected[:, None], (end - begin, 3)))
        assert np.isnan(found[end : ghosts.first[interval + 1]]).all()


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_arrive_in_the_ghosts_that_stand_for_them(case, level):
    slot = replace(ROWS, level=level)
    world = World(Scatter((slot,)), **case)
    for context in world.contexts:
        write_ids(context.values(slot), context.shard.layout.order)
    for server, interval in world.each_interval():
        world.exchanges[server].post_rows(task_of(Kind.SCATTER, interval), world.stage)
    world.deliver()
    assert sum(context.ghosts.num_needed(level) for context in world.contexts) > 0
    for context in world.contexts:
        assert_ghosts(context.values(slot), context.num_rows, context.ghosts, level)


@pytest.mark.parametrize("level", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cotangents_arrive_in_the_ghosts_of_the_rows_they_were_gathered_from(case, level):
    source, output = replace(ROWS, level=level - 1), Slot("gathered", 3, level=level, layer=1)
    world = World(Gather(GCN(3, 3), (source,), output), **case)
    for context, gathers in zip(world.contexts, world.gathers, strict=True):
        write_ids(gathers[world.stage].published()[0], context.shard.layout.order)
    for server, interval in world.each_interval():
        world.exchanges[server].post_cotangents(task_of(Kind.GRAD_SCATTER, interval), world.stage)
    world.deliver()
    assert sum(context.out_ghosts.num_needed(level) for context in world.contexts) > 0
    for context, gathers in zip(world.contexts, world.gathers, strict=True):
        assert_ghosts(gathers[world.stage].published()[0], context.num_rows, context.out_ghosts, level)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_of_edges_reach_their_vertex_from_every_server(case):
    stage = edge_gather()
    world = World(stage, **case)
    source, over = stage.over.source, stage.over
    for server, interval in world.each_interval():
        edges, local = world.edges[server][over], interval - world.shards[server].mine.start
        *_, first, last = edges._range(local)
        edges.grads[local] = (np.ones((last - first, source.columns), np.float32), None)
        task = task_of(Kind.GRAD_SCATTER, interval)
        world.exchanges[server].post_sums(task, *edges.grad_scatter(local, {}))
    world.deliver(over)
    graph, plan = world.shards[0].graph, world.shards[0].partition_plan
    ends = np.repeat(np.arange(graph.num_vertices), graph.in_degrees())
    expected = np.bincount(graph.indices[plan.deepest[ends] >= over.level], minlength=graph.num_vertices)
    for server, interval in world.each_interval():
        local = interval - world.shards[server].mine.start
        begin, end = world.contexts[server].layout.rows(source.level, local)
        found = world.edges[server][over].take(source, local)
        np.testing.assert_array_equal(found[:, 0], expected[world.shards[server].ids[begin:end]])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_reader_of_an_interval_gets_one_message_and_no_other_server_gets_one(case):
    world = World(Scatter((ROWS,)), **case)
    for server, interval in world.each_interval():
        world.exchanges[server].post_rows(task_of(Kind.SCATTER, interval), world.stage)
    received = [(peer, message.task.interval) for _, peer, message in world.bus.posted]
    waited_for = {
        (shard.server, interval)
        for shard in world.shards
        for sources in shard.reads().sources
        for interval in sources - set(shard.mine)
    }
    assert sorted(received) == sorted(waited_for)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_source_of_an_interval_gets_one_message_about_its_edges_even_without_sums(case):
    stage = edge_gather()
    world = World(stage, **case)
    for server, interval in world.each_interval():
        local = interval - world.shards[server].mine.start
        edges = world.edges[server][stage.over]
        ghosts = edges.ghosts_of(local)
        sums = np.zeros((len(ghosts), stage.over.source.columns), np.float32)
        world.exchanges[server].post_sums(task_of(Kind.GRAD_SCATTER, interval), ghosts, sums)
    received = [(peer, message.task.interval) for _, peer, message in world.bus.posted]
    waited_for = {
        (shard.server, interval)
        for shard in world.shards
        for readers in shard.reads().readers
        for interval in readers - set(shard.mine)
    }
    assert sorted(received) == sorted(waited_for)


def posted_bytes(stage, kind, **settings):
    world = World(stage, pruned=False, **settings)
    for server, interval in world.each_interval():
        exchange = world.exchanges[server]
        if kind == "ghosts":
            exchange.post_rows(task_of(Kind.SCATTER, interval), stage)
        else:
            exchange.post_cotangents(task_of(Kind.GRAD_SCATTER, interval), stage)
    traffic = sum((exchange.traffic for exchange in world.exchanges), start=type(world.exchanges[0].traffic)())
    assert traffic == {kind: sum(message.num_bytes for _, _, message in world.bus.posted)}
    return traffic[kind], world


@pytest.mark.parametrize(("settings", "row_bytes"), [({}, 12), ({"narrow": True}, 6), ({"bf16": True}, 6)], ids=str)
def test_the_size_of_a_row_follows_from_its_columns_and_its_precision(settings, row_bytes):
    found, world = posted_bytes(Scatter((ROWS,)), "ghosts", **settings)
    assert found == row_bytes * sum(context.ghosts.num_rows for context in world.contexts)


def test_scores_that_enter_an_exponential_travel_unrounded():
    found, world = posted_bytes(Scatter((ROWS, SCORES)), "ghosts", narrow=True)
    assert found == (3 * 2 + 2 * 4) * sum(context.ghosts.num_rows for context in world.contexts)


def test_of_attention_only_the_cotangent_travels_rounded():
    scores = [Slot(f"score {k}", 1, level=1, layer=1, gathered=k == 0, exact=True) for k in range(2)]
    stage = Gather(GAT(3, 3, heads=1), (ROWS, *scores), Slot("gathered", 3, level=2, layer=1))
    found, world = posted_bytes(stage, "ghost_gradients", narrow=True)
    assert found == (3 * 2 + 3 * 4) * sum(context.out_ghosts.num_rows for context in world.contexts)
