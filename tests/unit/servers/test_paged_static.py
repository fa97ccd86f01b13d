import numpy as np
import pytest

import dorylus
from dorylus.backends import native
from dorylus.backends.backend import NumberFormat
from dorylus.backends.host import NativeBackend
from dorylus.paging import Pager
from dorylus.paging.reserved_memory import up
from dorylus.partition import LocalShard, PagedLocalShard, plain_partition_plan, whole_shard
from dorylus.saga import Savings, lower
from dorylus.saga.stages import Gather
from dorylus.servers import PagedStorage, SpillPolicy
from dorylus.servers.graph.gathers import row_gatherer
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.pass_context import PassContext

SIZE, COLUMNS, INTERVALS = 800, 23, 4
RECIPES = {
    "gcn": dorylus.gcn(hidden=16, dropout=0.0),
    "sage mean": dorylus.sage(hidden=16, dropout=0.0),
    "sage max": dorylus.sage(hidden=16, dropout=0.0, aggregator="max"),
    "gin": dorylus.gin(hidden=16, dropout=0.0),
}


@pytest.fixture(scope="module")
def graph():
    rng = np.random.default_rng(5)
    source, destination = np.unique(rng.integers(0, SIZE, (2, 6000)), axis=1)
    features = rng.standard_normal((SIZE, COLUMNS), dtype=np.float32)
    return dorylus.Graph.from_edges(source, destination, SIZE, undirected=False, features=features)


@pytest.fixture(scope="module")
def stored(graph, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store") / "graph"
    graph.save(folder)
    return dorylus.Graph.open(folder)


def one_after_the_other(intervals, work):
    for interval in range(intervals):
        work(interval)


def plan_of(name):
    program = RECIPES[name].build(COLUMNS, 3)
    return lower(program, sparse_features=False, training=False, savings=Savings())


def static_stage(plan):
    return next(each for each in plan.stages if isinstance(each, Gather) and each.output.source == "static")


def gather_once(stage, plan, graph, blocks, pager, number_format=NumberFormat.FLOAT32):
    """(the context of a pass whose storage has gathered once, the rows)."""
    backend = NativeBackend()
    shard = PagedLocalShard(graph, plain_partition_plan(graph.indptr, 2, INTERVALS), pager)
    layout = shard.layout.everything()
    storage = PagedStorage(backend, pager, SpillPolicy(), blocks).open_pass(layout, plan)
    context = PassContext(
        shard, layout, shard.ghosts, shard.out_ghosts, storage.matrices, False, 0, number_format, backend
    )
    gather, features = row_gatherer(stage, context), InputRows(context, plan)
    return context, storage.gather_once(stage, gather, context, features, one_after_the_other)


def gathered_in_memory(stage, graph):
    """The same gather over the graph in memory, all columns at once."""
    edges = LocalShard(whole_shard(graph), plain_partition_plan(graph.indptr, 2, INTERVALS), graph).adjacency(
        stage.layer.edge_norm, stage.layer.self_loops
    )
    out = np.zeros((SIZE, COLUMNS), np.float64)
    for vertex in range(SIZE):
        rows = slice(edges.indptr[vertex], edges.indptr[vertex + 1])
        columns = edges.indices[rows]
        x = graph.features[columns].astype(np.float64)
        if stage.layer.reduce == "max":
            out[vertex] = x.max(axis=0) if len(columns) else 0
            continue
        weight = np.ones(len(columns)) if edges.col_scale is None else edges.col_scale[columns]
        out[vertex] = weight @ x * (1 if edges.row_scale is None else edges.row_scale[vertex])
    return out


def gathered_once(stage, plan, graph, blocks, number_format, folder):
    """(the rows, how many bytes of scratch they took)."""
    pager = Pager(folder, deadline_s=10)
    _, made = gather_once(stage, plan, graph, blocks, pager, number_format)
    made.acquire_all()
    rows = made.array.copy()
    made.release_all()
    pager.close()
    return rows, made.file.size


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("name", ["gcn", "sage max"])
def test_in_half_precision_it_is_rounded_and_takes_half_the_scratch(name, blocks, stored, tmp_path):
    plan = plan_of(name)
    stage = static_stage(plan)
    exact, whole = gathered_once(stage, plan, stored, blocks, NumberFormat.FLOAT32, tmp_path)
    found, half = gathered_once(stage, plan, stored, blocks, NumberFormat.BF16, tmp_path)
    rounded = np.empty(exact.shape, np.uint16)
    native.to_bf16(exact, rounded, 0, SIZE)
    np.testing.assert_array_equal(found, rounded)
    assert whole - half == up(exact.nbytes) - up(exact.nbytes // 2) > 0


@pytest.mark.parametrize("place", ["graph", "stored"])
@pytest.mark.parametrize("blocks", [1, 3, 99])
@pytest.mark.parametrize("name", RECIPES)
def test_columns_gathered_after_one_another_are_all_there(name, blocks, place, graph, request, tmp_path):
    plan = plan_of(name)
    stage = static_stage(plan)
    reports = {}
    pager = Pager(
        tmp_path, deadline_s=10, tell=lambda progress: reports.setdefault(progress.stage, []).append(progress[1:3])
    )
    context, made = gather_once(stage, plan, request.getfixturevalue(place), blocks, pager)
    made.acquire_all()
    np.testing.assert_allclose(made.array, gathered_in_memory(stage, graph), rtol=1e-5, atol=1e-5)
    made.release_all()
    held = 1 if context.shard.paged_features is None else 3  # the rows and, by two names, features of a file
    assert len(context.matrices) == held  # nothing else is left of it
    far = reports["gathering the features"]
    assert far[0][0] == 0
    assert far[-1][0] == far[-1][1] > 0  # all of it is done at the end
    assert far == sorted(far)
    pager.close()
