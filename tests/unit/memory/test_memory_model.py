"""The memory model compared with sizes counted by hand: a GCN of two layers over a thousand vertices."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import dorylus
from dorylus.memory.layout import GraphSizes, MemoryLayout
from dorylus.memory.limit import SPILL_POLICIES
from dorylus.memory.model import in_files, in_memory
from dorylus.paging.io_threads import WRITES
from dorylus.paging.reserved_memory import PAGE
from dorylus.saga import Savings, lower
from dorylus.saga.columns import in_blocks
from dorylus.servers.graph.paged import AHEAD, SpillPolicy

SIZES = GraphSizes(
    vertices=1000, edges=5000, features=48, label_columns=1, directed=False, weighted=False, self_loops=True
)
LAYOUT = MemoryLayout(spill=SpillPolicy(), static_blocks=1, intervals=10, threads=2)
NOTHING = SpillPolicy(rows=False, gathered=False, published=False)
EDGES = 4 * 6000  # with a self loop a vertex
VERTICES = 1000 * (4 + 8 + 8 + 1 + 4 + 4 + 4)  # order, offsets, offsets with loops, loops, scale, label, mask
# A thousand vertices take as many KB as a row takes bytes. Features have 48 columns, the hidden row 32, classes 24.
FEATURES, HIDDEN, CLASSES = 192_000, 128_000, 96_000
KEPT = (HIDDEN + CLASSES) * 17 // 16  # by autograd, of two bodies, and what is lost between its tensors
WORK = 2 * 100 * 4 * (48 + 5 * 32)  # two threads, a hundred rows, the first layer's input and its outputs


def plans(recipe=None):
    program = (recipe or dorylus.gcn(hidden=32, dropout=0.5)).build(48, 24)
    return [lower(program, sparse_features=False, training=each, savings=Savings()) for each in (True, False)]


@pytest.fixture(autouse=True)
def no_arenas(monkeypatch):
    monkeypatch.setattr("dorylus.memory.model_pass.ARENA", 0)


def test_everything_in_files_as_counted_by_hand():
    found = in_files(SIZES, *plans(), LAYOUT)
    # Gathered features, hidden rows and what the second layer gathers wait for a later phase; so do the features with
    # dropout, and the cotangent that is gathered back.
    kept = {"features": FEATURES, "activations": FEATURES + HIDDEN + CLASSES, "gradients": CLASSES, "edges": EDGES}
    assert found.on_disk == Counter({**kept, "results": CLASSES})
    assert found.written == FEATURES + FEATURES + HIDDEN + CLASSES + CLASSES
    # Each of them is read once, and so are the features of the graph; edges are, by two gathers and one backward.
    assert found.read == FEATURES + found.written + 3 * EDGES
    # At the worst all features are gathered from, with the rows made of them on their way.
    moving = (2 * (FEATURES + HIDDEN + CLASSES) + WRITES * FEATURES + (2 + AHEAD) * EDGES) // 10
    # Pages in which intervals meet: of the graph's features, of the three matrices made by then, and of all edges.
    moving += 4 * 9 * PAGE + EDGES
    moving += found.on_disk.total() // PAGE * 8  # the kernel's tables
    held = {"features": FEATURES, "on the way": moving, "work": WORK, "vertices": VERTICES}
    assert +found.resident == Counter(held)
    assert found.peak == FEATURES + moving + WORK + VERTICES


def test_intervals_of_many_rows_meet_in_pages_of_edges_alone():
    found = in_files(replace(SIZES, vertices=100_000, edges=500_000), *plans(), LAYOUT)
    moving = 10 * (2 * (FEATURES + HIDDEN + CLASSES) + WRITES * FEATURES + (2 + AHEAD) * EDGES)
    assert found.resident["on the way"] == moving + 9 * PAGE + found.on_disk.total() // PAGE * 8


def test_only_the_graph_in_files_as_counted_by_hand():
    found = in_files(SIZES, *plans(), replace(LAYOUT, spill=NOTHING))
    assert found.read == FEATURES + 3 * EDGES
    assert found.written == 0
    # At the worst: features with dropout, what is gathered of them, hidden rows, and what is made of those.
    assert found.resident["features"] == FEATURES
    assert found.resident["activations"] == FEATURES + HIDDEN + CLASSES
    assert found.resident["gradients"] == 0
    assert found.on_disk == Counter({"results": CLASSES, "edges": EDGES})


def test_everything_in_memory_as_counted_by_hand():
    recipe = dorylus.gcn(hidden=32, dropout=0.5, input_dropout=0.0)
    found = in_memory(SIZES, *plans(recipe), LAYOUT, mapped=False)
    assert (found.read, found.written, found.on_disk.total()) == (0, 0, 0)
    assert +found.resident == Counter(
        {
            "first gather": FEATURES,
            "activations": HIDDEN + CLASSES + CLASSES + KEPT,
            "gradients": CLASSES,
            "results": CLASSES,
            "edges": EDGES,
            "work": 2 * 100 * 4 * (24 + 5 * 24),  # of the last layer, in whose phase most is held
            "vertices": VERTICES + 48 * 1000,
        }
    )


def test_a_mapped_graph_is_read_into_memory_too():
    sizes, both = replace(SIZES, self_loops=False), plans(dorylus.sage(hidden=32))
    plain, mapped = (in_memory(sizes, *both, LAYOUT, mapped=each) for each in (False, True))
    assert mapped.peak - plain.peak == 4 * 5000 + FEATURES


def test_copied_edges_of_a_mapped_graph_are_released():
    plain, mapped = (in_memory(SIZES, *plans(), LAYOUT, mapped=each) for each in (False, True))
    assert mapped.peak - plain.peak == FEATURES
    assert plain.resident["edges"] == EDGES


def test_pages_of_a_mapped_graph_that_are_read_in_order_can_be_dropped():
    unlooped = replace(SIZES, self_loops=False)
    gathered = in_memory(unlooped, *plans(dorylus.sage(hidden=32, dropout=0.5)), LAYOUT, mapped=True)
    assert gathered.droppable == 4 * 5000  # rows of the features are gathered from in any order
    transformed = in_memory(SIZES, *plans(dorylus.gat(hidden=4, heads=4)), LAYOUT, mapped=True)
    assert transformed.droppable == FEATURES
    assert in_memory(SIZES, *plans(), LAYOUT, mapped=False).droppable == 0


def test_features_that_are_stored_sparse_take_their_sparse_size():
    sparse = replace(SIZES, sparse_bytes=777)
    plain = in_memory(sparse, *plans(), LAYOUT, mapped=False)
    assert in_memory(sparse, *plans(), LAYOUT, mapped=True).peak - plain.peak == 777


def test_rows_in_an_order_of_their_own_are_a_copy_of_features_and_edges():
    sizes, both = replace(SIZES, self_loops=False), plans(dorylus.sage(hidden=32, dropout=0.5))
    plain, ordered = (in_memory(sizes, *both, replace(LAYOUT, reordered=each), mapped=False) for each in (False, True))
    assert ordered.resident["features"] - plain.resident["features"] == FEATURES
    assert ordered.resident["edges"] - plain.resident["edges"] == 4 * 5000
    assert ordered.resident["vertices"] - plain.resident["vertices"] == 8 * 1000  # offsets of these edges
    mapped = in_memory(sizes, *both, replace(LAYOUT, reordered=True), mapped=True)
    assert mapped.peak == ordered.peak  # the graph's own are released


def test_a_level_that_leaves_rows_out_has_edges_of_its_own_for_its_gradient():
    whole = replace(LAYOUT, reordered=True)
    pruned = replace(whole, rows=(1000, 1000, 300), edges_into=(5000, 5000, 1700))
    found = [in_memory(SIZES, *plans(), layout, mapped=False).resident["edges"] for layout in (whole, pruned)]
    assert found == [EDGES, EDGES + 4 * (1700 + 1000)]


def test_rows_that_training_does_not_need_take_nothing():
    recipe = dorylus.gcn(hidden=32, dropout=0.5, input_dropout=0.0)
    everything = in_memory(SIZES, *plans(recipe), LAYOUT, mapped=False)
    assert in_memory(SIZES, *plans(recipe), replace(LAYOUT, rows=(1000,) * 3), mapped=False).peak == everything.peak
    less = in_memory(SIZES, *plans(recipe), replace(LAYOUT, rows=(100, 10, 1)), mapped=False)
    evaluated = in_memory(SIZES, None, plans(recipe)[1], LAYOUT, mapped=False)
    assert evaluated.peak <= less.peak < everything.peak


def test_values_not_kept_for_the_backward_pass_are_not_counted():
    kept, not_kept = (in_memory(SIZES, *plans(), replace(LAYOUT, kept=each), mapped=False) for each in (True, False))
    assert kept.resident["activations"] - not_kept.resident["activations"] == KEPT


def test_a_graph_without_a_store_is_not_read_from_files():
    stored = in_files(SIZES, *plans(), LAYOUT)
    here = in_files(replace(SIZES, edges_in_files=False, features_in_files=False), *plans(), LAYOUT)
    assert stored.read - here.read == FEATURES  # edges with self loops are scratch in any case
    unlooped = replace(SIZES, self_loops=False)
    stored, here = (
        in_files(unlooped, *plans(), LAYOUT),
        in_files(replace(unlooped, edges_in_files=False), *plans(), LAYOUT),
    )
    assert stored.read - here.read == 3 * 4 * 5000


def test_the_first_gather_is_a_file_that_is_there_for_good():
    found = in_files(SIZES, *plans(dorylus.gcn(hidden=32, dropout=0.0)), LAYOUT)
    assert found.on_disk["first gather"] == FEATURES
    assert found.on_disk["features"] == 0
    # It is read forward and backward. Without dropout no hidden rows are kept: backward makes them again.
    assert found.read == FEATURES * 2 + CLASSES * 2 + 2 * EDGES
    assert found.written == CLASSES * 2


def test_features_gathered_in_blocks_of_columns_are_held_in_blocks():
    sizes = replace(SIZES, features=4800)
    program = dorylus.gcn(hidden=32, dropout=0.0).build(4800, 24)
    evaluation = lower(program, sparse_features=False, training=False, savings=Savings())
    found = [in_files(sizes, None, evaluation, replace(LAYOUT, intervals=1000, static_blocks=n)) for n in (1, 4)]
    assert [each.resident["features"] for each in found] == [4 * 4800 * 1000, 4 * 1200 * 1000]


def test_gathers_in_blocks_of_columns_hold_less_and_read_edges_more_often():
    both = plans(dorylus.gcn(hidden=[96, 96], dropout=0.0))
    whole, cut = (in_files(SIZES, *(in_blocks(plan, blocks) for plan in both), LAYOUT) for blocks in (1, 3))
    held = [max(each.resident["activations"], each.resident["gradients"]) for each in (whole, cut)]
    assert held == [4 * 96 * 1000, 4 * 32 * 1000]
    assert cut.read - whole.read >= 4 * EDGES  # two more gathers of the second layer, forward and backward
    assert cut.on_disk["edges"] == whole.on_disk["edges"]


def test_half_precision_halves_the_gathered_matrices():
    found = in_files(SIZES, *plans(), replace(LAYOUT, half=True))
    assert found.resident["features"] == FEATURES // 2
    assert found.on_disk["gradients"] == CLASSES // 2


def test_half_precision_halves_the_first_gather_in_its_file_and_in_transfer():
    recipe = dorylus.gcn(hidden=32, dropout=0.5, input_dropout=0.0)
    whole, half = (in_files(SIZES, *plans(recipe), replace(LAYOUT, half=each)) for each in (False, True))
    assert (whole.on_disk["first gather"], half.on_disk["first gather"]) == (FEATURES, FEATURES // 2)
    # It is read forward and backward; the rows and the cotangent that are gathered are read once each.
    assert whole.read - half.read == (2 * FEATURES + CLASSES + CLASSES) // 2


def test_float16_features_halve_the_reads_of_the_graph():
    whole, half = (in_files(replace(SIZES, feature_item=item), *plans(), LAYOUT) for item in (4, 2))
    assert whole.read - half.read == FEATURES // 2
    assert replace(half, read=whole.read) == whole  # rows in memory are float32, and so are their results


@pytest.mark.parametrize(
    "recipe",
    [
        dorylus.gat(hidden=8, heads=4, dropout=0.0),
        dorylus.gat(hidden=8, heads=4, dropout=0.5),
        dorylus.sage(hidden=32, dropout=0.0),
    ],
    ids=["by dense tasks", "with dropout", "with a gather"],
)
def test_float16_features_read_forward_and_backward_are_half_too(recipe):
    whole, half = (in_files(replace(SIZES, feature_item=item), *plans(recipe), LAYOUT) for item in (4, 2))
    assert whole.read - half.read == 2 * FEATURES // 2
    assert whole.on_disk["features"] == half.on_disk["features"] == 0  # but for the store's own


def test_float16_features_in_memory_are_mapped_and_copied():
    whole, half = (
        in_memory(replace(SIZES, feature_item=item), *plans(), LAYOUT, mapped=True).resident["features"]
        for item in (4, 2)
    )
    assert half - whole == FEATURES // 2


def test_a_copy_of_the_features_that_is_gathered_in_every_epoch_lies_on_disk():
    program = dorylus.gcn(hidden=32, dropout=0.0).build(48, 24)
    savings = Savings(cache_first_gather=False)
    made = [
        in_blocks(lower(program, sparse_features=False, training=False, savings=savings), blocks) for blocks in (1, 3)
    ]
    assert in_files(SIZES, None, made[0], LAYOUT).on_disk["features"] == 0  # the store's own
    assert in_files(replace(SIZES, feature_item=2), None, made[0], LAYOUT).on_disk["features"] == 0
    assert in_files(SIZES, None, made[0], replace(LAYOUT, half=True)).on_disk["features"] == FEATURES // 2
    assert in_files(SIZES, None, made[1], LAYOUT).on_disk["features"] == FEATURES


@pytest.mark.parametrize(
    "recipe",
    [
        dorylus.gcn(hidden=32, dropout=0.5),
        dorylus.sage(hidden=32, aggregator="max", dropout=0.5),
        dorylus.gat(hidden=8, heads=4),
        dorylus.gin(hidden=32, dropout=0.0),
    ],
    ids=["gcn", "sage max", "gat", "gin"],
)
def test_each_spill_policy_moves_more_than_the_one_before(recipe):
    found = [in_files(SIZES, *plans(recipe), replace(LAYOUT, spill=policy)) for policy in SPILL_POLICIES]
    moved = [each.read + each.written for each in found]
    assert moved == sorted(moved)
    assert moved[0] < moved[-1]
    files = [each.on_disk.total() for each in found]
    assert files == sorted(files)


def test_the_graph_shape_agrees_with_the_graph():
    graph = dorylus.Graph.from_edges(
        [0, 1, 2],
        [1, 2, 3],
        4,
        undirected=False,
        edge_weight=np.ones(3, np.float32),
        features=np.ones((4, 48), np.float32),
        labels=np.eye(4, 24, dtype=np.uint8),
    )
    sizes = GraphSizes.of(graph, plans()[1])
    assert sizes == GraphSizes(
        vertices=4, edges=3, features=48, label_columns=24, directed=True, weighted=True, self_loops=True, turned=True,
        edges_in_files=False, features_in_files=False,
    )  # fmt: skip
    assert sizes.edge_bytes == (3 + 4) * (4 + 4)
    # order, offsets (own, with loops, backward), loops, scale, sum of weights, labels, mask
    assert sizes.vertex_bytes == 4 * (4 + 3 * 8 + 1 + 4 + 8 + 4 * 24 + 4)
