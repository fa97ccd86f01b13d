from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import dorylus
from dorylus.errors import TrainingError
from dorylus.partition import make_partitioning, save_shards
from dorylus.pipeline import Kind
from dorylus.saga import GCN, SAGE, dense, reference


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=150, num_classes=3, num_features=6, average_degree=5, seed=0)


class Gate(dorylus.Layer):
    """A user's layer with a dense ApplyEdge."""

    def __init__(self, in_columns, out_columns, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.gate = nn.Linear(2 * in_columns + 1, out_columns)

    def apply_edge(self, source, destination, weight):
        return torch.tanh(self.gate(torch.cat([source, destination, weight], 1)))


def model(name):
    if name != "gates":
        return getattr(dorylus, name)(dropout=0.5)
    torch.manual_seed(0)
    return dorylus.Program([Gate(6, 5), Gate(5, 3, dropout=0.5)])


def trained(make_cluster, graph, name, **settings):
    cluster = make_cluster(graph, model(name), **settings)
    return [cluster.train_epoch().loss for _ in range(4)], cluster.outputs().whole()


@pytest.fixture(scope="module")
def plain():
    """Results of runs that others are compared with, by model and partition."""
    return {}


@pytest.mark.parametrize(
    "name",
    ["gcn", "gat", "gates", pytest.param("sage", marks=pytest.mark.soak), pytest.param("gin", marks=pytest.mark.soak)],
)
@pytest.mark.parametrize(
    "other", [{"threads": 1}, {"threads": 3}, {"mode": "no_pipe"}, {"parameter_servers": 3}], ids=str
)
@pytest.mark.parametrize("cut", [{"intervals": 9}, {"intervals": 3, "servers": 3}], ids=str)
def test_neither_threads_nor_the_schedule_change_a_single_bit(make_cluster, graph, plain, name, cut, other):
    if (name, str(cut)) not in plain:
        plain[name, str(cut)] = trained(make_cluster, graph, name, **cut)
    losses, logits = plain[name, str(cut)]
    other_losses, other_logits = trained(make_cluster, graph, name, **cut, **other)
    assert losses == other_losses
    np.testing.assert_array_equal(logits, other_logits)


@pytest.mark.parametrize("name", ["gcn", "gates"])
def test_shards_that_were_saved_train_as_those_cut_from_the_graph(make_cluster, graph, tmp_path, name):
    save_shards(tmp_path / "shards", graph, make_partitioning(graph, 3, "range"))
    cut, saved = (
        trained(make_cluster, graph, name, servers=3, partition=partition)
        for partition in ("range", str(tmp_path / "shards"))
    )
    assert saved[0] == cut[0]
    np.testing.assert_array_equal(saved[1], cut[1])


@pytest.mark.parametrize("servers", [1, 2])
def test_a_report_has_a_span_for_every_task(make_cluster, graph, servers):
    report = make_cluster(graph, dorylus.gcn(dropout=0.5), intervals=3, servers=servers).train_epoch()
    kinds = [span.task.kind for span in report.spans]
    assert kinds.count(Kind.LOSS) == 3 * servers
    assert kinds.count(Kind.WEIGHT_UPDATE) == 3 * servers
    assert {(span.server, span.task.interval) for span in report.spans} == {(k // 3, k) for k in range(3 * servers)}
    assert report.seconds > 0
    assert report.seconds_by_kind().keys() == {str(kind) for kind in kinds}


def test_a_report_counts_the_bytes_of_its_own_epoch_by_kind(make_cluster, graph):
    cluster = make_cluster(graph, dorylus.gcn(dropout=0.5), servers=2, parameter_servers=3)
    first, second = cluster.train_epoch(), cluster.train_epoch()
    assert set(first.traffic) == {"ghosts", "ghost_gradients", "weights", "weight_gradients", "weight_exchange"}
    assert first.traffic == second.traffic
    size = sum(weight.nbytes for weight in cluster.state().weights.values())
    assert first.traffic["weight_exchange"] == 2 * size  # every new value to the two servers that did not make it
    posted = first.traffic["ghosts"] + first.traffic["ghost_gradients"]
    assert sum(delivery.num_bytes for delivery in first.deliveries) == posted
    assert {(delivery.server, delivery.peer) for delivery in first.deliveries} == {(0, 1), (1, 0)}


def test_on_one_server_only_weights_are_sent(make_cluster, graph):
    report = make_cluster(graph, dorylus.gcn(dropout=0.5)).train_epoch()
    assert set(report.traffic) == {"weights", "weight_gradients"}
    assert report.deliveries == []


def test_an_evaluation_is_no_part_of_an_epochs_traffic(make_cluster, graph):
    quiet, watched = (make_cluster(graph, dorylus.gcn(dropout=0.5), servers=2) for _ in range(2))
    for _ in range(2):
        watched.outputs()
        assert watched.train_epoch().traffic == quiet.train_epoch().traffic
    assert len(watched.train_epoch().deliveries) == len(quiet.train_epoch().deliveries)


def test_values_of_exact_epochs_have_no_age(make_cluster, graph):
    assert make_cluster(graph, dorylus.gcn(), servers=2).train_epoch().ages == {}


@pytest.mark.parametrize("staleness", [0, 2])
def test_no_value_is_read_that_is_older_or_newer_than_the_bound_allows(make_cluster, graph, staleness):
    cluster = make_cluster(graph, dorylus.gcn(), servers=2, mode="async", staleness=staleness)
    reports = [cluster.train_epoch(min(epoch + staleness, 7)) for epoch in range(8)]
    ages = {age for report in reports for age in report.ages}
    assert ages
    assert min(ages) >= -staleness
    assert max(ages) <= staleness + 1
    whole = sum(sum(report.ages.values()) for report in reports)
    per_epoch = sum(make_cluster(graph, dorylus.gcn(), servers=2, mode="async").train_epoch().ages.values())
    assert whole == 8 * per_epoch  # every read is counted once, in whichever report


def test_the_first_epoch_of_an_asynchronous_cluster_reads_no_old_value(make_cluster, graph):
    cluster = make_cluster(graph, dorylus.gcn(), servers=2, mode="async", staleness=1)
    assert set(cluster.train_epoch().ages) == {0}


def test_epochs_that_have_turned_exact_read_no_old_value(make_cluster, graph):
    cluster = make_cluster(graph, dorylus.gcn(), servers=2, mode="async", staleness=1)
    for epoch in range(4):
        cluster.train_epoch(min(epoch + 1, 3))
    assert [set(cluster.train_epoch(exact_from=4).ages) for _ in range(2)] == [{0}, {0}]


def test_logits_are_in_the_graphs_own_order(make_cluster, graph):
    recipe = dorylus.gcn(dropout=0.5)
    with torch.no_grad():
        expected = reference.forward(recipe.build(6, 3, seed=0), graph)
    for servers in (1, 3):
        logits = make_cluster(graph, recipe, reorder="rcm", servers=servers).outputs().whole()
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-6)


def matches_reference(make_cluster, graph, program, epochs=4):
    """Whether training a program equals the plain reference, on one server and on several."""
    expected = reference.train_reference(graph, program, epochs=epochs, lr=0.05)
    for servers in (1, 3):
        cluster = make_cluster(graph, program, intervals=5, servers=servers)
        losses = [cluster.train_epoch().loss for _ in range(epochs)]
        assert losses == pytest.approx(expected.losses, rel=1e-4)
        np.testing.assert_allclose(cluster.outputs().whole(), expected.logits, rtol=1e-3, atol=1e-4)


class Sums(dorylus.Layer):
    """Its gradients are one number, expanded to a row."""

    def apply_vertex(self, own, gathered):
        return own.sum(1, keepdim=True).expand(-1, self.out_columns) + gathered.sum(1, keepdim=True)


class Ignores(dorylus.Layer):
    """Its output does not depend on what it gathered."""

    def apply_vertex(self, own, gathered):
        return own


class Transposes(dorylus.Layer):
    """Its gradients are laid out by columns."""

    def prepare(self, x):
        return x.t().contiguous().t()

    def apply_vertex(self, own, gathered):
        return (own.t().contiguous() + gathered.t().contiguous()).t()


class Passes(dorylus.Layer):
    """Returns rows and cotangents unchanged."""

    own = "none"

    def prepare(self, x):
        return x


@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("layer", [Sums, Ignores, Transposes, Passes])
def test_any_body_autograd_can_differentiate_is_trained_exactly(make_cluster, graph, layer, dropout):
    torch.manual_seed(0)
    program = dorylus.Program([GCN(6, 4, activation="tanh"), layer(4, 4, dropout=dropout), GCN(4, 3, dropout=dropout)])
    matches_reference(make_cluster, graph, program)


def test_a_program_of_which_only_the_last_layer_is_trainable(make_cluster, graph):
    torch.manual_seed(0)
    program = dorylus.Program([GCN(6, 4, activation="tanh"), GCN(4, 3)])
    for parameter in program.layer(0).parameters():
        parameter.requires_grad_(False)
    frozen = program.layer(0).lin.weight.clone()
    matches_reference(make_cluster, graph, program)
    assert torch.equal(program.layer(0).lin.weight, frozen)


def test_layers_may_share_their_weights(make_cluster, graph):
    torch.manual_seed(0)
    shared = GCN(4, 4, activation="tanh")
    matches_reference(make_cluster, graph, dorylus.Program([GCN(6, 4), shared, shared, GCN(4, 3)]))


class Averages(dorylus.Layer):
    """A body that returns one row for many, where there are more than those with which a body is checked."""

    def apply_vertex(self, own, gathered):
        return gathered.mean(0, keepdim=True) if len(gathered) > 8 else gathered


def test_a_body_that_gives_another_number_of_rows_is_refused(make_cluster, graph):
    cluster = make_cluster(graph, dorylus.Program([Averages(6, 6), SAGE(6, 3, aggregator="max")]))
    with pytest.raises(TrainingError, match=r"AV of interval .* rows"):
        cluster.train_epoch()


def test_a_pool_that_never_answers_misses_the_deadline(make_cluster, graph):
    class Silent:
        def submit(self, call, done, failed):
            pass

        def close(self):
            pass

    cluster = make_cluster(graph, dorylus.gcn(), pool=Silent(), deadline_s=0.2)
    with pytest.raises(TrainingError, match=r"AV of interval \d in epoch 1 failed: .*deadline_s=0\.2"):
        cluster.train_epoch()


def test_an_invalid_reply_fails_its_task_also_from_another_thread(make_cluster, graph):
    class Confused:
        """Answers from a thread of its own, with too few outputs."""

        def __init__(self):
            self.threads = ThreadPoolExecutor(1)

        def submit(self, call, done, failed):
            self.threads.submit(lambda: done(replace(dense.run(call), outputs=())))

        def close(self):
            self.threads.shutdown()

    cluster = make_cluster(graph, dorylus.gcn(), pool=Confused(), deadline_s=1.0)
    with pytest.raises(TrainingError, match=r"AV of interval \d in epoch 1 failed: ValueError"):
        cluster.train_epoch()


def test_weights_that_see_no_row_decay_all_the_same(graph):
    """No edges: an edge layer's own weights have the gradient zero, on which weight decay acts."""
    no_vertices = np.zeros(0, np.int64)
    alone = dorylus.Graph.from_edges(
        no_vertices,
        no_vertices,
        graph.num_vertices,
        features=graph.features,
        labels=graph.labels,
        train_mask=graph.train_mask,
    )
    program, rates = model("gates"), {"epochs": 4, "lr": 0.05, "weight_decay": 0.1}
    expected = reference.train_reference(alone, program, **rates).program.state_dict()
    found = dorylus.train(alone, program, servers=2, threads=1, eval_every=0, **rates).model.state_dict()
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-6)


def test_evaluations_leave_nothing_behind_that_grows(make_cluster, graph):
    cluster = make_cluster(graph, dorylus.gcn(), servers=3, intervals=2)
    for _ in range(3):
        cluster.outputs()
    assert cluster._process.evaluation.deliveries == []
