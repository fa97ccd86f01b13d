"""The whole of an ingest: edges are spooled, sorted and written as CSR, in both directions where they have one.

The second direction needs no second reading: while the first is written, its edges go, turned round, to a second sort.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dorylus.errors import DataError, GraphError
from dorylus.graph.array_folder import NewFolder, new_folder
from dorylus.graph.ingest.attributes import Attributes
from dorylus.graph.ingest.batches import EdgeSource, Numbering
from dorylus.graph.ingest.csr_writer import csr_arrays
from dorylus.graph.ingest.memory import BLOCK_EDGES, Shares, check_space, shares_of, space_for
from dorylus.graph.ingest.original_ids import write_ids
from dorylus.graph.ingest.progress import Progress, Tell, silent
from dorylus.graph.ingest.settings import IngestSettings
from dorylus.graph.ingest.spool import Read, spool
from dorylus.graph.places import Address, is_elsewhere
from dorylus.graph.store import STORE, version_of
from dorylus.kernels import EdgeSort, WeightClash

INPUT_BYTES_PER_EDGE = 16  # of a source that does not say how many edges it has: about a line of text


@dataclass(frozen=True)
class Ingested:
    """What an ingest wrote."""

    num_vertices: int
    num_edges: int
    num_read: int


def ingest(
    source: EdgeSource,
    numbering: Numbering,
    store: Address,
    settings: IngestSettings,
    tell: Tell = silent,
    *,
    ids_bytes: int = 0,
) -> Ingested:
    """Writes the edges of ``source`` as a store: whole or, after any error, not at all.

    ``ids_bytes`` of the memory are left to the numbering.
    """
    attributes = Attributes.open(settings)
    shares = shares_of(settings.memory_bytes, ids_bytes=ids_bytes)
    name = settings.name or Path(str(store)).name
    try:
        with new_folder(store, STORE, overwrite=settings.overwrite) as folder:
            read = Read.of(source)
            if not is_elsewhere(store):
                _check_space(folder.path, source, read.weighted, attributes, settings)
            return _Ingest(folder, settings, shares, read, attributes, tell).run(source, numbering, name)
    except WeightClash as clash:
        raise GraphError(
            f"edge {clash.column} -> {clash.row} is given twice, with weights {clash.first} and {clash.second}. Merge "
            "repeated edges first, or pass undirected=False if direction matters."
        ) from clash


@dataclass
class _Ingest:
    """One ingest on its way."""

    folder: NewFolder
    settings: IngestSettings
    shares: Shares
    read: Read
    attributes: Attributes
    tell: Tell

    def run(self, source: EdgeSource, numbering: Numbering, name: str) -> Ingested:
        facts: dict[str, Any] = {"name": name, "directed": not self.settings.undirected}
        count = self._known_vertices()
        written = None if count is None else self.attributes.write(self.folder, count, self.tell)  # bad rows come early
        with self._sort(self.shares.spool, first=True) as sort:
            num_read = spool(self.read, numbering, sort, count, source.total_bytes, self.tell)
            count = numbering.num_vertices if count is None else count
            expected = num_read * (2 if self.settings.undirected else 1)
            num_edges = self._write_edges(sort, count, expected)
        written = written or self.attributes.write(self.folder, count, self.tell)
        write_ids(self.folder, numbering, count)
        self.folder.facts.update(facts, num_vertices=count, num_edges=num_edges, **written)
        dtypes = {name: entry["dtype"] for name, entry in self.folder.entries.items()}
        self.folder.facts["version"] = version_of(dtypes)
        return Ingested(count, num_edges, num_read)

    def _known_vertices(self) -> int | None:
        """How many vertices there are, as far as it is known before the edges are read."""
        rows, asked = self.attributes.num_vertices(), self.settings.num_vertices
        if rows is not None and asked is not None and rows != asked:
            raise DataError(f"num_vertices={asked:,}, but the files of the vertices have {rows:,} rows. Leave it out.")
        return rows if asked is None else asked

    def _sort(self, memory_bytes: int, *, first: bool) -> EdgeSort:
        """A sort that mends the edges when it is the first; the second gets them as they are to be."""
        return EdgeSort(
            self.folder.path,
            memory_bytes,
            weighted=self.read.weighted,
            undirected=first and self.settings.undirected,
            drop_self_loops=first and self.settings.drop_self_loops,
            coalesce=first and self.settings.drop_duplicates,
        )

    def _write_edges(self, sort: EdgeSort, num_vertices: int, expected: int) -> int:
        if self.settings.undirected:
            return self._write_csr(sort, num_vertices, "writing edges", expected)
        with self._sort(self.shares.transpose, first=False) as turned:
            num_edges = self._write_csr(sort, num_vertices, "writing in-edges", expected, turned)
            sort.close()
            return self._write_csr(turned, num_vertices, "writing out-edges", num_edges, prefix="out.")

    def _write_csr(
        self,
        sort: EdgeSort,
        num_vertices: int,
        stage: str,
        expected: int,
        turned: EdgeSort | None = None,
        prefix: str = "",
    ) -> int:
        weighted = self.read.weighted
        with csr_arrays(self.folder, num_vertices, weighted=weighted, prefix=prefix) as writer:
            for rows, columns, weight in sort.sorted(self.shares.merge, BLOCK_EDGES):
                writer.write(rows, columns, weight)
                if turned is not None:
                    turned.add(columns, rows, weight)
                self.tell(Progress(stage, writer.num_edges, expected, "edges"))
            self.tell(Progress(stage, writer.num_edges, writer.num_edges, "edges"))  # repeats were counted in
        return writer.num_edges


def _check_space(
    folder: Path, source: EdgeSource, weighted: bool, attributes: Attributes, settings: IngestSettings
) -> None:
    total = source.total_bytes or 0
    num_edges = getattr(source, "num_edges", None) or total // INPUT_BYTES_PER_EDGE
    edges = space_for(num_edges, weighted=weighted, undirected=settings.undirected)
    check_space(folder, edges + attributes.num_bytes)
