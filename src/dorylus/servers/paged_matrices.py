"""Matrices under a memory limit: what is given back is free at once, and some live in files for the most part."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.paging import PagedArray, Pager, Window
from dorylus.servers.matrices import Arena, Matrices


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
            matrix = Window(shape[0] * shape[1] * dtype.itemsize, huge=True).array(shape, dtype)
        self._held[name] = matrix  # zeros, as all fresh pages are
        return matrix
