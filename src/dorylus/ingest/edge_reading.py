"""The first part of an ingest: edges are read, numbered, checked and given to the sort.

A heading that was taken for an edge: nothing else in the input has its two names.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np

from dorylus.errors import DataError, GraphError, given
from dorylus.graph import (
    MAX_VERTICES,
    FloatArray,
    IdArray,
    missing_vertex,
)
from dorylus.ingest.batches import EdgeBatch, EdgeSource, Numbering, format_id
from dorylus.ingest.numbering import DenseIds, IdTableFullError
from dorylus.progress import StageProgress, Tell


class EdgeSink(Protocol):
    """What takes edges: a sort, or a file in which they wait for one."""

    def add(self, rows: IdArray, columns: IdArray, weights: FloatArray | None) -> None:
        """Takes the edges (rows[e], columns[e])."""
        ...

    def close(self) -> None:
        """Gives back memory and disk space."""
        ...


class VertexBound(NamedTuple):
    """How many vertices there are, and the sentence about the rows that say so; None: num_vertices does."""

    num_vertices: int
    told: str | None


@dataclass
class PeekedBatches:
    """Batches of a source, the first looked at: whether edges have weights."""

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
    tell: Tell,
) -> int:
    """Gives every edge to the sink, by (destination, source); how many there were."""
    count, full = 0, None
    for batch in read.batches:
        try:
            source, destination = numbering.ends(batch)
        except IdTableFullError as error:
            full = error.with_traceback(None)  # which would keep the batch
            break
        if bound is not None:
            _check_ends(batch, source, destination, numbering, bound)
        if (batch.weight is not None) != read.weighted:
            raise DataError("some edges of the input have a weight and some have none: give one to all, or to none.")
        if batch.weight is not None:
            _check_weights(batch, batch.weight)
        sink.add(destination, source, batch.weight)
        count += source.size
        tell(StageProgress("reading edges", batch.bytes_read, total_bytes, "bytes"))
    if full is not None:
        del batch
        sink.close()  # its memory is for counting, now
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
    if isinstance(numbering, DenseIds) and bound.told is None:
        raise GraphError(missing_vertex(batch.place(first), int(source[first]), int(destination[first]), end))
    missing = format_id((batch.source if source[first] >= end else batch.destination)[first])
    rule = f"{given('num_vertices', end)}, and so many others have come before: give a larger number, leave it out"
    if bound.told:
        rule = f"{bound.told}: give it a row too"
    raise GraphError(f"{batch.told(first)} names vertex {missing}, but {rule}, or drop the edge.")


def _check_weights(batch: EdgeBatch, weight: FloatArray) -> None:
    bad = np.flatnonzero(~np.isfinite(weight))
    if bad.size:
        edge = int(bad[0])
        raise GraphError(
            f"the weight of {batch.told(edge)} is {weight[edge]}. Weights are finite numbers: drop the edge, or give "
            "it one."
        )
