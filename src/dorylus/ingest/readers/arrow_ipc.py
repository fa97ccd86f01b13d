"""Edges in Arrow IPC files and streams (.arrow, .feather), and the memory to decode them, read from message headers."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dorylus.errors import DataError
from dorylus.ingest.batches import EdgeBatch, NoEdgesError, ReaderMemory
from dorylus.ingest.readers.arrow import ArrowColumns, compute, naming_file, pyarrow
from dorylus.ingest.readers.input_file import MappedFile
from dorylus.ingest.readers.options import ReadOptions

DICTIONARY, RECORD_BATCH = 2, 3  # kinds of messages
UNPACKED_LENGTH = 8  # bytes before every compressed buffer: its decompressed size, or -1 if it is stored uncompressed


@dataclass(frozen=True)
class MessageSize:
    """The position of a message, its stored size, and its decompressed size: 0 if it is used in place."""

    begin: int
    end: int
    stored: int
    unpacked: int
    dictionary: int | None
    """The id of its dictionary; None for a record batch."""
    adds: bool
    """Whether it extends a dictionary instead of replacing it."""


def held_bytes(sizes: Iterable[MessageSize], *, copied: bool) -> int:
    """The peak memory of a reader: all dictionaries, and the largest record batch that has to be decompressed.

    The stored bytes are in memory too during decompression, twice if they are ``copied`` from the file.
    """
    dictionaries: dict[int, int] = {}
    largest = 0
    for size in sizes:
        if size.dictionary is None:
            stored = size.stored * (2 if copied else 1)
            largest = max(largest, stored + size.unpacked if size.unpacked else 0)
            continue
        before, held = dictionaries.get(size.dictionary, 0), size.stored + size.unpacked
        dictionaries[size.dictionary] = before + held if size.adds else max(before, held)
    return largest + sum(dictionaries.values())


def message_sizes(content: Any, num_batches: int | None, chosen: list[bool] | None) -> Iterator[MessageSize]:
    """The sizes of the messages in ``content``, a stream or, up to the last of ``num_batches``, a file.

    ``chosen``: for each buffer of a record batch, whether it is read; None: all are.
    """
    read_message = pyarrow().ipc.read_message
    while num_batches is None or num_batches > 0:
        begin = content.tell()
        try:
            message = read_message(content)
        except EOFError:
            return
        header, end = _Table.root(message.metadata), content.tell()
        kind = header.number(1, "B")
        if kind == RECORD_BATCH:
            num_batches = None if num_batches is None else num_batches - 1
            yield MessageSize(begin, end, *_sizes(header.table(2), message.body, chosen), None, False)
        elif kind == DICTIONARY:
            batch = header.table(2)
            sizes = _sizes(batch.table(1), message.body, None)
            yield MessageSize(begin, end, *sizes, batch.number(0, "q"), bool(batch.number(2, "B")))


def chosen_buffers(types: list[Any], positions: tuple[int, ...]) -> list[bool] | None:
    """For each buffer of a record batch, whether it belongs to one of the columns; None if types are nested."""
    counts = [_num_buffers(kind) for kind in types]
    if None in counts:
        return None
    return [position in positions for position, count in enumerate(counts) for _ in range(count or 0)]


def _num_buffers(kind: Any) -> int | None:
    types = pyarrow().types
    if types.is_dictionary(kind) or types.is_boolean(kind) or types.is_primitive(kind):
        return 2
    strings = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    return 3 if any(is_one(kind) for is_one in strings) else None


def _sizes(batch: "_Table", body: Any, chosen: list[bool] | None) -> tuple[int, int]:
    """(stored bytes, decompressed bytes or 0 if they are not compressed) of the chosen buffers."""
    buffers = batch.pairs(2)
    if chosen is not None and len(chosen) == len(buffers):
        buffers = [each for each, is_read in zip(buffers, chosen, strict=True) if is_read]
    stored = sum(length for _, length in buffers)
    if not batch.has(3):
        return stored, 0
    view = memoryview(body)
    packed = [struct.unpack_from("<q", view, start)[0] for start, length in buffers if length >= UNPACKED_LENGTH]
    return stored, sum(length for length in packed if length > 0)


@dataclass(frozen=True)
class _Table:
    """A table of a flatbuffer: fields by number; a field with its default value is absent."""

    content: memoryview
    start: int

    @classmethod
    def root(cls, buffer: Any) -> "_Table":
        content = memoryview(buffer)
        return cls(content, struct.unpack_from("<I", content, 0)[0])

    def has(self, field: int) -> bool:
        return self._offset(field) != 0

    def number(self, field: int, kind: str) -> int:
        offset = self._offset(field)
        return int(struct.unpack_from(f"<{kind}", self.content, offset)[0]) if offset else 0

    def table(self, field: int) -> "_Table":
        return _Table(self.content, self._target(field))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of pairs of 64-bit numbers."""
        if not self.has(field):
            return []
        start = self._target(field)
        (count,) = struct.unpack_from("<I", self.content, start)
        return list(struct.iter_unpack("<qq", self.content[start + 4 : start + 4 + 16 * count]))

    def _target(self, field: int) -> int:
        offset = self._offset(field)
        return offset + int(struct.unpack_from("<I", self.content, offset)[0])

    def _offset(self, field: int) -> int:
        fields = self.start - struct.unpack_from("<i", self.content, self.start)[0]
        (size,) = struct.unpack_from("<H", self.content, fields)
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self.content, fields + entry)[0] if entry < size else 0
        return self.start + int(offset) if offset else 0


MAGIC, MAGIC_V1 = b"ARROW1", b"FEA1"
FILE_START = 8  # the magic bytes and padding
SMALL_BYTES = 64 << 10  # a larger file has rows


class ArrowEdges:
    """The edges of an Arrow IPC file or stream; a compressed record batch is decompressed as a whole."""

    num_edges: int | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
        if start.startswith(MAGIC_V1):
            raise DataError(
                f"{path} is a Feather version 1 file, which has no batches. Write it again, as with "
                "pyarrow.feather.write_feather(table, path)."
            )
        self._is_file = start == MAGIC
        with naming_file(path), MappedFile(path) as mapped:
            mapped.disable_read_ahead()
            schema = self._open(mapped).schema
            self._columns = ArrowColumns(path, schema, options)
            sizes = self._sizes(mapped, schema)
            if len(mapped.content) <= SMALL_BYTES and self._open(mapped).read_all().num_rows == 0:
                raise NoEdgesError(f"{path} holds no edge. Leave it out, or write it again.")
        batches = [size for size in sizes if size.dictionary is None]
        self._ends_at = [size.end for size in batches]
        self._dictionaries_end = batches[0].begin if batches else 0
        # pyarrow copies chosen columns: worth it only if the others would be decompressed.
        chosen = sorted(set(self._columns.positions))
        packed = any(size.unpacked for size in batches)
        self._chosen = chosen if packed and len(chosen) < len(schema.names) else None
        self.held = ReaderMemory(
            held_bytes(sizes, copied=self._chosen is not None),
            f"to unpack dictionaries and the largest record batch of {path}",
            "write the file with smaller record batches, and names without dictionaries",
        )
        self.strings, self.weighted = self._columns.strings, self._columns.weighted

    def __iter__(self) -> Iterator[EdgeBatch]:
        row = 0
        with MappedFile(self.path) as mapped:
            batches = self._batches(mapped)
            while True:
                with naming_file(self.path):
                    batch, begin, end = next(batches, (None, 0, 0))
                if batch is None:
                    return
                for edges in self._columns.batches(batch, row, begin, end):
                    yield edges
                    mapped.at(edges.bytes_read, self._dictionaries_end)
                row += batch.num_rows

    def _sizes(self, mapped: MappedFile, schema: Any) -> list[MessageSize]:
        """The sizes of all record batches and dictionaries."""
        content = pyarrow().BufferReader(mapped.content)
        num_batches = self._open(mapped).num_record_batches if self._is_file else None
        content.seek(FILE_START if self._is_file else 0)
        return list(message_sizes(content, num_batches, chosen_buffers(schema.types, self._columns.positions)))

    def _batches(self, mapped: MappedFile) -> Iterator[tuple[Any, int, int]]:
        """(record batch, its first and last byte in the file)."""
        reader = self._open(mapped, self._chosen)
        size, count = len(mapped.content), len(self._ends_at)
        for number, end in enumerate(self._ends_at):
            batch = reader.get_batch(number) if self._is_file else reader.read_next_batch()
            for name in self._columns.names:
                _check(batch.column(name))
            begin = self._ends_at[number - 1] if number else 0
            yield batch, begin, size if self._is_file and number == count - 1 else end

    def _open(self, mapped: MappedFile, columns: list[int] | None = None) -> Any:
        """A reader of some or all columns; uncompressed data is used in place."""
        ipc, content = pyarrow().ipc, pyarrow().BufferReader(mapped.content)
        options = ipc.IpcReadOptions(use_threads=False, included_fields=columns)
        return (ipc.open_file if self._is_file else ipc.open_stream)(content, options=options)


def _check(column: Any) -> None:
    """Refuse a column whose offsets or indices are out of bounds: pyarrow does not check them.

    UTF-8 is checked later, where the row is known.
    """
    pa = pyarrow()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column.validate()
        if len(column.indices):
            lowest, highest = (each.as_py() for each in compute().min_max(column.indices).values())
            if lowest is not None and not 0 <= lowest <= highest < len(column.dictionary):
                raise ValueError(f"an index is outside its dictionary of {len(column.dictionary)}.")
        _check(column.dictionary)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column.validate()
        column.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).validate(full=True)
    else:
        column.validate(full=not (pa.types.is_integer(kind) or pa.types.is_floating(kind)))
