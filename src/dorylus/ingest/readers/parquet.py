"""Edges in Parquet files, and the memory to decode them, read from the headers of the first pages."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from dorylus.extras import optional
from dorylus.ingest.batches import EdgeBatch, NoEdgesError, ReaderMemory
from dorylus.ingest.readers.arrow import INSTALL, NAME_ROWS, ArrowColumns, naming_file, pyarrow
from dorylus.ingest.readers.input_file import PageCache
from dorylus.ingest.readers.options import ReadOptions

DICTIONARY_PAGE = 2
HEADER_BYTES = 32  # the kind and the two sizes of a page take at most 18
NEXT_NUMBER = 0x15  # Thrift's mark of a 32-bit field that follows the last one: after both sizes, the checksum
MARK = b"PAR1"
TAIL_BYTES = 8  # the length of the footer, and the mark


class PageSizes(NamedTuple):
    """The memory to decode the largest row group: one page or dictionary per column, compressed and decompressed.

    ``have_checksums``: whether the pages of all columns in all row groups have checksums.
    """

    held_bytes: int
    have_checksums: bool


def first_pages(path: Path, metadata: Any, names: list[str]) -> PageSizes:
    """The page sizes of the columns ``names``, from the first page of every column chunk."""
    with open(path, "rb", buffering=0) as file:
        groups = [
            [_first_page(file.fileno(), chunk) for chunk in _chunks(metadata.row_group(group), names)]
            for group in range(metadata.num_row_groups)
        ]
    held = max((sum(page.held_bytes for page in group) for group in groups), default=0)
    return PageSizes(held, all(page.have_checksums for group in groups for page in group))


def without_arrow_types(path: Path) -> Any:
    """A file (in memory) with the same footer, without the note that some columns are dictionaries.

    Read as dictionaries, every batch would carry its whole dictionary.
    """
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        tail = os.pread(file.fileno(), TAIL_BYTES, size - TAIL_BYTES)
        length = int.from_bytes(tail[:4], "little")
        footer = os.pread(file.fileno(), length, size - TAIL_BYTES - length)
    return MARK + footer.replace(b"ARROW:schema", b"arrow:unread") + tail


def _chunks(group: Any, names: list[str]) -> Iterator[Any]:
    chunks = (group.column(position) for position in range(group.num_columns))
    return (chunk for chunk in chunks if chunk.path_in_schema in names)


def _first_page(descriptor: int, chunk: Any) -> PageSizes:
    offsets = (chunk.dictionary_page_offset, chunk.data_page_offset)
    header = os.pread(descriptor, HEADER_BYTES, min(offset for offset in offsets if offset))
    kind, unpacked, packed, has_checksum = _numbers(header)
    held = packed + unpacked * (2 if kind == DICTIONARY_PAGE else 1)  # dictionary values are copied
    return PageSizes(held, has_checksum)


def _numbers(header: bytes) -> tuple[int, int, int, bool]:
    """The first three fields of a header in Thrift's compact encoding, and whether a fourth follows.

    Each is one byte and a zigzag varint.
    """
    numbers: list[int] = []
    position = 0
    while len(numbers) < 3 and position < len(header):
        position, number, shift = position + 1, 0, 0
        while position < len(header):
            byte = header[position]
            number |= (byte & 0x7F) << shift
            position, shift = position + 1, shift + 7
            if byte < 0x80:
                break
        numbers.append(number >> 1)
    kind, unpacked, packed = (*numbers, 0, 0, 0)[:3]
    return kind, unpacked, packed, header[position : position + 1] == bytes([NEXT_NUMBER])


BATCH_ROWS = 1 << 18
BUFFER_BYTES = 1 << 20


class ParquetEdges:
    """The edges of a Parquet file."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._parquet = optional("pyarrow.parquet", INSTALL)
        self._metadata: Any = None
        with naming_file(path):
            schema, num_rows = self._read_schema()
        if num_rows == 0:
            raise NoEdgesError(f"{path} holds no edge. Leave it out, or write it again.")
        self.num_edges: int | None = num_rows
        self._columns = ArrowColumns(path, schema, options)
        with naming_file(path):
            pages = first_pages(path, self._metadata, self._columns.names)
        self.has_checksums = pages.have_checksums
        self.held = ReaderMemory(
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
                with naming_file(self.path):
                    batch = next(batches, None)
                if batch is None:
                    return
                begin, end = size * row // count, size * (row + batch.num_rows) // count
                cache.behind(end)
                yield from self._columns.batches(batch, row, begin, end)
                row += batch.num_rows

    def _read_schema(self) -> tuple[Any, int]:
        """(schema, number of rows); also sets the metadata with which dictionaries are read as plain columns."""
        with self._open() as file:
            schema, self._metadata = file.schema_arrow, file.metadata
        if any(pyarrow().types.is_dictionary(kind) for kind in schema.types):
            self._metadata = self._parquet.read_metadata(pyarrow().BufferReader(without_arrow_types(self.path)))
            with self._open() as file:
                schema = file.schema_arrow
        return schema, self._metadata.num_rows

    def _open(self) -> Any:
        # No read-ahead: it would hold whole row groups.
        return self._parquet.ParquetFile(
            self.path,
            metadata=self._metadata,
            buffer_size=BUFFER_BYTES,
            pre_buffer=False,
            page_checksum_verification=True,
        )
