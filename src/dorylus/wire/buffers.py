"""Memory that frames are received into, used again and again: fresh memory costs more than the copy into it."""

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.wire.frames import ALIGNMENT


class _Memory:
    """A stretch of memory, lent to one reader after the other.

    A loan is an array object over the memory, made anew each time. Every view of it, and every array made of such a
    view, keeps that very object alive, and never the memory alone: while a loan lives the memory is in use, and when
    it is gone nothing can read the memory any more. A weak reference shows which of the two it is, exactly, on every
    Python: no count of references is looked at. Where objects die late, memory is merely used again later.
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
    """Gives buffers aligned to 64 bytes; one is given out again when nothing refers to it any more.

    An array that is a view into a buffer keeps the buffer: nothing is ever overwritten under a reader, in whatever
    thread. At most ``max_kept`` buffers and ``max_kept_bytes`` wait for reuse. ``take`` is for one thread.
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
        """Remember a buffer, and forget the oldest ones that are too many: they live on while something refers to them.

        A buffer larger than all that may be kept is not remembered.
        """
        if memory.num_bytes > self._max_kept_bytes:
            return
        self._kept.append(memory)
        while len(self._kept) > self._max_kept or self.kept_bytes > self._max_kept_bytes:
            self._kept.pop(0)
