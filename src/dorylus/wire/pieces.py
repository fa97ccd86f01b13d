"""Frames cut into pieces of at most 256 KiB, and put together again.

A frame travels as several messages of two parts: a :class:`Piece` of 32 bytes that says where the message belongs, and
a stretch of the frame. Small messages keep memory flat (high-water marks count messages) and let one end encrypt
while the other reads. Pieces of a frame arrive in order, and frames of one connection one after the other.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from dorylus.wire.errors import FrameError
from dorylus.wire.frames import HEAD, Buffer

PIECE_BYTES = 256 << 10  # what we cut to
MAX_PIECE_BYTES = 1 << 20  # what we accept
_JOINED_BYTES = 32 << 10  # parts up to this size are copied together: a message costs more than the copy

_LAYOUT = struct.Struct("<2sBBIQQQ")
_MAGIC = b"DP"
_VERSION = 1


class Kind(IntEnum):
    """What the frame is that a piece belongs to."""

    REQUEST = 1
    REPLY = 2
    ERROR = 3  # a reply whose header holds the reason why there is no other


@dataclass(frozen=True, slots=True)
class Piece:
    """Where a message belongs: which frame of which request of which session, and which piece of it."""

    kind: Kind
    index: int
    session: int
    request: int
    total_bytes: int

    def to_bytes(self) -> bytes:
        """The 32 bytes that travel."""
        return _LAYOUT.pack(_MAGIC, _VERSION, self.kind, self.index, self.session, self.request, self.total_bytes)

    @classmethod
    def from_bytes(cls, content: Buffer) -> "Piece":
        """Read what travelled."""
        if len(content) != _LAYOUT.size:
            raise FrameError(f"a message begins with {_LAYOUT.size} bytes, but {len(content)} came.")
        magic, version, kind, index, session, request, total_bytes = _LAYOUT.unpack(content)
        if magic != _MAGIC or version != _VERSION or kind not in tuple(Kind):
            raise FrameError("a message does not begin as one of ours.")
        if request == 0 or total_bytes < HEAD.size:
            raise FrameError(f"a message of request {request} and {total_bytes} bytes: neither can be so small.")
        return cls(Kind(kind), index, session, request, total_bytes)


def cut(parts: Iterable[Buffer], piece_bytes: int = PIECE_BYTES) -> Iterator[Buffer]:
    """The parts of a frame as stretches of at most ``piece_bytes``; only small ones are copied."""
    small: list[memoryview] = []
    num_small = 0
    for part in parts:
        view = memoryview(part).cast("B")
        if small and num_small + len(view) > _JOINED_BYTES:
            yield b"".join(small)
            small, num_small = [], 0
        if len(view) <= _JOINED_BYTES <= piece_bytes:
            small.append(view)
            num_small += len(view)
        else:
            yield from (view[start : start + piece_bytes] for start in range(0, len(view), piece_bytes))
    if small:
        yield b"".join(small)


def messages(first: Piece, parts: Iterable[Buffer]) -> Iterator[tuple[bytes, Buffer]]:
    """The messages that a frame travels in, each as its two parts."""
    for index, content in enumerate(cut(parts)):
        piece = Piece(first.kind, index, first.session, first.request, first.total_bytes)
        yield piece.to_bytes(), content


class Assembly:
    """One frame on its way in."""

    def __init__(self, first: Piece, buffer: memoryview) -> None:
        self._first, self._buffer = first, buffer
        self._num_pieces = self._num_bytes = 0

    @property
    def total_bytes(self) -> int:
        """How long the frame will be."""
        return self._first.total_bytes

    @property
    def room(self) -> memoryview:
        """Where the next piece goes; never empty."""
        return self._buffer[self._num_bytes :]

    def expects(self, piece: Piece) -> bool:
        """Whether this piece is the next one of this frame."""
        first = self._first
        same = (piece.kind, piece.session, piece.request, piece.total_bytes) == (
            first.kind, first.session, first.request, first.total_bytes,
        )  # fmt: skip
        return same and piece.index == self._num_pieces

    def add(self, num_bytes: int) -> memoryview | None:
        """Note that a piece of this size has come into the room: the whole frame, if it was the last piece."""
        if not 0 < num_bytes <= min(len(self._buffer) - self._num_bytes, MAX_PIECE_BYTES):
            raise FrameError(f"a piece of {num_bytes} bytes came: it is empty, too long or beyond the frame's end.")
        self._num_pieces += 1
        self._num_bytes += num_bytes
        return self._buffer if self._num_bytes == len(self._buffer) else None
