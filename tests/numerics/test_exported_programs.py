"""Every dense task of every layer, as a program: the same numbers as torch, on any number of rows and any cut of them.

The calls are those of a real training run, evaluation included; each program is exported once for all tests here.
"""

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from programs import program
from small_graphs import NUM_CLASSES, NUM_FEATURES, sample
from torch import Tensor, nn

import dorylus
from dorylus.functions.export import Exports
from dorylus.functions.program import ExportedProgram, is_summed
from dorylus.functions.pure import Pure, signature
from dorylus.functions.runner import Runner
from dorylus.pools import ThreadsPool
from dorylus.saga import dense
from dorylus.saga.dense import Call, Mode, Reply
from dorylus.saga.layer import ACTIVATIONS
from dorylus.saga.sparse import SparseRows

TOLERANCE = 1e-5
Arrays = dict[str, NDArray[np.float32]]


class RecordingPool(ThreadsPool):
    """Runs calls, and keeps one of each signature."""

    def __init__(self) -> None:
        self.calls: dict[object, Call] = {}

    def submit(self, call: Call, done: object, failed: object) -> None:
        if signature(call) not in self.calls:
            self.calls[signature(call)] = _copied(call)
        super().submit(call, done, failed)  # type: ignore[arg-type]


def _copied(call: Call) -> Call:
    """The call with rows of its own: those it came with lie in memory that is used again."""
    inputs = tuple(deepcopy(x) if isinstance(x, SparseRows) else x.clone() for x in call.inputs)
    cotangents = tuple(None if given is None else given.clone() for given in call.cotangents)
    weights = {
        name: weight.detach().clone().requires_grad_(weight.requires_grad) for name, weight in call.weights.items()
    }
    return replace(call, inputs=inputs, cotangents=cotangents, weights=weights)


class EveryActivation(dorylus.Layer):
    """Each activation of the house on columns of its own."""

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        parts = gathered.chunk(len(ACTIVATIONS), 1)
        return torch.cat([f(part) for f, part in zip(ACTIVATIONS.values(), parts, strict=True)], 1)


class GatedEdges(dorylus.Layer):
    """Messages scaled and weighed by softmax, by a gate that looks at both ends of the edge and at its weight."""

    reduce = "softmax"

    def __init__(self, in_columns: int, out_columns: int, **finish: object) -> None:
        super().__init__(in_columns, out_columns, **finish)  # type: ignore[arg-type]
        self.lin = nn.Linear(in_columns, out_columns)
        self.gate = nn.Sequential(nn.Linear(2 * out_columns + 1, 4), nn.GELU(), nn.Linear(4, 1))

    def prepare(self, x: Tensor) -> Tensor:
        return self.lin(x)

    def apply_edge(self, source: Tensor, destination: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        score = self.gate(torch.cat([source, destination, weight], 1))
        return source * torch.sigmoid(score), score


def activations() -> dorylus.Program:
    return dorylus.Program([EveryActivation(NUM_FEATURES, NUM_FEATURES), dorylus.GCN(NUM_FEATURES, NUM_CLASSES)])


def edges() -> dorylus.Program:
    first = GatedEdges(NUM_FEATURES, 12, activation="relu")
    return dorylus.Program([first, dorylus.GCN(12, NUM_CLASSES)])


def sparse_graph() -> dorylus.Graph:
    whole = sample(directed=True).graph
    x = np.where(np.abs(sample(directed=True).x) > 1.2, sample(directed=True).x, 0)
    rows, columns = np.nonzero(x)
    indptr = np.searchsorted(rows, np.arange(len(x) + 1))
    features = dorylus.SparseFeatures(indptr, columns.astype(np.int32), x[rows, columns], NUM_FEATURES)
    return _graph(whole, features, whole.labels)


def many_labels_graph() -> dorylus.Graph:
    whole = sample(directed=True).graph
    labels = np.random.default_rng(0).integers(0, 2, (whole.num_vertices, NUM_CLASSES)).astype(np.float32)
    return _graph(whole, sample(directed=True).x, labels)


def _graph(like: dorylus.Graph, features: object, labels: object) -> dorylus.Graph:
    found = sample(directed=True)
    masks = {name: getattr(like, name) for name in ("train_mask", "val_mask", "test_mask")}
    return dorylus.Graph.from_edges(
        *found.edge_index, num_vertices=like.num_vertices, undirected=False, features=features, labels=labels, **masks
    )  # type: ignore[arg-type]


CASES = {
    "gin with a norm and a residual": lambda: (
        sample(directed=True).graph,
        program("gin", train_eps=True, residual=True, layer_norm=True, dropout=0.3),
    ),
    "sage by maximum with dropout": lambda: (
        sample(directed=True).graph,
        program("sage", aggregator="max", dropout=0.3),
    ),
    "gcn": lambda: (sample(directed=True).graph, program("gcn")),
    "gcn with a norm and a residual": lambda: (
        sample(directed=True).graph,
        program("gcn", residual=True, layer_norm=True, dropout=0.3),
    ),
    "gat": lambda: (sample(directed=True).graph, program("gat", output_heads=2)),
    "sage": lambda: (sample(directed=True).graph, program("sage", dropout=0.3)),
    "sage by maximum": lambda: (sample(directed=True).graph, program("sage", aggregator="max")),
    "gin": lambda: (sample(directed=True).graph, program("gin", train_eps=True)),
    "every activation": lambda: (sample(directed=True).graph, activations()),
    "edges": lambda: (sample(directed=True, weighted=True).graph, edges()),
    "sparse features": lambda: (sparse_graph(), program("gcn")),
    "many labels": lambda: (many_labels_graph(), program("gcn")),
}
# Each of these differs from a case that is always tried by what is no part of a program.
ALIKE = {"gcn", "gcn with a norm and a residual", "sage", "sage by maximum", "gin"}


@pytest.fixture(scope="module")
def exports() -> Exports:
    return Exports()


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner(max_programs=200)


@cache
def calls(case: str) -> tuple[Call, ...]:
    """The calls of two epochs of training, one of each signature."""
    pool = RecordingPool()
    graph, model = CASES[case]()
    dorylus.train(graph, model, pool=pool, epochs=2, rematerialize=True, intervals=2, threads=1, seed=3)
    return tuple(pool.calls.values())


@pytest.fixture(
    params=[pytest.param(case, marks=[pytest.mark.soak] if case in ALIKE else []) for case in CASES],
)
def tasks(request: pytest.FixtureRequest, exports: Exports, runner: Runner) -> list[tuple[Call, ExportedProgram]]:
    """Each call of a run with its program, which is ready to run."""
    found = [(call, exports.program(call)) for call in calls(request.param)]
    for _, made in found:
        runner.load(made.hash, made.content)
    return found


def dense_rows(call: Call) -> Call:
    inputs = tuple(x.to_dense() if isinstance(x, SparseRows) else x for x in call.inputs)
    return replace(call, inputs=inputs, kept=None, keep=False)


def arrays_of(call: Call, made: ExportedProgram) -> Arrays:
    pure = Pure(call)
    given = dict(zip(pure.inputs, pure.arguments(dense_rows(call)), strict=True))
    return {name: given[name].detach().numpy() for name in made.inputs}


def named(call: Call, reply: Reply) -> Iterator[tuple[str, NDArray[np.float32]]]:
    yield from ((f"output.{k}", output.numpy()) for k, output in enumerate(reply.outputs))
    yield from ((f"input_grad.{k}", grad.numpy()) for k, grad in enumerate(reply.input_grads) if grad is not None)
    yield from ((f"weight_grad.{name}", grad.numpy()) for name, grad in reply.weight_grads.items())
    if call.mode is Mode.LOSS:
        yield "loss", np.array(reply.loss, np.float32)


def assert_same(found: Arrays, expected: Arrays, call: Call) -> None:
    assert found.keys() == expected.keys(), call.body.label
    for name, want in expected.items():
        scale = max(1.0, float(np.abs(want).max(initial=0.0)))
        np.testing.assert_allclose(
            found[name], want, rtol=0, atol=TOLERANCE * scale, err_msg=f"{name} of {call.mode} of {call.body.label}"
        )


def test_a_program_gives_what_torch_gives_on_the_rows_of_a_real_run(tasks, runner):
    assert {call.mode for call, _ in tasks} == set(Mode)
    for call, made in tasks:
        assert call.inputs[0].shape[0] > 10
        assert all(np.isfinite(array).all() for array in arrays_of(call, made).values())
        assert_same(runner.run(made.hash, arrays_of(call, made)), dict(named(call, dense.run(call))), call)


@pytest.mark.parametrize("num_rows", [1, 2, 3000])
def test_a_program_takes_any_number_of_rows(tasks, runner, num_rows):
    for call, made in tasks:
        example = Pure(call).example(num_rows, seed=num_rows)
        found = runner.run(made.hash, arrays_of(example, made))
        assert_same(found, dict(named(example, dense.run(example))), call)


def test_a_program_takes_no_rows_at_all(tasks, runner):
    for call, made in tasks:
        example = Pure(call).example(0)
        expected = dict(named(example, dense.run(example)))
        found = runner.run(made.hash, arrays_of(example, made))
        assert found.keys() <= expected.keys()  # torch gives zeros for weights that no row could reach, too
        assert_same(found, {name: expected[name] for name in found}, call)
        assert all(np.count_nonzero(array) == 0 for array in found.values())


@pytest.mark.parametrize("part_rows", [1, 40, 64])
def test_parts_put_together_are_the_whole(tasks, runner, part_rows):
    for call, made in tasks:
        given = arrays_of(call, made)
        assert_same(runner.run_in_parts(made.hash, given, part_rows), runner.run(made.hash, given), call)


def test_programs_are_small_and_ask_only_for_what_they_use(tasks):
    for call, made in tasks:
        assert len(made.content) < 16_000
        weights = {f"weight.{name}" for name in call.body.weight_names}
        assert {name for name in made.inputs if name.startswith("weight.")} <= weights
        assert all(is_summed(name) or name.startswith(("output.", "input_grad.")) for name in made.outputs)


def test_sparse_rows_are_among_the_calls_that_were_tried():
    assert any(isinstance(x, SparseRows) for call in calls("sparse features") for x in call.inputs)


def test_both_losses_and_both_orders_of_a_convolution_are_among_them():
    losses = {call.targets.loss for case in CASES for call in calls(case) if call.targets is not None}
    assert losses == {"cross_entropy", "bce"}
    bodies = {call.body.label for call in calls("gcn")}
    assert (
        "apply_vertex of layer 0 (GCN) and prepare of layer 1 (GCN)" in bodies
    )  # gathers first, then transforms first
