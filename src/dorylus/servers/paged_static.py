"""The gather that is made once, under a memory limit: some columns after the others, rows written to a file."""

from itertools import pairwise

import numpy as np

from dorylus.paging import PagedArray, Stage, Window
from dorylus.paging.window import down, up
from dorylus.partition import PagedArrangement
from dorylus.partition.paged_edges import at_hand
from dorylus.saga.stages import Gather
from dorylus.servers.bench import Bench, Extra, Matrix
from dorylus.servers.gathers import Gatherer
from dorylus.servers.paging import Paging
from dorylus.servers.static_gather import EachInterval


def gather_once_paged(
    stage: Gather, gather: Gatherer, bench: Bench, each_interval: EachInterval, paging: Paging
) -> PagedArray:
    """All rows of the gather. ``each_interval(n, work)`` does some work for n intervals."""
    shape = (bench.num_rows, stage.output.columns)
    made = paging.pager.scratch(shape, bench.gathered_dtype, bench.layout.bounds)
    blocks = 1 if stage.layer.reduce == "max" else min(paging.static_blocks, stage.output.columns)
    ends = np.linspace(0, stage.output.columns, blocks + 1).astype(int).tolist()
    features, edges = bench.num_rows * _feature_bytes(stage), gather.edges.num_edges * _edge_bytes(gather)
    told = paging.pager.stage("gathering the features", blocks * (features + edges))
    for columns in (slice(begin, end) for begin, end in pairwise(ends)):
        _gather_columns(stage, gather, bench, each_interval, made, columns, told)
    return made


def _feature_bytes(stage: Gather) -> int:
    """What is read of a vertex for every block: all of its features."""
    return 4 * stage.inputs[0].columns


def _edge_bytes(gather: Gatherer) -> int:
    return 4 if gather.edges.values is None else 8


def _gather_columns(
    stage: Gather,
    gather: Gatherer,
    bench: Bench,
    each_interval: EachInterval,
    made: PagedArray,
    columns: slice,
    told: Stage,
) -> None:
    width = columns.stop - columns.start
    row_bytes = 4 * width
    window = Window(bench.num_rows * row_bytes)
    gathered = window.array((bench.num_rows, width), np.float32)
    bench.matrices.put(stage.inputs[0], _feature_columns(stage, bench, columns, told))
    bench.matrices.put(stage.output, gathered)

    offsets = gather.edges.indptr

    def work(interval: int) -> None:
        begin, end = bench.layout.rows(stage.output.level, interval)
        with at_hand(gather.edges.pages, interval):
            gather.forward(interval, 0)
        with at_hand((made,), interval):
            bench.store(gathered[begin:end], made.array[:, columns], begin, end)
            made.wrote(interval)
        told.add(int(offsets[end] - offsets[begin]) * _edge_bytes(gather))
        window.drop(up(begin * row_bytes), max(up(begin * row_bytes), down(end * row_bytes)))

    each_interval(bench.layout.num_intervals, work)
    bench.matrices.release([stage.inputs[0], stage.output, Extra(stage.output, "ties")])


def _feature_columns(stage: Gather, bench: Bench, columns: slice, told: Stage) -> Matrix:
    """Some columns of all features, in memory."""
    shard = bench.shard
    assert isinstance(shard, PagedArrangement)
    size, width = shard.num_vertices, columns.stop - columns.start
    x: Matrix = Window(4 * size * width, huge=True).array((size, width), np.float32)
    pages = () if shard.features is None else (shard.features,)
    for interval, (begin, end) in enumerate(pairwise(shard.layout.bounds.tolist())):
        with at_hand(pages, interval):
            x[begin:end] = shard.feature_rows(begin, end, columns)
        told.add((end - begin) * _feature_bytes(stage))
    return x
