"""Frames split into pieces of at most 256 KiB, and assembled again in reused buffers.

A frame travels as several messages of two parts: a :class:`Piece` of 32 bytes that identifies the message, and a
stretch of the frame. Small messages keep memory flat (high-water marks count messages) and let one end encrypt while
the other reads. Pieces of a frame arrive in order, and frames of one connection one after the other. A request whose
number does not grow within its session is a replay (:class:`ReplayGuard`). Receive buffers are reused
(:class:`Buffers`), because allocating fresh memory takes longer than the copy into it.
"""

import struct
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.wire.frames import ALIGNMENT, HEAD, Buffer, FrameError

PIECE_BYTES = 256 << 10  # of the pieces we send
MAX_PIECE_BYTES = 1 << 20  # of the pieces we accept
_JOINED_BYTES = 32 << 10  # parts up to this size are joined: sending a message takes longer than the copy

_LAYOUT = struct.Struct("<2sBBIQQQ")
_MAGIC = b"DP"
_VERSION = 1


class MessageKind(IntEnum):
    """The kind of frame that a piece belongs to."""

    REQUEST = 1
    REPLY = 2
    ERROR = 3  # a reply whose header holds the reason for the refusal


@dataclass(frozen=True, slots=True)
class Piece:
    """What identifies a message: session, request, kind of frame, and which piece of the frame it is."""

    kind: MessageKind
    index: int
    session: int
    request: int
    total_bytes: int

    def to_bytes(self) -> bytes:
        """The 32 bytes that are sent."""
        return _LAYOUT.pack(_MAGIC, _VERSION, self.kind, self.index, self.session, self.request, self.total_bytes)

    @classmethod
    def from_bytes(cls, content: Buffer) -> "Piece":
        """The piece that 32 received bytes describe."""
        if len(content) != _LAYOUT.size:
            raise FrameError(f"a message begins with {_LAYOUT.size} bytes, but {len(content)} arrived.")
        magic, version, kind, index, session, request, total_bytes = _LAYOUT.unpack(content)
        if magic != _MAGIC or version != _VERSION or kind not in tuple(MessageKind):
            raise FrameError("a message does not begin with this protocol's magic, version and kind.")
        if request == 0 or total_bytes < HEAD.size:
            raise FrameError(f"a message of request {request} and {total_bytes} bytes: neither can be so small.")
        return cls(MessageKind(kind), index, session, request, total_bytes)


def split(parts: Iterable[Buffer], piece_bytes: int = PIECE_BYTES) -> Iterator[Buffer]:
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
    for index, content in enumerate(split(parts)):
        piece = Piece(first.kind, index, first.session, first.request, first.total_bytes)
        yield piece.to_bytes(), content


class FrameAssembler:
    """One frame of which not all pieces have arrived."""

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
        """Record a piece of this size received into ``room``; returns the whole frame if it was the last piece."""
        if not 0 < num_bytes <= min(len(self._buffer) - self._num_bytes, MAX_PIECE_BYTES):
            raise FrameError(f"a piece of {num_bytes} bytes arrived: it is empty, too long or beyond the frame's end.")
        self._num_pieces += 1
        self._num_bytes += num_bytes
        return self._buffer if self._num_bytes == len(self._buffer) else None


class ReplayGuard:
    """The highest request number of each session of each key; the least recently used sessions are dropped first."""

    def __init__(self, max_sessions: int = 65_536) -> None:
        self._max_sessions = max_sessions
        self._last: OrderedDict[tuple[str, int], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def is_new(self, key: str, session: int, request: int) -> bool:
        """Whether the request's number is higher than all before it in this session; records it."""
        if request <= self._last.get((key, session), 0):
            return False
        self._last[key, session] = request
        self._last.move_to_end((key, session))
        if len(self._last) > self._max_sessions:
            self._last.popitem(last=False)
        return True


class _Memory:
    """A stretch of memory, lent to one reader after the other.

    A loan is a new array object over the memory. Every view of it, and every array made of such a view, keeps that
    object alive, and never the memory alone: the memory is in use exactly as long as the loan exists. A weak reference
    shows which is the case, on every Python version and without reference counts. Where objects are freed late, the
    memory is only reused later.
    """

    def __init__(self, num_bytes: int) -> None:
        # Lent as a memoryview, and not as an array: numpy has a view of an array's view refer to the first array,
        # past the one between, which would be the loan.
        self._bytes = np.empty(num_bytes + ALIGNMENT, np.uint8).data
        self._start = -np.frombuffer(self._bytes, np.uint8).ctypes.data % ALIGNMENT
        self._loan: weakref.ref[NDArray[Any]] | None = None
        self.num_bytes = num_bytes

    @property
    def is_lent(self) -> bool:
        return self._loan is not None and self._loan() is not None

    def lend(self, num_bytes: int) -> memoryview:
        loan = np.frombuffer(self._bytes, np.uint8, num_bytes, self._start)
        self._loan = weakref.ref(loan)
        return loan.data


class Buffers:
    """Buffers aligned to 64 bytes; one is reused when nothing refers to it any more.

    An array that is a view into a buffer keeps the buffer: nothing is overwritten under a reader, in any thread. At
    most ``max_kept`` buffers and ``max_kept_bytes`` wait for reuse. ``take`` is for one thread.
    """

    def __init__(self, max_kept: int = 8, max_kept_bytes: int = 64 << 20) -> None:
        self._max_kept, self._max_kept_bytes = max_kept, max_kept_bytes
        self._kept: list[_Memory] = []

    @property
    def kept_bytes(self) -> int:
        """How much memory is kept for the next buffers, lent or not."""
        return sum(memory.num_bytes for memory in self._kept)

    def take(self, num_bytes: int) -> memoryview:
        """A writable buffer of this many bytes, its content undefined."""
        memory = self._unused(num_bytes)
        if memory is None:
            memory = _Memory(num_bytes)
            self._keep(memory)
        return memory.lend(num_bytes)

    def _unused(self, num_bytes: int) -> _Memory | None:
        for memory in self._kept:
            if num_bytes <= memory.num_bytes <= 4 * (num_bytes + ALIGNMENT) and not memory.is_lent:
                return memory
        return None

    def _keep(self, memory: _Memory) -> None:
        """Keep a buffer for reuse, and drop the oldest beyond the limits: these are freed when nothing refers to them.

        A buffer larger than all that may be kept is not kept.
        """
        if memory.num_bytes > self._max_kept_bytes:
            return
        self._kept.append(memory)
        while len(self._kept) > self._max_kept or self.kept_bytes > self._max_kept_bytes:
            self._kept.pop(0)
