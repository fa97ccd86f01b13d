"""What a graph server holds after, and during, an epoch. What it computes is held against references in numerics."""

import numpy as np
import pytest
import torch
from torch import nn

import dorylus
from dorylus.saga.stages import Slot
from dorylus.servers.gathers import Bench


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
    return list(server._bench.matrices._held)


def lasting(name):
    """Whether a matrix is there for the whole run: features that are gathered as they are, or a gather made once."""
    return isinstance(name, Slot) and (name.source == "static" or (name.source == "features" and name.dropout == 0))


@pytest.mark.parametrize("rematerialize", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_after_an_epoch_nothing_is_held_that_was_made_in_it(make_cluster, graph, model, rematerialize):
    cluster = make_cluster(graph, MODELS[model](), rematerialize=rematerialize)
    server = cluster._training.server
    for _ in range(2):
        cluster.train_epoch()
        assert [name for name in held(server) if not lasting(name)] == []
        assert not server._pending
        assert not server._own_grads
        assert not server._edge_grads
        assert not server._kept
        assert not any(edges.messages or edges.grads for edges in server._edges.values())


@pytest.mark.parametrize("model", MODELS)
def test_after_an_evaluation_only_the_logits_are_held(make_cluster, graph, model):
    cluster = make_cluster(graph, MODELS[model]())
    server = cluster._evaluation.server
    cluster.logits()
    assert [getattr(name, "name", name) for name in held(server) if not lasting(name)] == ["logits"]


def test_a_deeper_program_holds_no_more_at_once(make_cluster, graph, monkeypatch):
    """Rematerialised gradients need inputs of every layer, but of a sum nothing else: two matrices a layer."""
    peak = {}
    for layers in (2, 6):
        cluster = make_cluster(graph, dorylus.gcn(num_layers=layers, dropout=0.5), threads=1, rematerialize=True)
        matrices, most = cluster._training.server._bench.matrices, 0
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
    cluster = make_cluster(graph, dorylus.gcn(dropout=0.0))
    servers = (cluster._training.server, cluster._evaluation.server)
    tables = [next(m for n, m in s._bench.matrices._held.items() if lasting(n)) for s in servers]
    assert tables[0] is tables[1]


def test_the_graphs_features_are_left_as_they_were(make_cluster, graph):
    before = graph.features.copy()
    for model in ("gcn", "gcn without dropout", "sage max", "gat", "edges, softmax"):
        make_cluster(graph, MODELS[model](), reorder="bfs").train_epoch()
    np.testing.assert_array_equal(graph.features, before)


def test_rows_nobody_needs_are_never_written(make_cluster, monkeypatch):
    """On a directed chain whose first vertex alone has a label, later vertices reach no loss."""
    n = 64
    chain = dorylus.Graph.from_edges(
        np.arange(1, n), np.arange(n - 1), n, undirected=False, features=np.ones((n, 6), np.float32),
        labels=np.zeros(n, np.int64), train_mask=np.arange(n) == 0, num_classes=3,
    )  # fmt: skip
    cluster = make_cluster(chain, dorylus.gcn(dropout=0.5), intervals=1)
    written = []
    store = Bench.store

    def noted(bench, source, target, begin, end):
        written.append((begin, end))
        store(bench, source, target, begin, end)

    monkeypatch.setattr(Bench, "store", noted)
    cluster.train_epoch()
    assert written
    assert max(end for _, end in written) <= 3  # the vertex, its source, and the source's source
