"""What a graph server holds after, and during, an epoch. What it computes is held against references in numerics."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import dorylus
from dorylus.pipeline import Kind
from dorylus.pools import ThreadsPool
from dorylus.saga.stages import Slot
from dorylus.servers.graph.edges import Sums
from dorylus.servers.graph.graph_server import GraphServer
from dorylus.servers.graph.pass_context import PassContext


class Gate(dorylus.Layer):
    """A layer with a dense ApplyEdge and any reduction."""

    def __init__(self, in_columns, out_columns, reduce, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.reduce = reduce
        self.gate = nn.Linear(2 * in_columns + 1, out_columns)
        self.score = nn.Linear(out_columns, 1)

    def apply_edge(self, source, destination, weight):
        message = torch.tanh(self.gate(torch.cat([source, destination, weight], 1)))
        return (message, self.score(message)) if self.reduce == "softmax" else message


def gate(reduce):
    return dorylus.Program([Gate(6, 5, reduce), Gate(5, 3, reduce, dropout=0.5)])


MODELS = {
    "gcn": dorylus.gcn,
    "gcn without dropout": lambda: dorylus.gcn(dropout=0.0),
    "deep gcn": lambda: dorylus.gcn(num_layers=4, residual=True, layer_norm=True),
    "sage": dorylus.sage,
    "sage max": lambda: dorylus.sage(aggregator="max"),
    "sage max without dropout": lambda: dorylus.sage(aggregator="max", dropout=0.0),
    "gin": dorylus.gin,
    "gat": lambda: dorylus.gat(num_layers=3, residual=True),
    "gat without dropout": lambda: dorylus.gat(num_layers=3, residual=True, dropout=0.0),
    "edges, sum": lambda: gate("sum"),
    "edges, mean": lambda: gate("mean"),
    "edges, max": lambda: gate("max"),
    "edges, softmax": lambda: gate("softmax"),
}


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=150, num_classes=3, num_features=6, average_degree=5, seed=0)


def held(server):
    """The matrices a server holds."""
    return list(server._context.matrices._held)


def lasting(name):
    """Whether a matrix is there for the whole run: features that are gathered as they are, or a gather made once."""
    return isinstance(name, Slot) and (name.source == "static" or (name.source == "features" and name.dropout == 0))


def in_flight(server):
    """What a server keeps from one task of an interval for the next."""
    of_edges = [kept for edges in server._edges.values() for kept in (edges.messages, edges.message_grads, edges.grads)]
    of_rows = [server._publisher._waiting, server._cotangents, server._calls._kept, server._calls._read]
    return [kept for kept in (*of_rows, *of_edges) if kept]


def not_taken(server):
    """Cotangents that peers' edges have added, and that no interval has taken."""
    return [edges._received for edges in server._edges.values() if edges._received]


CUTS = [(1, False), (1, True), (3, False)]  # servers, rematerialised


@pytest.mark.parametrize(("servers", "rematerialize"), CUTS)
@pytest.mark.parametrize("model", MODELS)
def test_after_an_epoch_nothing_is_held_that_was_made_in_it(make_cluster, graph, model, servers, rematerialize):
    cluster = make_cluster(graph, MODELS[model](), servers=servers, rematerialize=rematerialize)
    assert len(cluster._process.training.servers) == servers
    for _ in range(2):
        cluster.train_epoch()
        for server in cluster._process.training.servers.values():
            assert [name for name in held(server) if not lasting(name)] == []
            assert in_flight(server) == []
            assert not_taken(server) == []


@pytest.mark.parametrize("model", [name for name in MODELS if name != "gat" and not name.startswith("sage max")])
def test_after_the_last_permitted_epoch_nothing_is_in_flight_also_where_epochs_overlap(make_cluster, graph, model):
    cluster = make_cluster(graph, MODELS[model](), servers=2, mode="async", staleness=2)
    for epoch in range(5):
        cluster.train_epoch(min(epoch + 2, 4))
    assert [in_flight(server) for server in cluster._process.training.servers.values()] == [[], []]


def overwrite_ghosts(monkeypatch):
    """From now on, peers overwrite the sources of a server's edges between its ApplyEdge and its gradient."""
    call, overwritten = GraphServer.call, []

    def late(server, task, weights):
        if task.kind is Kind.GRAD_APPLY_EDGE:
            edges = server._edges[server._steps.stages[task.step]]
            ghosts = edges.context.values(edges.over.source)[edges.context.num_rows :]
            ghosts[:] = 3
            overwritten.append(len(ghosts))
        return call(server, task, weights)

    monkeypatch.setattr(GraphServer, "call", late)
    return overwritten


class Forgetful:
    """A pool that keeps no autograd graphs, like a pool on another machine."""

    def submit(self, call, done, failed):
        ThreadsPool().submit(replace(call, keep=False, kept=None), done, failed)

    def close(self):
        pass


def trained(make_cluster, graph, reduce, **settings):
    """The weights after an exact epoch over two servers, one interval each."""
    torch.manual_seed(0)
    cluster = make_cluster(graph, gate(reduce), servers=2, intervals=1, threads=1, **settings)
    cluster.train_epoch()
    return cluster.state().weights


@pytest.mark.parametrize("rematerialize", [False, True])
@pytest.mark.parametrize("pool", [ThreadsPool, Forgetful])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "softmax"])
def test_a_source_row_overwritten_since_its_message_was_made_does_not_change_the_gradient(
    make_cluster, graph, monkeypatch, reduce, pool, rematerialize
):
    settings = {"mode": "async", "rematerialize": rematerialize, "pool": pool()}
    before = trained(make_cluster, graph, reduce, **settings)
    exact = trained(make_cluster, graph, reduce)
    overwritten = overwrite_ghosts(monkeypatch)
    after = trained(make_cluster, graph, reduce, **settings)
    assert len(overwritten) == 2 * 2  # servers, layers
    assert min(overwritten) > 0
    assert all(torch.equal(after[name], before[name]) for name in before)
    # Where nothing is overwritten, rows are read again rather than kept, so an overwrite would show.
    again = trained(make_cluster, graph, reduce)
    assert not all(torch.equal(again[name], exact[name]) for name in exact)


def test_graphs_of_edges_are_kept_only_where_rows_may_be_overwritten(make_cluster, graph, monkeypatch):
    kept = []
    accept = GraphServer.accept

    def noted(server, task, reply):
        if task.kind is Kind.APPLY_EDGE:
            kept.append(reply.kept is not None)
        accept(server, task, reply)

    monkeypatch.setattr(GraphServer, "accept", noted)
    for mode, expected in (("pipe", False), ("async", True)):
        cluster = make_cluster(graph, gate("sum"), servers=2, mode=mode)
        cluster.train_epoch()
        assert set(kept) == {expected}
        kept.clear()
        cluster.outputs()
        assert set(kept) == {False}  # an evaluation has no gradient
        kept.clear()


def test_cotangents_that_came_too_late_are_dropped_when_epochs_become_exact(make_cluster, graph):
    cluster = make_cluster(graph, gate("sum"), servers=2, mode="async")
    cluster.train_epoch()
    server = cluster._process.training.servers[1]
    for edges in server._edges.values():
        edges.receive(Sums(0, np.zeros(1, np.int32), np.ones((1, edges.over.source.columns), np.float32)))
    assert not_taken(server)
    cluster.train_epoch(exact_from=1)
    assert not_taken(server) == []


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("model", MODELS)
def test_after_an_evaluation_only_the_logits_are_held(make_cluster, graph, model, servers):
    cluster = make_cluster(graph, MODELS[model](), servers=servers)
    cluster.outputs()
    for server in cluster._process.evaluation.servers.values():
        assert [getattr(name, "name", name) for name in held(server) if not lasting(name)] == ["logits"]


def test_a_deeper_program_holds_no_more_at_once(make_cluster, graph, monkeypatch):
    """Rematerialised gradients need inputs of every layer, but of a sum nothing else: two matrices a layer."""
    peak = {}
    for layers in (2, 6):
        cluster = make_cluster(graph, dorylus.gcn(num_layers=layers, dropout=0.5), threads=1, rematerialize=True)
        matrices, most = cluster._process.training.servers[0]._context.matrices, 0
        make = matrices._make

        def counted(*arguments, make=make, matrices=matrices):
            nonlocal most
            made = make(*arguments)
            most = max(most, len(matrices))
            return made

        monkeypatch.setattr(matrices, "_make", counted)
        cluster.train_epoch()
        peak[layers] = most
    assert peak[2] <= 5
    assert peak[6] - peak[2] <= 2 * 4


def test_static_rows_are_shared_by_training_and_evaluation(make_cluster, graph):
    cluster = make_cluster(graph, dorylus.gcn(dropout=0.0), servers=2)
    for servers in zip(
        cluster._process.training.servers.values(), cluster._process.evaluation.servers.values(), strict=True
    ):
        tables = [next(m for n, m in s._context.matrices._held.items() if lasting(n)) for s in servers]
        assert tables[0] is tables[1]


def test_the_graphs_features_are_left_as_they_were(make_cluster, graph):
    before = graph.features.copy()
    for model in ("gcn", "gcn without dropout", "sage max", "gat", "edges, softmax"):
        make_cluster(graph, MODELS[model](), reorder="bfs").train_epoch()
    np.testing.assert_array_equal(graph.features, before)


def test_rows_that_are_not_needed_are_never_written(make_cluster, monkeypatch):
    """On a directed chain whose first vertex alone has a label, later vertices reach no loss."""
    n = 64
    chain = dorylus.Graph.from_edges(
        np.arange(1, n), np.arange(n - 1), n, undirected=False, features=np.ones((n, 6), np.float32),
        labels=np.zeros(n, np.int64), train_mask=np.arange(n) == 0, num_classes=3,
    )  # fmt: skip
    cluster = make_cluster(chain, dorylus.gcn(dropout=0.5), intervals=1)
    written = []
    store = PassContext.store

    def noted(context, source, target, begin, end):
        written.append((begin, end))
        store(context, source, target, begin, end)

    monkeypatch.setattr(PassContext, "store", noted)
    cluster.train_epoch()
    assert written
    assert max(end for _, end in written) <= 3  # the vertex, its source, and the source's source
