"""The matrices a graph server works on: allocated when first written, released when no task reads them any more.

Memory is recycled rather than returned: fresh pages cost more than the work done on them.
"""

import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import Backend, Matrix, NumberFormat
from dorylus.paging import PAGE, ReservedMemory

SPARE = 64  # the part of a block that is left alone where memory is limited, at most


class Arena:
    """Blocks of a back end's memory that were released, for the next matrix of about their size."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._free: list[Any] = []
        self._lock = threading.Lock()

    def take(self, size: int, share: float = 1.0) -> Any:
        """A block of at least so many bytes. ``share``: the part that will be written to."""
        with self._lock:
            block = self._take_free(size, 2 * size)
        return self._backend.allocate_block(size) if block is None else block

    def give(self, block: Any) -> None:
        """Return a block to the arena."""
        with self._lock:
            self._free.append(block)

    def clear(self) -> None:
        """Return the free blocks to the system."""
        with self._lock:
            self._free.clear()

    def _take_free(self, size: int, most: int) -> Any:
        fitting = [block for block in self._free if size <= block.nbytes <= most]
        if not fitting:
            return None
        smallest = min(fitting, key=lambda block: block.nbytes)
        self._free = [other for other in self._free if other is not smallest]
        return smallest


class BoundedArena(Arena):
    """Host memory under a limit: free blocks are kept as far as they and those in use take ``room`` bytes.

    The back end has to work in host memory. Blocks are mapped, so that a dropped one returns to the system. A block
    that is written in part lies in small pages, so that unwritten pages take no memory; it is not reused, as the next
    matrix would write more of it.
    """

    def __init__(self, backend: Backend, room: int) -> None:
        super().__init__(backend)
        self._room = room
        self._in_use: dict[int, tuple[int, bool]] = {}  # by address: the bytes that are written to, and if that is all

    def take(self, size: int, share: float = 1.0) -> NDArray[np.uint8]:
        """A block of at least so many bytes; free blocks are dropped where there is no room for it."""
        with self._lock:
            block = self._take_free(size, size + size // SPARE + PAGE) if share == 1 else None
            counted = round(size * share) if block is None else block.nbytes
            self._keep_room(counted)
            if block is None:
                block = ReservedMemory(size, huge=share == 1).bytes
            self._in_use[block.ctypes.data] = counted, share == 1
            return block

    def give(self, block: NDArray[np.uint8]) -> None:
        """Return a block to the arena."""
        with self._lock:
            _, whole = self._in_use.pop(block.ctypes.data)
            if whole:
                self._free.append(block)

    def _keep_room(self, size: int) -> None:
        """Drop free blocks, the largest first, until there is room for so many bytes or none is left."""
        self._free.sort(key=lambda block: block.nbytes)
        used = size + sum(counted for counted, _ in self._in_use.values())
        while self._free and used + sum(block.nbytes for block in self._free) > self._room:
            self._free.pop()


class Matrices:
    """Named matrices of one pass, in memory from an arena.

    ``share_of``: the part of a matrix's rows that are ever written, by its name.
    """

    def __init__(self, backend: Backend, arena: Arena, share_of: Callable[[Any], float] = lambda name: 1.0) -> None:
        self._backend, self._arena, self._share_of = backend, arena, share_of
        self._held: dict[Any, Matrix] = {}
        self._blocks: dict[Any, Any] = {}
        self._lock = threading.Lock()

    def get(
        self,
        name: Any,
        rows: int,
        columns: int,
        number_format: NumberFormat = NumberFormat.FLOAT32,
        *,
        zero: bool = False,
    ) -> Matrix:
        """The matrix of this name, made if it is not held; shape, format and ``zero`` are those of a new one."""
        held = self._held.get(name)
        if held is not None:
            return held
        with self._lock:
            return self._held[name] if name in self._held else self._make(name, rows, columns, number_format, zero)

    def _make(self, name: Any, rows: int, columns: int, number_format: NumberFormat, zero: bool) -> Matrix:
        size = max(1, rows * columns * self._backend.dtype(number_format).itemsize)
        block = self._blocks[name] = self._arena.take(size, self._share_of(name))
        matrix = self._backend.matrix_over(block, rows, columns, number_format)
        if zero:
            self._backend.clear(matrix)
        self._held[name] = matrix
        return matrix

    def put(self, name: Any, matrix: Any) -> None:
        """Hold a matrix made by the caller; its memory is not the arena's."""
        with self._lock:
            self._held[name] = matrix

    def in_memory(self, names: Iterable[Any], interval: int) -> AbstractContextManager[None]:
        """Have an interval's rows of some matrices in memory while the context is open: here they always are."""
        return nullcontext()

    def __contains__(self, name: Any) -> bool:
        return name in self._held

    def __len__(self) -> int:
        return len(self._held)

    def release(self, names: Iterable[Any]) -> None:
        """Release these matrices."""
        with self._lock:
            for name in names:
                self._held.pop(name, None)
                block = self._blocks.pop(name, None)
                if block is not None:
                    self._arena.give(block)

    def release_all(self) -> None:
        """Release all matrices. Memory that a task still works on is not reused."""
        with self._lock:
            self._held.clear()
            self._blocks.clear()
