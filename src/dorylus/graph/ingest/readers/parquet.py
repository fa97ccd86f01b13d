"""The edges of a Parquet file, its row groups read one after another."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dorylus.graph.ingest.batches import EdgeBatch, Held
from dorylus.graph.ingest.readers.arrow import INSTALL, damage_named, pyarrow
from dorylus.graph.ingest.readers.arrow_columns import NAME_ROWS, ArrowColumns
from dorylus.graph.ingest.readers.edge_file import NoEdgesError, PageCache
from dorylus.graph.ingest.readers.options import ReadOptions
from dorylus.graph.ingest.readers.parquet_sizes import first_pages, without_arrow_types
from dorylus.graph.interop.packages import optional

BATCH_ROWS = 1 << 18
BUFFER_BYTES = 1 << 20


class ParquetEdges:
    """The edges of a Parquet file."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._parquet = optional("pyarrow.parquet", INSTALL)
        self._metadata: Any = None
        with damage_named(path):
            schema, num_rows = self._look()
        if num_rows == 0:
            raise NoEdgesError(f"{path} holds no edge. Leave it out, or write it again.")
        self.num_edges: int | None = num_rows
        self._columns = ArrowColumns(path, schema, options)
        with damage_named(path):
            pages = first_pages(path, self._metadata, self._columns.names)
        self.has_checksums = pages.have_checksums
        self.held = Held(
            pages.held_bytes,
            f"to unpack the largest pages of {path}",
            "write the file with smaller row groups and dictionaries",
        )
        self.strings, self.weighted = self._columns.strings, self._columns.weighted

    def __iter__(self) -> Iterator[EdgeBatch]:
        row, size = 0, self.path.stat().st_size
        with self._open() as file, PageCache(self.path) as cache:
            count = file.metadata.num_rows
            names = list(dict.fromkeys(self._columns.names))
            batches = file.iter_batches(NAME_ROWS if self.strings else BATCH_ROWS, columns=names, use_threads=False)
            while True:
                with damage_named(self.path):
                    batch = next(batches, None)
                if batch is None:
                    return
                begin, end = size * row // count, size * (row + batch.num_rows) // count
                cache.behind(end)
                yield from self._columns.batches(batch, row, begin, end)
                row += batch.num_rows

    def _look(self) -> tuple[Any, int]:
        """(the schema, the number of rows); keeps the metadata, by which dictionaries are read as what they hold."""
        with self._open() as file:
            schema, self._metadata = file.schema_arrow, file.metadata
        if any(pyarrow().types.is_dictionary(kind) for kind in schema.types):
            self._metadata = self._parquet.read_metadata(pyarrow().BufferReader(without_arrow_types(self.path)))
            with self._open() as file:
                schema = file.schema_arrow
        return schema, self._metadata.num_rows

    def _open(self) -> Any:
        # Pages are read as they are needed: reading ahead would hold whole row groups.
        return self._parquet.ParquetFile(
            self.path,
            metadata=self._metadata,
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
