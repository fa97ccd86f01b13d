"""The edges of a Parquet file, its row groups read one after another."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dorylus.errors import DataError
from dorylus.graph.ingest.readers.arrow import INSTALL, ArrowColumns, damage_named
from dorylus.graph.ingest.readers.edge_file import FileBatch, PageCache
from dorylus.graph.ingest.readers.options import ReadOptions
from dorylus.graph.interop.packages import optional

BATCH_ROWS = 1 << 18
BUFFER_BYTES = 1 << 20


class ParquetEdges:
    """The edges of a Parquet file."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._parquet = optional("pyarrow.parquet", INSTALL)
        with damage_named(path), self._open() as file:
            schema, num_rows = file.schema_arrow, file.metadata.num_rows
        if num_rows == 0:
            raise DataError(f"{path} holds no edge. Leave it out, or write it again.")
        self.num_edges: int | None = num_rows
        self._columns = ArrowColumns(path, schema, options)
        self.strings, self.weighted = self._columns.strings, self._columns.weighted

    def __iter__(self) -> Iterator[FileBatch]:
        row, size = 0, self.path.stat().st_size
        with self._open() as file, PageCache(self.path) as cache:
            count = file.metadata.num_rows
            names = list(dict.fromkeys(self._columns.names))
            batches = file.iter_batches(BATCH_ROWS, columns=names, use_threads=False)
            while True:
                with damage_named(self.path):
                    batch = next(batches, None)
                if batch is None:
                    return
                position = size * (row + batch.num_rows) // count
                cache.behind(position)
                yield from self._columns.batches(batch, row, position)
                row += batch.num_rows

    def _open(self) -> Any:
        # Pages are read as they are needed: reading ahead would hold whole row groups.
        return self._parquet.ParquetFile(self.path, buffer_size=BUFFER_BYTES, pre_buffer=False)
