"""The stages of an ingest: edges are read, sorted and written as CSR, for directed graphs in both directions.

The second direction needs no second reading: while the first is written, its edges go reversed to a second sort. For
a new vertex order, edges stay in a scratch file until the degrees are known.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from dorylus.backends import EdgeSort, WeightClash
from dorylus.errors import DataError, GraphError, given
from dorylus.graph import (
    MAX_VERTICES,
    STORE,
    Address,
    ArrayWriter,
    FloatArray,
    IdArray,
    NewFolder,
    missing_vertex,
    new_folder,
    version_of,
)
from dorylus.ingest.attributes import Attributes
from dorylus.ingest.batches import EdgeBatch, EdgeSource, Numbering, format_id
from dorylus.ingest.budget import BLOCK_EDGES, NO_READER_MEMORY, IngestBudget, IngestShares, too_many_ids
from dorylus.ingest.numbering import DenseIds, IdTableFullError, begins_with_header
from dorylus.ingest.reordering import InputOrder, Reordered, degree_order, original_id, write_ids
from dorylus.ingest.scratch import EdgeScratch
from dorylus.ingest.settings import IngestSettings
from dorylus.process_memory import resident_bytes
from dorylus.progress import ReportStage, StageProgress, silent


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


class EdgesRead(NamedTuple):
    """The number of edges that were read, and of those among them that were dropped."""

    num_edges: int
    num_dropped: int


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
) -> EdgesRead:
    """Add every edge between known vertices to the sink as (destination, source)."""
    count, dropped, full, header = 0, 0, None, ""
    lone: DataError | None = None
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
        if not count and batch.perhaps_header and (source[0], destination[0]) == (0, 1):
            lone = _lone_line_error(batch)
        if lone is not None and (((source < 2) | (destination < 2)) & ((source != 0) | (destination != 1))).any():
            lone = None
        count += source.size
        known = (source >= 0) & (destination >= 0)
        if known.all():
            sink.add(destination, source, batch.weight)
        else:  # a header, or ends that are not among the vertices
            dropped += source.size - int(known.sum())
            if begins_with_header(batch, source, destination):
                header, count, dropped = batch.locate(0), count - 1, dropped - 1
            sink.add(destination[known], source[known], None if batch.weight is None else batch.weight[known])
        tell(StageProgress("reading edges", batch.bytes_read, total_bytes, "bytes"))
    if full is not None:
        del batch
        sink.close()  # free its memory for counting
        raise full.with_rest(read.batches)
    if header and not count:
        raise DataError(
            f"{header} is a header, as no vertex has its names, and no edge follows it. Write the file again."
        )
    if lone is not None and numbering.num_vertices > 2 and not getattr(numbering, "fixed", False):
        raise lone
    if numbering.num_vertices > MAX_VERTICES:
        raise GraphError(f"the edges name {numbering.num_vertices:,} vertices, but at most {MAX_VERTICES:,} fit.")
    return EdgesRead(count, dropped)


def _lone_line_error(batch: EdgeBatch) -> DataError:
    """The error for a first line whose names, numbered 0 and 1 as the first that appear, no other line has."""
    source, destination = (format_id(ends[0]) for ends in (batch.source, batch.destination))
    return DataError(
        f"{batch.locate(0)} names {source} and {destination}, which no other line does: pass {given('header', True)} "
        f"if it is a header, or {given('header', False)} if it is an edge."
    )


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


STEP = 1 << 20  # vertices whose offsets are computed at a time


class CsrWriter:
    """Writes ``indptr``, ``indices`` and optional weights from sorted blocks of edges."""

    def __init__(self, indptr: ArrayWriter, indices: ArrayWriter, weight: ArrayWriter | None) -> None:
        self._indptr, self._indices, self._weight = indptr, indices, weight
        self._begun = 0  # rows whose offset is written
        self._last = -1  # row of the last edge
        self.num_edges = self.num_filled = 0  # rows that have an edge

    def write(self, rows: IdArray, columns: IdArray, weight: FloatArray | None) -> None:
        """Append edges, which follow the earlier ones in order of (row, column)."""
        if not rows.size:
            return
        self._begin_rows(int(rows[-1]) + 1, rows)
        self._indices.write(columns)
        if self._weight is not None:
            assert weight is not None
            self._weight.write(weight)
        self.num_edges += rows.size
        self.num_filled += int(np.count_nonzero(np.diff(rows))) + (int(rows[0]) != self._last)
        self._last = int(rows[-1])

    def finish(self, num_vertices: int) -> None:
        """Write the offsets of the last rows, which have no edge."""
        self._begin_rows(num_vertices, np.empty(0, np.int32))
        self._indptr.write(np.array([self.num_edges], np.int64))

    def _begin_rows(self, end: int, rows: IdArray) -> None:
        for begin in range(self._begun, end, STEP):
            vertices = np.arange(begin, min(begin + STEP, end), dtype=np.int32)
            self._indptr.write(self.num_edges + np.searchsorted(rows, vertices).astype(np.int64))
        self._begun = max(self._begun, end)


@contextmanager
def csr_arrays(folder: NewFolder, num_vertices: int, *, weighted: bool, prefix: str = "") -> Iterator[CsrWriter]:
    """A writer of the arrays ``indptr``, ``indices`` and optional ``edge_weight``, their names prefixed."""
    with ExitStack() as files:
        indptr = files.enter_context(folder.array(f"{prefix}indptr", "<i8"))
        indices = files.enter_context(folder.array(f"{prefix}indices", "<i4"))
        weight = files.enter_context(folder.array(f"{prefix}edge_weight", "<f4")) if weighted else None
        writer = CsrWriter(indptr, indices, weight)
        yield writer
        writer.finish(num_vertices)


MANY_VERTICES, MOST_PER_EDGE = 10_000_000, 100
"""More vertices than the first, and than the second per edge, are not inferred from the largest id alone."""


@dataclass(frozen=True)
class Ingested:
    """The result of an ingest: counts, and remarks on its input."""

    num_vertices: int
    num_edges: int
    num_read: int
    weighted: bool = False
    num_alone: int = 0
    """A lower bound of the vertices without edges, if the number of vertices is inferred from the largest id."""
    num_dropped: int = 0
    """The number of edges left out, as one of their ends is not among the listed vertices."""
    num_files: int | None = None
    """The number of files of edges; None for edges in memory."""
    left_out: tuple[Path, ...] = ()
    """Files without edges."""
    unchecked: tuple[Path, ...] = ()
    """Parquet files without page checksums: damage to them cannot be detected."""


def ingest(
    source: EdgeSource,
    numbering: Numbering,
    store: Address,
    settings: IngestSettings,
    tell: ReportStage = silent,
    *,
    ids_bytes: int = 0,
) -> Ingested:
    """Write the edges of ``source`` as a store, atomically.

    ``ids_bytes`` is the numbering's share of the memory.
    """
    attributes = Attributes.open(settings)
    known = _known_vertices(attributes, settings, numbering)
    held, resident = getattr(source, "held", NO_READER_MEMORY), max(resident_bytes(), attributes.resident_bytes)
    ids_for = None if getattr(numbering, "fixed", False) else getattr(numbering, "bytes_for", None)
    budget = partial(
        IngestBudget,
        settings=settings,
        attributes=attributes,
        resident=resident,
        ids=ids_bytes,
        held=held,
        ids_for=ids_for,
    )
    budget(folder=Path(), weighted=False).shares(known or 0)  # refuse too little memory before a folder is created
    with new_folder(store, STORE, overwrite=settings.overwrite) as folder:
        read = PeekedBatches.of(source)
        running = _Ingest(folder, settings, budget(folder=folder.path, weighted=read.weighted), read, attributes, tell)
        running.budget.check_before(source, known)
        folder.facts.update(name=settings.name or Path(str(store)).name, directed=not settings.undirected)
        try:
            return running.run(source, numbering, known)
        except IdTableFullError as error:
            raise too_many_ids(error, settings, resident, held) from error


def _known_vertices(attributes: Attributes, settings: IngestSettings, numbering: Numbering) -> int | None:
    """The number of vertices, if it is known before the edges are read."""
    rows, requested = attributes.num_vertices(), settings.num_vertices
    if rows is not None and requested is not None and rows != requested:
        raise DataError(
            f"{given('num_vertices', requested)}, but {attributes.rows_statement}. Leave {given('num_vertices')} out, "
            "or give a row for every vertex."
        )
    known, listed = rows if requested is None else requested, numbering.num_vertices
    if known is not None and known != listed and getattr(numbering, "fixed", False):
        other = f"{given('num_vertices', known)}. Leave {given('num_vertices')} out."
        if attributes.rows_statement:
            other = f"{attributes.rows_statement}. Give an id for every row, in their order."
        raise DataError(f"the list of vertices has {listed:,} ids, but {other}")
    return known


@dataclass
class _Ingest:
    """A running ingest."""

    folder: NewFolder
    settings: IngestSettings
    budget: IngestBudget
    read: PeekedBatches
    attributes: Attributes
    tell: ReportStage
    num_filled: int = 0
    """The number of vertices with in-edges plus the number with out-edges."""
    num_dropped: int = 0

    def run(self, source: EdgeSource, numbering: Numbering, known: int | None) -> Ingested:
        """Write all but the manifest; ``known`` is the number of vertices, if it is known before reading."""
        write = self._in_input_order if self.settings.reorder == "none" else self._reordered
        try:
            return write(source, numbering, known)
        except WeightClash as clash:
            raise self._clash_error(clash, numbering, of_files=hasattr(source, "strings")) from clash

    def _clash_error(self, clash: WeightClash, numbering: Numbering, *, of_files: bool) -> GraphError:
        ends, arrow, turn = (clash.column, clash.row), "->", ""
        if self.settings.undirected:  # the sort may have reversed it
            ends, arrow = (min(ends), max(ends)), "-"
            turn = f"pass {given('undirected', False)} if direction matters, "
        source, destination = (original_id(numbering, int(end)) for end in ends)
        columns = f"or, if the third column is no weight, leave it out by {given('columns', (0, 1))}"
        keep = f"keep them all by {given('drop_duplicates', False)}"
        return GraphError(
            f"edge {source} {arrow} {destination} is given twice, with weights {clash.first} and {clash.second} as "
            f"float32. Merge repeated edges first, {turn}{f'{keep}, {columns}' if of_files else f'or {keep}'}."
        )

    def _in_input_order(self, source: EdgeSource, numbering: Numbering, known: int | None) -> Ingested:
        shares = self.budget.shares(0)
        if known is not None:  # so that errors in rows come early
            self._write_vertices(known, InputOrder())
        with self._sort(shares.spool, first=True) as sort:
            num_read = self._spool(source, numbering, sort, known)
            count = self._count(numbering, known, num_read)
            self._check_spooled(sort.spooled_bytes, num_read, count, numbering)
            num_edges = self._write_edges(sort, shares, count, num_read)
        if known is None:
            self._write_vertices(count, InputOrder())
        self._write_ids(numbering, count, InputOrder())
        return self._made(count, num_edges, num_read, known)

    def _reordered(self, source: EdgeSource, numbering: Numbering, known: int | None) -> Ingested:
        with EdgeScratch(self.folder.path, weighted=self.read.weighted) as pairs:
            num_read = self._spool(source, numbering, pairs, known)
            count = self._count(numbering, known, num_read)
            self._check_spooled(pairs.num_bytes, num_read, count, numbering)
            shares = self.budget.shares(count)
            order = degree_order(pairs, count, self.tell, loops=not self.settings.drop_self_loops)
            reordered = Reordered(order, shares.spool, self.folder.path)
            self._write_vertices(count, reordered)
            self._write_ids(numbering, count, reordered)
            try:
                with self._sort(shares.spool, first=True) as sort:
                    self._renumber(pairs, reordered, sort)
                    pairs.close()
                    num_edges = self._write_edges(sort, shares, count, num_read)
            except WeightClash as clash:
                raise WeightClash(order[clash.row], order[clash.column], clash.first, clash.second) from clash
        return self._made(count, num_edges, num_read, known)

    def _spool(self, source: EdgeSource, numbering: Numbering, sink: EdgeSink, known: int | None) -> int:
        bound = None if known is None else VertexBound(known, self.attributes.rows_statement)
        read = read_edges(self.read, numbering, sink, bound, source.total_bytes, self.tell)
        self.num_dropped = read.num_dropped
        return read.num_edges

    def _check_spooled(self, spooled_bytes: int, num_read: int, count: int, numbering: Numbering) -> None:
        written = sum(entry["bytes"] for entry in self.folder.entries.values())
        self.budget.check_spooled(spooled_bytes, num_read, count, numbering, arrays_bytes=written)

    def _count(self, numbering: Numbering, known: int | None, num_read: int) -> int:
        """The number of vertices; refused if it is inferred from the largest id and nearly all would have no edge."""
        if known is not None:
            return known
        count = numbering.num_vertices
        if isinstance(numbering, DenseIds) and count > max(MANY_VERTICES, MOST_PER_EDGE * num_read):
            raise DataError(
                f"the largest id is {count - 1:,}, but there are {num_read:,} edges: nearly all vertices would have "
                f"none. Number those that occur by {given('ids', 'map')}, correct the id if it is wrong, or request "
                f"all vertices by {given('num_vertices', count)}."
            )
        return count

    def _renumber(self, pairs: EdgeScratch, order: Reordered, sort: EdgeSort) -> None:
        done = 0
        for rows, columns, weight in pairs.blocks():
            sort.add(order.new_numbers[rows], order.new_numbers[columns], weight)
            done += rows.size
            self.tell(StageProgress("renumbering edges", done, pairs.num_edges, "edges"))

    def _write_vertices(self, count: int, order: InputOrder | Reordered) -> None:
        self.folder.facts.update(self.attributes.write(self.folder, count, order, self.tell))

    def _write_ids(self, numbering: Numbering, count: int, order: InputOrder | Reordered) -> None:
        write_ids(self.folder, numbering, count, order)

    def _made(self, num_vertices: int, num_edges: int, num_read: int, known: int | None) -> Ingested:
        version = version_of({name: entry["dtype"] for name, entry in self.folder.entries.items()})
        self.folder.facts.update(version=version, num_vertices=num_vertices, num_edges=num_edges)
        alone = max(0, num_vertices - self.num_filled) if known is None else 0
        return Ingested(
            num_vertices, num_edges, num_read, self.read.weighted, num_alone=alone, num_dropped=self.num_dropped
        )

    def _sort(self, memory_bytes: int, *, first: bool) -> EdgeSort:
        """A sort; the first adds reverse edges and drops repeats and self loops, the second gets the final edges."""
        return EdgeSort(
            self.folder.path,
            memory_bytes,
            weighted=self.read.weighted,
            undirected=first and self.settings.undirected,
            drop_self_loops=first and self.settings.drop_self_loops,
            coalesce=first and self.settings.drop_duplicates,
        )

    def _write_edges(self, sort: EdgeSort, shares: IngestShares, num_vertices: int, num_read: int) -> int:
        """Write the edges by destination and, if directed, by source; returns the number per direction."""
        merge = shares.merge
        if self.settings.undirected:
            return self._write_csr(sort, merge, num_vertices, "writing edges", 2 * num_read)
        with self._sort(shares.transpose, first=False) as reversed_sort:
            num_edges = self._write_csr(sort, merge, num_vertices, "writing in-edges", num_read, reversed_sort)
            sort.close()
            return self._write_csr(reversed_sort, merge, num_vertices, "writing out-edges", num_edges, prefix="out.")

    def _write_csr(
        self,
        sort: EdgeSort,
        memory_bytes: int,
        num_vertices: int,
        stage: str,
        expected: int,
        reversed_sort: EdgeSort | None = None,
        prefix: str = "",
    ) -> int:
        weighted = self.read.weighted
        with csr_arrays(self.folder, num_vertices, weighted=weighted, prefix=prefix) as writer:
            for rows, columns, weight in sort.sorted(memory_bytes, BLOCK_EDGES):
                writer.write(rows, columns, weight)
                if reversed_sort is not None:
                    reversed_sort.add(columns, rows, weight)
                self.tell(StageProgress(stage, writer.num_edges, expected, "edges"))
            self.tell(
                StageProgress(stage, writer.num_edges, writer.num_edges, "edges")
            )  # the expected number included repeats
        self.num_filled += writer.num_filled
        return writer.num_edges
