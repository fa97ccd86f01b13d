"""The edges of Arrow's own files and streams (.arrow, .feather).

What the messages of an Arrow file or stream take to decode, told by their headers before any is decoded.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dorylus.errors import DataError
from dorylus.ingest.batches import EdgeBatch, NoEdgesError, ReaderMemory
from dorylus.ingest.readers.arrow import ArrowColumns, compute, damage_named, pyarrow
from dorylus.ingest.readers.input_file import MappedFile
from dorylus.ingest.readers.options import ReadOptions

DICTIONARY, RECORD_BATCH = 2, 3  # kinds of messages
UNPACKED_LENGTH = 8  # bytes before every packed buffer: how long it is unpacked, or -1 where it is not packed


@dataclass(frozen=True)
class MessageSize:
    """Where a message lies, how much it stores, and what is made of it: nothing where it is used as it lies."""

    begin: int
    end: int
    stored: int
    unpacked: int
    dictionary: int | None
    """Which dictionary it holds; None for a record batch."""
    adds: bool
    """Whether it adds to a dictionary, and does not replace it."""


def held_bytes(sizes: Iterable[MessageSize], *, copied: bool) -> int:
    """What a reader holds at most: all dictionaries, and the largest record batch that has to be unpacked.

    What is stored is in memory too while it is unpacked, twice where it is ``copied`` from the file.
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

    ``chosen`` tells of each buffer of a record batch whether it is read; None: all are.
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
    """Which buffers of a record batch are those of some columns; None where columns hold others, as lists do."""
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
    """(bytes stored, bytes unpacked, 0 where they are not packed) of the chosen buffers."""
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
    """A table of a flatbuffer: fields by number, each left out where it has its default."""

    content: memoryview
    start: int

    @classmethod
    def root(cls, buffer: Any) -> "_Table":
        content = memoryview(buffer)
        return cls(content, struct.unpack_from("<I", content, 0)[0])

    def has(self, field: int) -> bool:
        return self._place(field) != 0

    def number(self, field: int, kind: str) -> int:
        place = self._place(field)
        return int(struct.unpack_from(f"<{kind}", self.content, place)[0]) if place else 0

    def table(self, field: int) -> "_Table":
        return _Table(self.content, self._target(field))

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of pairs of 64-bit numbers."""
        if not self.has(field):
            return []
        place = self._target(field)
        (count,) = struct.unpack_from("<I", self.content, place)
        return list(struct.iter_unpack("<qq", self.content[place + 4 : place + 4 + 16 * count]))

    def _target(self, field: int) -> int:
        place = self._place(field)
        return place + int(struct.unpack_from("<I", self.content, place)[0])

    def _place(self, field: int) -> int:
        fields = self.start - struct.unpack_from("<i", self.content, self.start)[0]
        (size,) = struct.unpack_from("<H", self.content, fields)
        entry = 4 + 2 * field
        offset = struct.unpack_from("<H", self.content, fields + entry)[0] if entry < size else 0
        return self.start + int(offset) if offset else 0


MAGIC, MAGIC_V1 = b"ARROW1", b"FEA1"
FILE_START = 8  # the magic, and zeros
SMALL_BYTES = 64 << 10  # a file of more has rows


class ArrowEdges:
    """The edges of a file or stream in Arrow's format; a record batch that is packed is unpacked whole."""

    num_edges: int | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
        if start.startswith(MAGIC_V1):
            raise DataError(
                f"{path} is of Feather's first version, which had no batches. Write it again, as with "
                "pyarrow.feather.write_feather(table, path)."
            )
        self._is_file = start == MAGIC
        with damage_named(path), MappedFile(path) as mapped:
            mapped.sparsely()
            schema = self._open(mapped).schema
            self._columns = ArrowColumns(path, schema, options)
            sizes = self._sizes(mapped, schema)
            if len(mapped.content) <= SMALL_BYTES and self._open(mapped).read_all().num_rows == 0:
                raise NoEdgesError(f"{path} holds no edge. Leave it out, or write it again.")
        batches = [size for size in sizes if size.dictionary is None]
        self._ends_at = [size.end for size in batches]
        self._dictionaries_end = batches[0].begin if batches else 0
        # To choose columns, pyarrow copies them: worth it only where the others would be unpacked.
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
                with damage_named(self.path):
                    batch, begin, end = next(batches, (None, 0, 0))
                if batch is None:
                    return
                for edges in self._columns.batches(batch, row, begin, end):
                    yield edges
                    mapped.at(edges.bytes_read, self._dictionaries_end)
                row += batch.num_rows

    def _sizes(self, mapped: MappedFile, schema: Any) -> list[MessageSize]:
        """What all record batches and dictionaries take."""
        content = pyarrow().BufferReader(mapped.content)
        num_batches = self._open(mapped).num_record_batches if self._is_file else None
        content.seek(FILE_START if self._is_file else 0)
        return list(message_sizes(content, num_batches, chosen_buffers(schema.types, self._columns.positions)))

    def _batches(self, mapped: MappedFile) -> Iterator[tuple[Any, int, int]]:
        """(record batch, where it begins and ends in the file)."""
        reader = self._open(mapped, self._chosen)
        size, count = len(mapped.content), len(self._ends_at)
        for number, end in enumerate(self._ends_at):
            batch = reader.get_batch(number) if self._is_file else reader.read_next_batch()
            for name in self._columns.names:
                _check(batch.column(name))
            begin = self._ends_at[number - 1] if number else 0
            yield batch, begin, size if self._is_file and number == count - 1 else end

    def _open(self, mapped: MappedFile, columns: list[int] | None = None) -> Any:
        """A reader of some columns, or of all; what is not packed it takes as it lies in the file."""
        ipc, content = pyarrow().ipc, pyarrow().BufferReader(mapped.content)
        options = ipc.IpcReadOptions(use_threads=False, included_fields=columns)
        return (ipc.open_file if self._is_file else ipc.open_stream)(content, options=options)


def _check(column: Any) -> None:
    """Refuse a column whose offsets or indices lead out of it: pyarrow takes what lies in a file on trust.

    Whether names are UTF-8 is looked at later, where the row is known.
    """
    pa = pyarrow()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column.validate()
        if len(column.indices):
            lowest, highest = (each.as_py() for each in compute().min_max(column.indices).values())
            if lowest is not None and not 0 <= lowest <= highest < len(column.dictionary):
                raise ValueError(f"an index of a dictionary of {len(column.dictionary)} leads out of it.")
        _check(column.dictionary)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column.validate()
        column.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).validate(full=True)
    else:
        column.validate(full=not (pa.types.is_integer(kind) or pa.types.is_floating(kind)))
