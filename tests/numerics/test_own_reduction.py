"""One file outside the package is enough for a new layer with a reduction of its own.

The reduction is a soft maximum, g_v = log Σ_u exp(x_u). It keeps the sums for its gradient,
∂g_v/∂x_u = exp(x_u) / sum_v. A second one, the sum of unit vectors g_v = Σ_u x_u / |x_u|, needs whole rows.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from agreement import assert_same_run
from limited_runs import NUM_CLASSES as PAGED_CLASSES
from limited_runs import NUM_FEATURES as PAGED_FEATURES
from limited_runs import SETTINGS as PAGED_SETTINGS
from limited_runs import LimitedCut, all_policies, assert_equal_runs, paged_graph, under_limit
from small_graphs import NUM_CLASSES, NUM_FEATURES, sample
from torch import nn

import dorylus
from dorylus.errors import ConfigError
from dorylus.memory.layout import GraphSizes, MemoryLayout
from dorylus.memory.model import in_files, in_memory
from dorylus.pipeline import Kind
from dorylus.saga import Gather, GatherSpec, GradientTask, Reduction, RowMatrix, Savings, lower, steps_of
from dorylus.saga.columns import in_blocks
from dorylus.saga.reference import train_reference
from dorylus.servers import Extra, Gatherer, MessageGatherer, Published, SpillPolicy, access_sets, last_readers
from dorylus.servers.graph.matrices import BoundedArena

SETTINGS = {"epochs": 10, "lr": 0.01, "weight_decay": 5e-4, "seed": 11}


class LogSumExpGather(Gatherer):
    """Over rows, in NumPy."""

    def forward(self, interval, epoch):
        begin, end = self.rows(interval)
        x, out = self.context.values(self.stage.inputs[0]), self.context.values(self.stage.output)
        sums = summed(self.edges, x, begin, end, of=np.exp)
        if self.context.training:
            self.kept("sums")[begin:end] = sums
        out[begin:end] = np.log(sums)

    def grad_scatter(self, interval, cotangent):
        begin, end = self.rows(interval)
        (share,) = self.published()
        share[begin:end] = cotangent / self.kept("sums")[begin:end]

    def grad_gather(self, interval, epoch, accumulate):
        source = self.stage.inputs[0]
        begin, end = self.context.layout.rows(source.level, interval)
        dx, x = self.context.cotangent(source), self.context.values(source)
        (share,) = self.published()
        found = np.exp(x[begin:end]) * summed(self.back, share, begin, end)
        dx[begin:end] = dx[begin:end] + found if accumulate else found


class LogSumExpMessages(MessageGatherer):
    """Over messages, in NumPy."""

    def forward(self, interval, messages):
        begin, end = self.rows(interval)
        sums = np.zeros((end - begin, messages[0].shape[1]), np.float32)
        np.add.at(sums, self._rows_of(interval), np.exp(messages[0]))
        self.context.values(self.stage.output)[begin:end] = np.log(sums)
        if self.context.training:
            self.kept("sums")[begin:end] = sums

    def grad_gather(self, interval, messages, cotangent):
        begin, end = self.rows(interval)
        share = cotangent[begin:end] / self.kept("sums")[begin:end]
        return (np.exp(messages[0]) * share[self._rows_of(interval)],)

    def _rows_of(self, interval):
        begin, end = self.rows(interval)
        return np.repeat(np.arange(end - begin), np.diff(self.edges.indptr[begin : end + 1]))


def summed(edges, values, begin, end, of=np.asarray):
    """Σ of the values, or of a function of them, over the edges of each row; no other row is read."""
    rows = np.repeat(np.arange(end - begin), np.diff(edges.indptr[begin : end + 1]))
    sums = np.zeros((end - begin, values.shape[1]), np.float32)
    np.add.at(sums, rows, of(values[edges.indices[edges.indptr[begin] : edges.indptr[end]]]))
    return sums


def by_pytorch(layer, values, edges):
    """The same in plain PyTorch, gradients by autograd."""
    messages = values[0] if layer.has_apply_edge else values[0][edges.source]
    return edges.reduce(messages.exp(), "sum").log()


ROWS = GatherSpec(
    gatherer=LogSumExpGather,
    kept=(RowMatrix(name="sums"),),
    published=(RowMatrix(name="share"),),
    grad_gather=GradientTask(reads=(0,), writes=(0,)),
    splits_columns=True,
    made_once=True,
)
MESSAGES = GatherSpec(gatherer=LogSumExpMessages, kept=(RowMatrix(name="sums"),), keeps_messages=True)
LOG_SUM_EXP = Reduction(name="logsumexp", rows=ROWS, messages=MESSAGES, reference=by_pytorch)


class Transformed(dorylus.Layer):
    """Gathers transformed rows."""

    reduce, self_loops, own = LOG_SUM_EXP, True, "none"

    def __init__(self, in_columns, out_columns, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(in_columns, out_columns)

    def prepare(self, x):
        return self.lin(x)


class Gathered(dorylus.Layer):
    """Gathers the layer's input; reads the vertex's own row, too: in the first layer, features, once for all epochs."""

    reduce, self_loops = LOG_SUM_EXP, True

    def __init__(self, in_columns, out_columns, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(2 * in_columns, out_columns)

    def apply_vertex(self, own, gathered):
        return self.lin(torch.cat([own, gathered], 1))


class Weighed(Transformed):
    """Gathers messages that see both ends of their edge."""

    def apply_edge(self, source, destination, weight):
        return source * torch.sigmoid(destination)


LAYERS = (Transformed, Gathered, Weighed)


def lengths(x):
    return np.sqrt((x * x).sum(axis=1, keepdims=True) + 1e-6)


class UnitSumGather(Gatherer):
    """Every column of the output depends on all columns of the rows."""

    def forward(self, interval, epoch):
        begin, end = self.rows(interval)
        x, out = self.context.values(self.stage.inputs[0]), self.context.values(self.stage.output)
        out[begin:end] = summed(self.edges, x, begin, end, of=lambda rows: rows / lengths(rows))

    def grad_gather(self, interval, epoch, accumulate):
        source = self.stage.inputs[0]
        begin, end = self.context.layout.rows(source.level, interval)
        dx, rows = self.context.cotangent(source), self.context.values(source)[begin:end]
        (cotangent,) = self.published()
        summands, scale = summed(self.back, cotangent, begin, end), lengths(rows)
        found = (summands - rows * (rows * summands).sum(axis=1, keepdims=True) / scale**2) / scale
        dx[begin:end] = dx[begin:end] + found if accumulate else found


def unit_sum_by_pytorch(layer, values, edges):
    (x,) = values
    return edges.reduce((x / torch.sqrt((x * x).sum(1, keepdim=True) + 1e-6))[edges.source], "sum")


class GatheredUnits(Gathered):
    reduce = Reduction(
        name="unit sum",
        rows=GatherSpec(
            gatherer=UnitSumGather,
            published=(RowMatrix(name="cotangent", narrow=True),),
            grad_gather=GradientTask(reads=(0,), writes=(0,)),
            made_once=True,
        ),
        reference=unit_sum_by_pytorch,
    )


WITH_UNITS = (*LAYERS, GatheredUnits)
# By precision="bf16": messages are made of rows that dense tasks read, and a gather that is made once is rounded.
ROUNDED = (Weighed, Gathered, GatheredUnits)


def program(layer, num_features=NUM_FEATURES, hidden=8, num_classes=NUM_CLASSES, dropout=0.0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        first = layer(num_features, hidden, activation="tanh")
        return dorylus.Program([first, layer(hidden, num_classes, dropout=dropout)])


@pytest.mark.parametrize(("servers", "intervals"), [(1, 1), (1, 4), (3, 1), (3, 3)])
@pytest.mark.parametrize("layer", WITH_UNITS)
def test_a_layer_with_a_reduction_of_its_own_trains_to_the_numbers_of_plain_pytorch(layer, servers, intervals):
    graph = sample(directed=True).graph
    expected = train_reference(graph, program(layer, dropout=0.3), **SETTINGS)
    cut = {"servers": servers, "intervals": intervals, "threads": 2}
    result = dorylus.train(graph, program(layer, dropout=0.3), **cut, **SETTINGS)
    assert_same_run(result.losses, result.predict("logits"), expected, relative=1e-5)


@pytest.mark.parametrize(("servers", "intervals"), [(1, 4), (3, 3)])
@pytest.mark.parametrize("layer", WITH_UNITS)
def test_in_bf16_the_rows_that_it_gathers_stay_in_float32(layer, servers, intervals):
    graph = sample(directed=True).graph
    cut = {"servers": servers, "intervals": intervals, "threads": 2}
    exact, rounded = (
        dorylus.train(graph, program(layer, dropout=0.3), precision=each, **cut, **SETTINGS)
        for each in ("float32", "bf16")
    )
    if layer in ROUNDED:
        assert rounded.losses != exact.losses
        np.testing.assert_allclose(rounded.losses, exact.losses, rtol=1e-3)
        found, expected = rounded.predict("logits"), exact.predict("logits")
        np.testing.assert_allclose(found, expected, rtol=0, atol=2e-2 * np.abs(expected).max())
    else:
        assert rounded.losses == exact.losses
        np.testing.assert_array_equal(rounded.predict("logits"), exact.predict("logits"))


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("policy", [SpillPolicy(), *all_policies()[:1]], ids=["all in files", "the graph in files"])
@pytest.mark.parametrize("layer", WITH_UNITS)
def test_it_trains_to_the_same_numbers_under_a_memory_limit(layer, policy, precision, tmp_path):
    graph = paged_graph("directed")
    model = program(layer, PAGED_FEATURES, 40, PAGED_CLASSES, dropout=0.3)
    free = dorylus.train(graph, model, prune_rows=False, intervals=5, precision=precision, **PAGED_SETTINGS)
    limited = under_limit(
        graph, model, tmp_path, LimitedCut(blocks=2, static_blocks=2, policy=policy), precision=precision
    )
    assert_equal_runs(limited, free, within=1e-6 if precision == "float32" else 2e-3)


def steps_and_gather(layer, *, backward=True):
    plan = lower(program(layer, 40, 36), sparse_features=False, training=backward, savings=Savings())
    steps = steps_of(plan, backward=backward)
    return steps, [stage for stage in plan.stages if isinstance(stage, Gather)][-1]


def kinds(steps, numbers):
    return {steps.table.steps[number].kind for number in numbers}


def test_the_gradient_task_reads_the_values_that_the_reduction_declares():
    steps, gather = steps_and_gather(Gathered)
    gradients = {number for number, stage in enumerate(steps.stages) if stage is gather}
    assert kinds(steps, gradients) == {Kind.GATHER, Kind.GRAD_SCATTER, Kind.GRAD_GATHER}
    assert kinds(steps, steps.readers[gather.inputs[0]] & gradients) == {Kind.GATHER, Kind.GRAD_GATHER}
    assert not steps.readers[gather.output] & gradients


@pytest.mark.parametrize("layer", LAYERS)
def test_access_sets_and_lifetimes_have_what_it_keeps_and_publishes(layer):
    steps, gather = steps_and_gather(layer)
    sums, share = Extra(gather.output, "sums"), Published(gather.output, "share")
    accesses = {
        step.kind: each
        for step, stage, each in zip(steps.table.steps, steps.stages, access_sets(steps), strict=True)
        if stage is gather
    }
    readers = last_readers(steps)
    assert sums in accesses[Kind.GATHER].writes
    at_destination = Kind.GRAD_GATHER if gather.over else Kind.GRAD_SCATTER
    assert sums in accesses[at_destination].reads
    assert kinds(steps, readers[sums]) == {Kind.GATHER, at_destination}
    if gather.over is None:
        assert share in accesses[Kind.GRAD_SCATTER].writes
        assert accesses[Kind.GRAD_GATHER].wholes == (share,)
        assert kinds(steps, readers[share]) == {Kind.GRAD_SCATTER, Kind.GRAD_GATHER}


SIZES = GraphSizes(
    vertices=1000, edges=5000, features=40, label_columns=1, directed=True, weighted=False, self_loops=True
)
LAYOUT = MemoryLayout(spill=SpillPolicy(), static_blocks=1, intervals=10, threads=2)


def plans(layer, num_features=40):
    made = program(layer, num_features, 36, 24)
    return [lower(made, sparse_features=False, training=each, savings=Savings()) for each in (True, False)]


class Forgetful(Transformed):
    reduce = replace(LOG_SUM_EXP, rows=replace(ROWS, kept=()))


def test_the_memory_model_counts_what_it_keeps():
    files = [in_files(SIZES, *plans(layer), LAYOUT).on_disk["activations"] for layer in (Transformed, Forgetful)]
    assert files[0] - files[1] == 1000 * 4 * 36  # the last layer's are read in the phase that writes them
    memory = [in_memory(SIZES, *plans(layer), LAYOUT, mapped=False).matrices for layer in (Transformed, Forgetful)]
    assert memory[0] - memory[1] == 1000 * 4 * 36  # and released by the worst moment


class ReadsBf16(Transformed):
    reduce = replace(LOG_SUM_EXP, rows=replace(ROWS, reads_bf16=True))


@pytest.mark.parametrize(
    "predict", [in_files, partial(in_memory, mapped=False)], ids=["with files", "everything in memory"]
)
def test_the_memory_model_knows_that_its_rows_stay_in_float32(predict):
    def bytes_of(layer, *, half):
        figures = predict(SIZES, *plans(layer), replace(LAYOUT, half=half))
        return figures.matrices, figures.on_disk["activations"]

    assert bytes_of(Transformed, half=False) == bytes_of(ReadsBf16, half=False) == bytes_of(Transformed, half=True)
    assert bytes_of(ReadsBf16, half=True) < bytes_of(ReadsBf16, half=False)


def test_the_memory_model_holds_all_columns_of_a_first_gather_that_cannot_be_split():
    class Splits(Gathered):
        reduce = replace(LOG_SUM_EXP, rows=replace(ROWS, kept=()))

    sizes, layout = replace(SIZES, vertices=100_000, features=4000), replace(LAYOUT, intervals=1000, static_blocks=4)

    def features(layer):
        return in_files(sizes, None, plans(layer, 4000)[1], layout).resident["features"]

    whole = 4000 * 4 * 100_000
    assert [features(each) for each in (Splits, Gathered, GatheredUnits)] == [whole // 4, whole, whole]


class Counting(BoundedArena):
    """Notes the most that was in use at once."""

    def __init__(self, backend, room):
        super().__init__(backend, room)
        self.room, self.most = room, 0

    def take(self, size, share=1.0):
        block = super().take(size, share)
        self.most = max(self.most, sum(counted for counted, _ in self._in_use.values()))
        return block


@pytest.mark.parametrize("layer", LAYERS)
def test_its_matrices_take_what_the_memory_model_predicts(layer, monkeypatch):
    arenas = []

    def make(backend, room):
        arenas.append(Counting(backend, room))
        return arenas[-1]

    monkeypatch.setattr("dorylus.runtime.server_process.BoundedArena", make)
    graph, model = paged_graph("directed"), program(layer, 40, 36, PAGED_CLASSES)
    settings = {"epochs": 2, "eval_every": 1, "threads": 1, "intervals": 4}
    free, limited = (dorylus.train(graph, model, memory=each, **settings) for each in (None, "8GiB"))
    assert limited.losses == free.losses  # where all fits, not a bit changes
    (arena,) = arenas
    assert arena.most == pytest.approx(arena.room, rel=0.02)


def test_columns_are_gathered_in_blocks_only_if_the_reduction_declares_it():
    class Whole(Gathered):
        reduce = replace(LOG_SUM_EXP, rows=replace(ROWS, splits_columns=False))

    def num_gathers(layer):
        plan = lower(program(layer, 40, 36), sparse_features=False, training=True, savings=Savings())
        return sum(isinstance(stage, Gather) for stage in in_blocks(plan, 3).stages)

    assert (num_gathers(Whole), num_gathers(Gathered)) == (2, 4)


def test_a_reduction_that_takes_no_messages_or_no_rows_is_refused_with_the_cure():
    class OfRows(Weighed):
        reduce = replace(LOG_SUM_EXP, messages=None)

    class OfMessages(Transformed):
        reduce = replace(LOG_SUM_EXP, rows=None)

    with pytest.raises(ConfigError, match=r"layer 0 reduces by logsumexp, which combines rows.*omit apply_edge"):
        program(OfRows)
    with pytest.raises(ConfigError, match="layer 0 reduces by logsumexp: write an apply_edge"):
        program(OfMessages)


def test_programs_with_different_reductions_are_described_differently():
    class Named(Transformed):
        def __init__(self, *columns, reduce, **finish):
            super().__init__(*columns, **finish)
            self.reduce = reduce

    first, second = (dorylus.Program([Named(3, 2, reduce=each)]) for each in (LOG_SUM_EXP, "sum"))
    assert "reduce=Reduction(name='logsumexp'" in first.describe()
    assert first.describe() != second.describe()
