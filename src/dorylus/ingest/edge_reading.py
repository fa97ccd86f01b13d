"""The first stage of an ingest: edges are read, numbered, checked and passed to the sort."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from dorylus.errors import DataError, GraphError, given
from dorylus.graph import MAX_VERTICES, FloatArray, IdArray, missing_vertex
from dorylus.ingest.batches import EdgeBatch, EdgeSource, Numbering, format_id
from dorylus.ingest.numbering import DenseIds, IdTableFullError
from dorylus.progress import ReportStage, StageProgress


class EdgeSink(Protocol):
    """A consumer of edges: a sort, or a scratch file."""

    def add(self, rows: IdArray, columns: IdArray, weights: FloatArray | None) -> None:
        """Add the edges (rows[e], columns[e])."""
        ...

    def close(self) -> None:
        """Release memory and disk space."""
        ...


class VertexBound(NamedTuple):
    """The number of vertices, and the statement about the file that determines it; None: num_vertices= does."""

    num_vertices: int
    reason: str | None


@dataclass
class PeekedBatches:
    """The batches of a source; the first was read to learn whether edges have weights."""

    batches: Iterator[EdgeBatch]
    weighted: bool

    @classmethod
    def of(cls, source: EdgeSource) -> "PeekedBatches":
        """The batches of ``source``."""
        batches = iter(source)
        first = next(batches, None)
        head: Iterable[EdgeBatch] = () if first is None else (first,)
        return cls(chain(head, batches), first is not None and first.weight is not None)


def read_edges(
    read: PeekedBatches,
    numbering: Numbering,
    sink: EdgeSink,
    bound: VertexBound | None,
    total_bytes: int | None,
    tell: ReportStage,
) -> int:
    """Add every edge to the sink as (destination, source); returns their number."""
    count, full = 0, None
    for batch in read.batches:
        try:
            source, destination = numbering.ends(batch)
        except IdTableFullError as error:
            full = error.with_traceback(None)  # its frames would keep the batch alive
            break
        if bound is not None:
            _check_ends(batch, source, destination, numbering, bound)
        if (batch.weight is not None) != read.weighted:
            raise DataError(
                "some edges of the input have a weight and some have none: give a weight to all, or to none."
            )
        if batch.weight is not None:
            _check_weights(batch, batch.weight)
        sink.add(destination, source, batch.weight)
        count += source.size
        tell(StageProgress("reading edges", batch.bytes_read, total_bytes, "bytes"))
    if full is not None:
        del batch
        sink.close()  # free its memory for counting
        raise full.with_rest(read.batches)
    if numbering.num_vertices > MAX_VERTICES:
        raise GraphError(f"the edges name {numbering.num_vertices:,} vertices, but at most {MAX_VERTICES:,} fit.")
    return count


def _check_ends(
    batch: EdgeBatch, source: IdArray, destination: IdArray, numbering: Numbering, bound: VertexBound
) -> None:
    end = bound.num_vertices
    if not source.size or max(source.max(), destination.max()) < end:
        return
    first = int(np.argmax((source >= end) | (destination >= end)))
    if isinstance(numbering, DenseIds) and bound.reason is None:
        raise GraphError(missing_vertex(batch.locate(first), int(source[first]), int(destination[first]), end))
    missing = format_id((batch.source if source[first] >= end else batch.destination)[first])
    rule = f"{given('num_vertices', end)}, and that many vertices came before it: give a larger number, leave it out"
    if bound.reason:
        rule = f"{bound.reason}: give it a row too"
    raise GraphError(f"{batch.describe(first)} names vertex {missing}, but {rule}, or drop the edge.")


def _check_weights(batch: EdgeBatch, weight: FloatArray) -> None:
    bad = np.flatnonzero(~np.isfinite(weight))
    if bad.size:
        edge = int(bad[0])
        raise GraphError(
            f"the weight of {batch.describe(edge)} is {weight[edge]}. Weights are finite numbers: drop the edge, or "
            "give it one."
        )
