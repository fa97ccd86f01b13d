"""A paged float32 array over a file of float16: half the bytes are read, and whoever works on it knows one type."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dorylus.paging.block_file import BlockFile
from dorylus.paging.mover import Mover
from dorylus.paging.paged_array import PagedArray
from dorylus.paging.window import PAGE, Window, down, up

PIECE = 1 << 23  # bytes widened together: what waits for that is half of it


class WidenedArray(PagedArray):
    """An array that is only read; its rows are widened as they come in."""

    def __init__(
        self, shape: tuple[int, ...], bounds: Sequence[int] | NDArray[np.int64], file: BlockFile, mover: Mover
    ) -> None:
        super().__init__(shape, np.float32, bounds, file, mover, read_only=True)

    def _load(self, begin: int, end: int) -> int:
        buffer = Window(min(PIECE, end - begin) // 2 + 2 * PAGE).bytes
        count = 0
        for first in range(begin, end, PIECE):
            last = min(first + PIECE, end)
            start, stop = down(first // 2), up(last // 2)
            self.file.read_into(buffer[: stop - start], start)
            halves = buffer[first // 2 - start : last // 2 - start].view(np.float16)
            self._window.bytes[first:last].view(np.float32)[:] = halves
            count += stop - start
        return count
