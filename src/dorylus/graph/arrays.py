"""Array types by element, and control over which pages of a memory-mapped array are in memory."""

import mmap
import os
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float32]
HalfArray: TypeAlias = NDArray[np.float16]
IdArray: TypeAlias = NDArray[np.int32]
OffsetArray: TypeAlias = NDArray[np.int64]


SMALL = 1 << 22  # bytes below which dropping pages is not worth a system call


def preload_pages(array: AnyArray) -> None:
    """Read a memory-mapped array sequentially: faster than page faults in arbitrary order."""
    if _mapped_file(array) is not None:
        array.reshape(-1)[:: mmap.PAGESIZE // array.itemsize].max(initial=0)


def drop_pages(array: AnyArray) -> None:
    """Drop the whole pages of a memory-mapped array from memory and from the page cache."""
    file = _mapped_file(array)
    if file is None or array.nbytes < SMALL:
        return
    start = array.ctypes.data - file.ctypes.data
    begin, end = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
    if array.nbytes == file.nbytes:
        end = len(file._mmap)  # type: ignore[attr-defined]
    if begin < end:
        file._mmap.madvise(mmap.MADV_DONTNEED, begin, end - begin)  # type: ignore[attr-defined]
        try:
            descriptor = os.open(file.filename, os.O_RDONLY)  # type: ignore[arg-type]
        except OSError:  # renamed or removed since: the kernel reclaims its pages when it needs them
            return
        try:
            os.posix_fadvise(descriptor, begin, end - begin, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _mapped_file(array: AnyArray | None) -> "np.memmap[tuple[int, ...], np.dtype[np.generic]] | None":
    """The memory map of the whole file that an array is a view of; None for other arrays."""
    mapped = None
    while isinstance(array, np.ndarray):
        if isinstance(array, np.memmap) and array.filename is not None and array.offset == 0:
            mapped = array
        array = array.base
    return mapped
