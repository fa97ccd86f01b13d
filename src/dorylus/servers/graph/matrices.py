"""The matrices a graph server works on: allocated when first written, given back when nobody needs them.

Memory is recycled rather than returned: fresh pages cost more than the work done on them.

Matrices under a memory limit: what is given back is free at once, and some live in files for the most part.
"""

import threading
from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dorylus.paging import PAGE, PagedArray, Pager, ReservedMemory

SPARE = 64  # the part of a block that is left alone where memory is limited, at most


class Arena:
    """Memory given back, for whoever needs a block of about that size next."""

    def __init__(self) -> None:
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def take(self, size: int, share: float = 1.0) -> NDArray[np.uint8]:
        """A block of at least so many bytes, aligned to cache lines. ``share``: the part that will be written to."""
        with self._lock:
            found = self._take_free(size, 2 * size)
        return _aligned(size) if found is None else found

    def give(self, block: NDArray[np.uint8]) -> None:
        """Take a block back."""
        with self._lock:
            self._free.append(block)

    def clear(self) -> None:
        """Return the memory that nobody has to the system."""
        with self._lock:
            self._free.clear()

    def _take_free(self, size: int, most: int) -> NDArray[np.uint8] | None:
        fitting = [block for block in self._free if size <= block.nbytes <= most]
        if not fitting:
            return None
        found = min(fitting, key=lambda block: block.nbytes)
        self._free = [other for other in self._free if other is not found]
        return found


class BoundedArena(Arena):
    """An arena under a memory limit: free blocks are kept as far as they and those in use take ``room`` bytes.

    Blocks are mapped, so that one it lets go of is the system's again. One that is written to in part lies in small
    pages, of which the others cost nothing, and is not used again: the next to take it would write to more of it.
    """

    def __init__(self, room: int) -> None:
        super().__init__()
        self._room = room
        self._in_use: dict[int, tuple[int, bool]] = {}  # by address: the bytes that are written to, and if that is all

    def take(self, size: int, share: float = 1.0) -> NDArray[np.uint8]:
        """A block of at least so many bytes; where that is more than there is room for, free ones go."""
        with self._lock:
            block = self._take_free(size, size + size // SPARE + PAGE) if share == 1 else None
            counted = round(size * share) if block is None else block.nbytes
            self._keep_room(counted)
            if block is None:
                block = ReservedMemory(size, huge=share == 1).bytes
            self._in_use[block.ctypes.data] = counted, share == 1
            return block

    def give(self, block: NDArray[np.uint8]) -> None:
        """Take a block back."""
        with self._lock:
            _, whole = self._in_use.pop(block.ctypes.data)
            if whole:
                self._free.append(block)

    def _keep_room(self, size: int) -> None:
        """Let go of free blocks, the largest first, until there is room for so many bytes or none is left."""
        self._free.sort(key=lambda block: block.nbytes)
        taken = size + sum(counted for counted, _ in self._in_use.values())
        while self._free and taken + sum(block.nbytes for block in self._free) > self._room:
            self._free.pop()


class Matrices:
    """Named matrices, in memory from an arena. ``paged`` are those that also lie in files: here none.

    ``share_of``: the part of a matrix's rows that are ever written, by its name.
    """

    def __init__(self, arena: Arena, share_of: Callable[[Any], float] = lambda name: 1.0) -> None:
        self._arena, self._share_of = arena, share_of
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
        size = max(1, shape[0] * shape[1] * dtype.itemsize)
        block = self._blocks[name] = self._arena.take(size, self._share_of(name))
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

    def forget(self) -> None:
        """Hold nothing any more. What a task still works on is its own then, and nobody is given its memory."""
        with self._lock:
            self._held.clear()
            self._blocks.clear()


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


class PagedMatrices(Matrices):
    """Named matrices, a span of rows an interval. ``is_paged`` says by name which of them go to files."""

    def __init__(self, pager: Pager, bounds: NDArray[np.int64], is_paged: Callable[[Hashable], bool]) -> None:
        super().__init__(Arena())
        self._pager, self._bounds, self._is_paged = pager, bounds, is_paged

    def put(self, name: Any, matrix: NDArray[Any] | PagedArray) -> None:
        """Hold a matrix made elsewhere, perhaps a paged one."""
        self.paged.pop(name, None)
        if isinstance(matrix, PagedArray):
            self.paged[name] = matrix
            matrix = matrix.array
        super().put(name, matrix)

    def pages_of(self, names: Iterable[Any], make: Callable[[Any], object]) -> list[PagedArray]:
        """Those of some matrices that are paged, made now if they are not there."""
        for name in names:
            make(name)
        return [self.paged[name] for name in names if name in self.paged]

    def release(self, names: Iterable[Any]) -> None:
        """Give these matrices back; files that are there for good stay."""
        gone = [name for name in names if name not in self.paged or not self.paged[name].read_only]
        super().release(gone)
        with self._lock:
            arrays = [self.paged.pop(name) for name in gone if name in self.paged]
        for array in arrays:
            self._pager.give_back(array)

    def _make(self, name: Any, shape: tuple[int, int], dtype: np.dtype[Any], zero: bool) -> NDArray[Any]:
        if self._is_paged(name):
            self.paged[name] = self._pager.scratch(shape, dtype, self._bounds)
            matrix = self.paged[name].array
        else:
            matrix = ReservedMemory(shape[0] * shape[1] * dtype.itemsize, huge=True).array(shape, dtype)
        self._held[name] = matrix  # zeros, as all fresh pages are
        return matrix
