"""The matrices a graph server works on: allocated when first written, given back when nobody needs them.

Memory is recycled rather than returned: fresh pages cost more than the work done on them.
"""

import math
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


class Matrices:
    """Named matrices of equal row count, and the memory of those given back."""

    def __init__(self, num_rows: int) -> None:
        self._num_rows = num_rows
        self._held: dict[Any, NDArray[Any]] = {}
        self._free: list[NDArray[np.uint8]] = []
        self._lock = threading.Lock()

    def get(self, name: Any, columns: int, dtype: DTypeLike = np.float32, *, zero: bool = False) -> NDArray[Any]:
        """The matrix of this name, made if it is not held; ``zero`` only speaks of a new one."""
        with self._lock:
            held = self._held.get(name)
            if held is None:
                held = self._held[name] = self._take(columns, np.dtype(dtype))
                if zero:
                    held.fill(0)
            return held

    def put(self, name: Any, matrix: NDArray[Any]) -> None:
        """Hold a matrix made elsewhere; it is dropped, not recycled, when released."""
        with self._lock:
            self._held[name] = matrix

    def __contains__(self, name: Any) -> bool:
        return name in self._held

    def release(self, names: Iterable[Any]) -> None:
        """Give these matrices back."""
        with self._lock:
            for name in names:
                matrix = self._held.pop(name, None)
                if matrix is not None and isinstance(matrix.base, np.ndarray) and matrix.base.dtype == np.uint8:
                    self._free.append(matrix.base)

    def _take(self, columns: int, dtype: np.dtype[Any]) -> NDArray[Any]:
        size = max(1, math.prod((self._num_rows, columns, dtype.itemsize)))
        fitting = [block for block in self._free if size <= block.nbytes <= 2 * size]
        if fitting:
            block = min(fitting, key=lambda block: block.nbytes)
            self._free = [other for other in self._free if other is not block]
        else:
            block = _aligned(size)
        return np.ndarray((self._num_rows, columns), dtype, buffer=block)  # type: ignore[type-var]


def _aligned(size: int, boundary: int = 64) -> NDArray[np.uint8]:
    raw = np.empty(size + boundary, np.uint8)
    start = -raw.ctypes.data % boundary
    return raw[start : start + size]
