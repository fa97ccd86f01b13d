"""Memory that frames are received into, used again and again: fresh memory costs more than the copy into it."""

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.wire.frames import ALIGNMENT

_KEPT_REFERENCES = 3  # our list, the name in the loop, and getrefcount's own argument


class Buffers:
    """Gives buffers aligned to 64 bytes; one is given out again when nobody looks at it any more.

    Whoever keeps an array that is a view into a buffer keeps the buffer: nothing is ever overwritten under a reader.
    At most ``max_kept`` buffers and ``max_kept_bytes`` wait for reuse. For one thread.
    """

    def __init__(self, max_kept: int = 8, max_kept_bytes: int = 64 << 20) -> None:
        self._max_kept, self._max_kept_bytes = max_kept, max_kept_bytes
        self._kept: list[NDArray[Any]] = []

    def take(self, num_bytes: int) -> memoryview:
        """A writable buffer of this many bytes, its content undefined."""
        memory = self._unused(num_bytes)
        if memory is None:
            memory = np.empty(num_bytes + ALIGNMENT, np.uint8)
            self._keep(memory)
        start = -memory.ctypes.data % ALIGNMENT
        return memory.data[start : start + num_bytes]

    def _unused(self, num_bytes: int) -> NDArray[Any] | None:
        for memory in self._kept:
            fits = num_bytes + ALIGNMENT <= memory.nbytes <= 4 * (num_bytes + ALIGNMENT)
            if fits and sys.getrefcount(memory) == _KEPT_REFERENCES:
                return memory
        return None

    def _keep(self, memory: NDArray[Any]) -> None:
        """Remember a buffer, and forget the oldest ones that are too many: they live on while somebody looks."""
        if memory.nbytes > self._max_kept_bytes:
            return
        self._kept.append(memory)
        while len(self._kept) > self._max_kept or sum(each.nbytes for each in self._kept) > self._max_kept_bytes:
            self._kept.pop(0)
