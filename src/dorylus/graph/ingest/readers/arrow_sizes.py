"""What the messages of an Arrow file or stream take to decode, told by their headers before any is decoded.

pyarrow decodes a record batch whole and tells no size beforehand, so the few fields of the headers (flatbuffers, see
Arrow's Message.fbs) that say it are read here.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from dorylus.graph.ingest.readers.arrow import pyarrow

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
