"""The first part of an ingest: edges are read, numbered, checked and given to the sort."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np

from dorylus.errors import DataError, GraphError
from dorylus.graph import canonical, validate
from dorylus.graph.arrays import FloatArray, IdArray
from dorylus.graph.ingest.batches import EdgeBatch, EdgeSource, Numbering
from dorylus.graph.ingest.progress import Progress, Tell


class Sink(Protocol):
    """What takes edges: a sort, or a file in which they wait for one."""

    def add(self, rows: IdArray, columns: IdArray, weights: FloatArray | None) -> None:
        """Takes the edges (rows[e], columns[e])."""
        ...


@dataclass
class Read:
    """Batches of a source, the first looked at: whether edges have weights."""

    batches: Iterator[EdgeBatch]
    weighted: bool

    @classmethod
    def of(cls, source: EdgeSource) -> "Read":
        """The batches of ``source``."""
        batches = iter(source)
        first = next(batches, None)
        head: Iterable[EdgeBatch] = () if first is None else (first,)
        return cls(chain(head, batches), first is not None and first.weight is not None)


def spool(
    read: Read, numbering: Numbering, sink: Sink, num_vertices: int | None, total_bytes: int | None, tell: Tell
) -> int:
    """Gives every edge to the sink, by (destination, source); how many there were."""
    count = 0
    for batch in read.batches:
        source, destination = numbering.ends(batch)
        if num_vertices is not None:
            _check_ends(source, destination, num_vertices, count)
        if (batch.weight is not None) != read.weighted:
            raise DataError("some edges of the input have a weight and some have none: give one to all, or to none.")
        if batch.weight is not None:
            _check_weights(source, destination, batch.weight, count)
        sink.add(destination, source, batch.weight)
        count += source.size
        tell(Progress("reading edges", batch.bytes_read, total_bytes, "bytes"))
    if numbering.num_vertices > canonical.MAX_VERTICES:
        raise GraphError(
            f"the edges name {numbering.num_vertices:,} vertices, but at most {canonical.MAX_VERTICES:,} fit."
        )
    return count


def _check_ends(source: IdArray, destination: IdArray, num_vertices: int, before: int) -> None:
    if source.size and max(source.max(), destination.max()) >= num_vertices:
        first = int(np.argmax((source >= num_vertices) | (destination >= num_vertices)))
        ends = int(source[first]), int(destination[first])
        raise GraphError(validate.missing_vertex(before + first, *ends, num_vertices))


def _check_weights(source: IdArray, destination: IdArray, weight: FloatArray, before: int) -> None:
    bad = np.flatnonzero(~np.isfinite(weight))
    if bad.size:
        edge = int(bad[0])
        raise GraphError(
            f"the weight of edge {source[edge]} -> {destination[edge]} (number {before + edge}) is {weight[edge]}. "
            "Weights are finite numbers: drop the edge or give it one."
        )
