"""The matrices a graph server works on: allocated when first written, given back when nobody needs them.

Memory is recycled rather than returned: fresh pages cost more than the work done on them.
"""

import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dorylus.paging import PagedArray


class Arena:
    """Memory given back, for whoever needs a block of about that size next."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def take(self, size: int) -> NDArray[np.uint8]:
        """A block of at least so many bytes, aligned to cache lines."""
        with self._lock:
            fitting = [block for block in self._free if size <= block.nbytes <= 2 * size]
            if fitting:
                block = min(fitting, key=lambda block: block.nbytes)
                self._free = [other for other in self._free if other is not block]
                return block
        return _aligned(size)

    def give(self, block: NDArray[np.uint8]) -> None:
        """Take a block back."""
        with self._lock:
            self._free.append(block)


class Matrices:
    """Named matrices, in memory from an arena. ``paged`` are those that also lie in files: here none."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        self.paged: dict[Any, PagedArray] = {}
        self._held: dict[Any, NDArray[Any]] = {}
        self._blocks: dict[Any, NDArray[np.uint8]] = {}
        self._lock = threading.Lock()

    def get(
        self, name: Any, rows: int, columns: int, dtype: DTypeLike = np.float32, *, zero: bool = False
    ) -> NDArray[Any]:
        """The matrix of this name, made if it is not held; shape, type and ``zero`` only speak of a new one."""
        held = self._held.get(name)
        if held is not None:
            return held
        with self._lock:
            return self._held[name] if name in self._held else self._make(name, (rows, columns), np.dtype(dtype), zero)

    def _make(self, name: Any, shape: tuple[int, int], dtype: np.dtype[Any], zero: bool) -> NDArray[Any]:
        block = self._blocks[name] = self._arena.take(max(1, shape[0] * shape[1] * dtype.itemsize))
        matrix: NDArray[Any] = np.ndarray(shape, dtype, buffer=block)
        if zero:
            matrix.fill(0)
        self._held[name] = matrix
        return matrix

    def put(self, name: Any, matrix: NDArray[Any] | PagedArray) -> None:
        """Hold a matrix made elsewhere; its memory is not the arena's."""
        assert not isinstance(matrix, PagedArray)  # for matrices that know how to
        with self._lock:
            self._held[name] = matrix

    def __contains__(self, name: Any) -> bool:
        return name in self._held

    def __len__(self) -> int:
        return len(self._held)

    def release(self, names: Iterable[Any]) -> None:
        """Give these matrices back."""
        with self._lock:
            for name in names:
                self._held.pop(name, None)
                block = self._blocks.pop(name, None)
                if block is not None:
                    self._arena.give(block)


def _aligned(size: int, boundary: int = 64) -> NDArray[np.uint8]:
    raw = np.empty(size + boundary, np.uint8)
    start = -raw.ctypes.data % boundary
    return raw[start : start + size]


class _Alias:
    """A read-only array presented as a writable one."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.kept = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.ctypes.data, False)}


def writable_alias(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory, not marked read-only: torch takes no other, and nothing here writes to features."""
    return array if array.flags.writeable else np.asarray(_Alias(array))
