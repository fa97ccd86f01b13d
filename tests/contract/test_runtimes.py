"""The contract of runtimes with the trainer, on local and remote servers."""

import threading
from collections import Counter
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

import dorylus
from dorylus.errors import TrainingError
from dorylus.pools import ThreadsPool
from dorylus.runtime import LocalRuntime
from dorylus.saga import GCN, reference
from in_process_servers import remote_runtime

IMPLEMENTATIONS = {"local": LocalRuntime, "remote": remote_runtime}  # (job, pool) -> runtime


@pytest.fixture(params=IMPLEMENTATIONS)
def runtime_of(request, make_cluster):
    """Makes runtimes of one implementation: (graph, model, pool=..., settings)."""
    return lambda *given, **settings: make_cluster(*given, kind=IMPLEMENTATIONS[request.param], **settings)


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


def program(name="gcn", dropout=0.0):
    if name != "gates":
        return getattr(dorylus, name)(dropout=dropout).build(6, 3, seed=0)
    torch.manual_seed(0)
    return dorylus.Program([Gate(6, 5), Gate(5, 3, dropout=dropout)])


CUTS = [{}, {"servers": 3, "intervals": 2}, {"servers": 2, "parameter_servers": 3, "mode": "no_pipe"}]
MODELS = ["gcn", "gat", "sage", "gin", "gates"]
MOST_UNLIKE = [
    pytest.param(model, marks=[] if model in ("gcn", "gat", "gates") else [pytest.mark.soak]) for model in MODELS
]


def forward(made, graph, weights):
    """An exact forward pass of a program with some weights, by plain PyTorch."""
    made = deepcopy(made)
    made.load_state_dict({**made.state_dict(), **weights})
    with torch.no_grad():
        return reference.forward(made, graph).numpy()


def losses(cluster, epochs):
    return [cluster.train_epoch().loss for _ in range(epochs)]


def equal(first, second):
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def expected_losses(graph):
    """The losses of the reference, by model: once for every cut of every cluster."""
    runs = {name: reference.train_reference(graph, program(name, dropout=0.5), epochs=5, lr=0.05) for name in MODELS}
    return {name: run.losses for name, run in runs.items()}


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("model", MOST_UNLIKE)
def test_losses_are_those_of_the_reference(runtime_of, graph, expected_losses, model, cut):
    found = losses(runtime_of(graph, program(model, dropout=0.5), **cut), 5)
    assert found == pytest.approx(expected_losses[model], rel=1e-4)


@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_a_report_has_every_task_of_its_epoch(runtime_of, graph, cut):
    cluster = runtime_of(graph, program(), **cut)
    for epoch in range(2):
        report = cluster.train_epoch()
        tasks = Counter(span.task for span in report.spans)
        intervals = {task.interval for task in tasks}
        assert set(tasks.values()) == {1}
        assert {task.epoch for task in tasks} == {epoch}
        assert len(intervals) == cut.get("servers", 1) * cut.get("intervals", 4)
        assert len(tasks) % len(intervals) == 0
        assert report.seconds > 0


@pytest.mark.parametrize("cut", CUTS, ids=str)
@pytest.mark.parametrize("model", MOST_UNLIKE)
def test_outputs_are_an_exact_forward_pass_with_the_weights_given(runtime_of, graph, model, cut):
    made = program(model, dropout=0.5)
    cluster = runtime_of(graph, made, **cut)
    first = cluster.state().weights
    losses(cluster, 3)
    latest = cluster.state().weights
    for weights, given in ((latest, None), (first, first), (latest, latest)):
        expected = forward(made, graph, weights)
        np.testing.assert_allclose(cluster.outputs(weights=given).whole(), expected, rtol=1e-4, atol=1e-5)
    assert not np.allclose(forward(made, graph, first), forward(made, graph, latest), atol=1e-3)


def test_outputs_are_a_copy_that_later_calls_do_not_change(runtime_of, graph):
    cluster = runtime_of(graph, program())
    first = cluster.outputs().whole()
    before = first.copy()
    losses(cluster, 2)
    cluster.outputs()
    np.testing.assert_array_equal(first, before)


def test_the_last_layer_may_be_named_from_either_end(runtime_of, graph):
    cluster = runtime_of(graph, program(), servers=2)
    np.testing.assert_array_equal(cluster.outputs(-1).whole(), cluster.outputs(1).whole())


@pytest.mark.parametrize("weights", [False, True], ids=["the latest", "given ones"])
def test_reading_outputs_does_not_change_the_training(runtime_of, graph, weights):
    left_alone, watched = (runtime_of(graph, program(dropout=0.5), servers=2) for _ in range(2))
    first = watched.state().weights
    for _ in range(3):
        watched.outputs(weights=first if weights else None)
        assert watched.train_epoch().loss == left_alone.train_epoch().loss
    assert equal(watched.state().weights, left_alone.state().weights)


@pytest.mark.parametrize("model", ["gcn", "gates"])
@pytest.mark.parametrize("cut", CUTS, ids=str)
def test_training_continued_from_a_state_gives_the_same_bits(runtime_of, graph, model, cut):
    cluster, fresh = (runtime_of(graph, program(model), **cut) for _ in range(2))
    losses(cluster, 3)
    saved = cluster.state()
    expected, weights = losses(cluster, 3), cluster.state().weights
    assert len(set(expected)) == 3
    for again in (cluster, fresh):
        again.restore(saved)
        assert equal(again.state().weights, saved.weights)
        assert losses(again, 3) == expected
        assert equal(again.state().weights, weights)


def test_training_continues_from_a_state_of_another_cut(runtime_of, graph):
    first, second = runtime_of(graph, program()), runtime_of(graph, program(), servers=3, parameter_servers=2)
    losses(first, 3)
    second.restore(first.state())
    assert losses(second, 3) == pytest.approx(losses(first, 3), rel=1e-4)


def test_a_state_stays_as_it_was_taken(runtime_of, graph):
    cluster = runtime_of(graph, program(), parameter_servers=2)
    losses(cluster, 2)
    saved = cluster.state()
    before = deepcopy(saved)
    losses(cluster, 2)
    cluster.restore(saved)
    losses(cluster, 2)
    assert equal(saved.weights, before.weights)
    for name, entry in before.optimizer["state"].items():
        assert equal(as_tensors(saved.optimizer["state"][name]), as_tensors(entry))


def as_tensors(entry):
    return {name: torch.as_tensor(value) for name, value in entry.items()}


class CountedPool(ThreadsPool):
    """Counts the calls that it has not answered."""

    def __init__(self):
        self.lock, self.open, self.calls = threading.Lock(), 0, 0

    def count(self, by):
        with self.lock:
            self.open += by
            self.calls += by > 0

    def submit(self, call, done, failed):
        self.count(1)
        super().submit(call, self.answered(done), self.answered(failed))

    def answered(self, answer):
        def note(what):
            self.count(-1)  # before the answer: after the last one no thread waits for this thread
            answer(what)

        return note


AHEAD = {"mode": "async", "staleness": 2, "servers": 2, "intervals": 3}


def run_ahead(cluster, epochs):
    """Trains so many epochs, letting intervals go as far ahead as the bound allows."""
    return [cluster.train_epoch(min(epoch + AHEAD["staleness"], epochs - 1)) for epoch in range(epochs)]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("model", ["gcn", "gat", "gates"])
def test_nothing_is_in_flight_once_all_permitted_epochs_are_finished(runtime_of, graph, model, threads):
    pool = CountedPool()
    dropout = 0.0 if model == "gat" else 0.5  # attention with dropout has no asynchronous epochs
    cluster = runtime_of(graph, program(model, dropout=dropout), pool=pool, threads=threads, **AHEAD)
    reports = run_ahead(cluster, 6)
    assert pool.open == 0
    calls, weights = pool.calls, cluster.state().weights
    tasks = Counter(span.task for report in reports for span in report.spans)
    assert set(tasks.values()) == {1}
    by_epoch = Counter(task.epoch for task in tasks)
    assert set(by_epoch) == set(range(6))
    assert len(set(by_epoch.values())) == 1  # no task is missing, none is extra
    cluster.outputs()
    assert equal(cluster.state().weights, weights)
    assert pool.calls > calls


def test_one_epoch_is_permitted_unless_more_are(runtime_of, graph):
    cluster = runtime_of(graph, program(), **AHEAD)
    for epoch in range(3):
        assert {span.task.epoch for span in cluster.train_epoch().spans} == {epoch}


@pytest.mark.parametrize("threads", [1, 3])
def test_outputs_are_exact_also_while_intervals_are_ahead(runtime_of, graph, threads):
    made = program(dropout=0.5)
    cluster = runtime_of(graph, made, threads=threads, **AHEAD)
    for epoch in range(6):
        cluster.train_epoch(min(epoch + 2, 5))
        weights = cluster.state().weights
        expected = forward(made, graph, weights)
        np.testing.assert_allclose(cluster.outputs(weights=weights).whole(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("update", ["async", "sync"])
@pytest.mark.parametrize("model", MOST_UNLIKE)
def test_epochs_that_turn_exact_are_those_of_an_exact_cluster(runtime_of, graph, model, update):
    ahead = runtime_of(graph, without_any_dropout(model), weight_update=update, **AHEAD)
    exact = runtime_of(graph, without_any_dropout(model), servers=2, intervals=3)
    run_ahead(ahead, 4)
    exact.restore(ahead.state())
    found = [ahead.train_epoch(exact_from=4).loss for _ in range(3)]
    assert found == pytest.approx(losses(exact, 3), rel=1e-6)
    for name, weight in exact.state().weights.items():
        torch.testing.assert_close(ahead.state().weights[name], weight, rtol=1e-4, atol=1e-6)


def without_any_dropout(model):
    """Masks depend on the epoch's number, which the two clusters do not share."""
    return dorylus.gat(dropout=0.0, attention_dropout=0.0).build(6, 3, seed=0) if model == "gat" else program(model)


def test_the_first_epoch_is_exact_in_every_mode(runtime_of, graph):
    expected = reference.train_reference(graph, program(dropout=0.5), epochs=1, lr=0.05)
    cluster = runtime_of(graph, program(dropout=0.5), weight_update="sync", **AHEAD)
    assert cluster.train_epoch().loss == pytest.approx(expected.losses[0], rel=1e-5)
    np.testing.assert_allclose(cluster.outputs().whole(), expected.logits, rtol=1e-3, atol=1e-4)


def own_threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("dorylus-")]


@pytest.mark.parametrize("settings", [{}, {"servers": 3, "parameter_servers": 2}, AHEAD], ids=str)
def test_closing_leaves_no_thread_and_may_be_done_twice(runtime_of, graph, settings):
    cluster = runtime_of(graph, program(), threads=3, **settings)
    cluster.train_epoch()
    cluster.close()
    cluster.close()
    assert own_threads() == []


def test_a_cluster_may_be_closed_with_intervals_ahead(runtime_of, graph):
    cluster = runtime_of(graph, program(), threads=3, **AHEAD)
    for _ in range(2):
        cluster.train_epoch(40)
    cluster.close()
    assert own_threads() == []


class Breaks(dorylus.Layer):
    """Fails on a cut of the rows, not on the few rows with which a body is checked before the run."""

    def apply_vertex(self, own, gathered):
        if len(own) > 8:
            raise ArithmeticError("too many rows")
        return gathered


@pytest.mark.parametrize("settings", [{}, AHEAD], ids=str)
def test_a_task_that_fails_ends_the_epoch_with_its_name_and_the_cluster_can_be_closed(runtime_of, graph, settings):
    cluster = runtime_of(graph, dorylus.Program([Breaks(6, 6), GCN(6, 3)]), **settings)
    with pytest.raises(TrainingError, match=r"layer 0 \(Breaks\).* in epoch 1: ArithmeticError: too many rows"):
        cluster.train_epoch()
    cluster.close()
    assert own_threads() == []
