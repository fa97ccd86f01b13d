"""The pager: makes paged arrays, over files that are there or over scratch that is used again and again."""

import threading
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dorylus.paging.block_file import ReadOnlyFile, ScratchFile
from dorylus.paging.mover import Mover
from dorylus.paging.paged_array import PagedArray
from dorylus.paging.stage import Stage, Tell, silent
from dorylus.paging.widened_array import WidenedArray
from dorylus.paging.window import up

Bounds = NDArray[np.int64]


class Pager:
    """Everything that is paged in one run: its scratch folder, the threads that move pages, and how much they moved.

    ``tell`` hears how far long passes over files are.
    """

    def __init__(self, folder: str | PathLike[str], deadline_s: float = 600.0, tell: Tell = silent) -> None:
        self._folder, self._tell = folder, tell
        self.mover = Mover(deadline_s)
        self._free: list[ScratchFile] = []
        self._lock = threading.Lock()

    def stored(self, file: ReadOnlyFile, array: NDArray[Any], bounds: Bounds) -> PagedArray:
        """The array of a file, of the type and shape that ``array`` has, in spans of rows; float16 comes as float32."""
        if array.dtype == np.float16:
            return WidenedArray(array.shape, bounds, file, self.mover)
        return PagedArray(array.shape, array.dtype, bounds, file, self.mover, read_only=True)

    def scratch(self, shape: tuple[int, ...], dtype: DTypeLike, bounds: Bounds) -> PagedArray:
        """A new array whose spans are written to scratch as they are left."""
        size = max(1, up(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize))
        return PagedArray(shape, dtype, bounds, self._take(size), self.mover)

    def stage(self, name: str, total: int) -> Stage:
        """A pass over so many bytes that begins now."""
        return Stage(name, total, self._tell)

    def give_back(self, array: PagedArray) -> None:
        """An array's content is not needed any more: its scratch is free for another."""
        array.forget_all()
        assert isinstance(array.file, ScratchFile)
        if array.file.set_aside:
            with self._lock:
                self._free.append(array.file)

    def close(self) -> None:
        """Stop the threads; the scratch goes with the last array."""
        self.mover.close()

    def _take(self, size: int) -> ScratchFile:
        """The smallest free file that is large enough, else the largest that is not, else a new one."""
        with self._lock:
            if self._free:
                chosen = min(self._free, key=lambda file: (file.size < size, abs(file.size - size)))
                self._free.remove(chosen)
                chosen.use_again(size)
                return chosen
        return ScratchFile(self._folder, size)
