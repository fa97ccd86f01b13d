"""A paged array: rows in spans, each in memory, in a file, or both.

Neighbouring spans share a page where they meet. Such a page is never dropped and, in an array that is written to,
never moved: two spans that wrote it at different times would overwrite each other's rows.

A :class:`WidenedArray` presents a file of float16 as float32: half the bytes are read, and kernels read one type. A
:class:`Pager` makes paged arrays, over files that exist or over scratch files that are reused.
"""

import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dorylus.paging.block_file import BlockFile, ReadOnlyFile, ScratchFile
from dorylus.paging.io_threads import IoThreads
from dorylus.paging.reserved_memory import PAGE, ReservedMemory, down, up
from dorylus.progress import ProgressStage, ReportStage, silent


@dataclass
class _PageSpan:
    """The state of a span. ``busy``: pages are being read or written, and must not be used."""

    users: int = 0
    present: bool = False
    dirty: bool = False
    stored: bool = False
    busy: Future[int] | None = None


class PagedArray:
    """An array whose rows are read and dropped span by span. ``bounds``: the first row of every span, and the end.

    ``file`` holds the array's bytes from its beginning. One that is read-only is complete; to another, spans are
    written when they are left.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        bounds: Sequence[int] | NDArray[np.int64],
        file: BlockFile,
        io_threads: IoThreads,
        *,
        read_only: bool = False,
    ) -> None:
        row_bytes = np.dtype(dtype).itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._memory = ReservedMemory(shape[0] * row_bytes)
        self.array: NDArray[Any] = self._memory.array(shape, dtype)
        self.file, self._io_threads, self.read_only = file, io_threads, read_only
        self._starts = [int(bound) * row_bytes for bound in bounds]
        self._spans = [_PageSpan(stored=read_only) for _ in self._starts[1:]]
        self._lock = threading.Condition()

    @property
    def num_spans(self) -> int:
        """How many spans there are."""
        return len(self._spans)

    def acquire(self, number: int) -> None:
        """Hold a span in memory until it is released. A span that was never stored keeps its content."""
        span = self._spans[number]
        while True:
            with self._lock:
                if span.busy is None:
                    if span.present or not span.stored:
                        span.present = True
                        span.users += 1
                        return
                    reading = span.busy = Future()
                    break
                waiting = span.busy
            self._io_threads.wait(waiting)
        self._io_threads.count(self._read(number, reading))
        self.acquire(number)

    def ahead(self, number: int) -> None:
        """Start reading a span, if there is one of that number and it has to be read at all."""
        if not 0 <= number < len(self._spans):
            return
        span = self._spans[number]
        with self._lock:
            if span.busy is not None or span.present or not span.stored:
                return
            reading = span.busy = Future()
        try:
            self._io_threads.read(lambda: self._read(number, reading))
        except BaseException as error:
            self._done(number, reading, error)
            raise

    def wrote(self, number: int) -> None:
        """Mark a span as changed; a read-only array ignores it."""
        if self.read_only:
            return
        with self._lock:
            span = self._spans[number]
            span.present = span.dirty = True

    def release(self, number: int, *, leave: bool) -> None:
        """Release a span; ``leave``: it is not needed soon, and is dropped once it has no user."""
        with self._lock:
            span = self._spans[number]
            span.users -= 1
        if leave:
            self.leave(number)

    def leave(self, number: int) -> None:
        """Drop a span without users, written to the file first if it is new."""
        span = self._spans[number]
        with self._lock:
            if span.users > 0 or not span.present or span.busy is not None:
                return
            if not span.dirty:
                self._drop(number)
                return
            writing: Future[int] = Future()
            span.busy = writing
        try:
            self._io_threads.write(lambda: self._write(number, writing))
        except BaseException as error:
            self._done(number, writing, error)
            raise

    def acquire_all(self) -> None:
        """Hold every span in memory, for random access."""
        self._memory.prefer_huge(True)
        for number in range(len(self._spans)):
            self.ahead(number)
        for number in range(len(self._spans)):
            self.acquire(number)

    def release_all(self) -> None:
        """Release every span."""
        self._memory.prefer_huge(False)
        for number in range(len(self._spans)):
            self.release(number, leave=True)

    def discard(self, number: int) -> None:
        """Drop a span's content, which is not needed any more, unless the span has a user."""
        with self._lock:
            span = self._spans[number]
            if span.users == 0 and span.busy is None:
                span.dirty, span.stored = False, self.read_only
                self._drop(number)

    def discard_all(self) -> None:
        """Drop all content, after waiting for reads and writes."""
        for span in self._spans:
            with self._lock:
                busy = span.busy
            if busy is not None:
                self._io_threads.wait(busy)
        with self._lock:
            self._spans = [_PageSpan(stored=self.read_only) for _ in self._spans]
            self._memory.drop_all()

    def _read(self, number: int, reading: "Future[int]") -> int:
        begin, end = self._pages(number)
        try:
            count = self._load(begin, end)
        except BaseException as error:
            self._done(number, reading, error)
            raise
        with self._lock:
            self._spans[number].present = True
        self._done(number, reading)
        return count

    def _load(self, begin: int, end: int) -> int:
        """Fill some pages from the file; return how many bytes were read for that."""
        self.file.read_into(self._memory.bytes[begin:end], begin)
        return end - begin

    def _write(self, number: int, writing: "Future[int]") -> int:
        begin, end = self._pages(number)
        try:
            self.file.write_from(self._memory.bytes[begin:end], begin)
        except BaseException as error:
            self._done(number, writing, error)
            raise
        with self._lock:
            span = self._spans[number]
            span.dirty, span.stored = False, True
            self._drop(number)
        self._done(number, writing)
        return end - begin

    def _done(self, number: int, moved: "Future[int]", error: BaseException | None = None) -> None:
        with self._lock:
            self._spans[number].busy = None
        if error is None:
            moved.set_result(0)
        else:
            moved.set_exception(error)

    def _drop(self, number: int) -> None:
        self._spans[number].present = False
        self._memory.drop(*self._inner(number))

    def _inner(self, number: int) -> tuple[int, int]:
        """The pages that belong to a span alone."""
        begin, end = up(self._starts[number]), down(self._starts[number + 1])
        return (begin, end) if begin < end else (begin, begin)

    def _pages(self, number: int) -> tuple[int, int]:
        """The pages that are read and written with a span."""
        if not self.read_only:
            return self._inner(number)
        begin, end = self._starts[number], self._starts[number + 1]
        return (down(begin), up(end)) if begin < end else (0, 0)


PIECE = 1 << 23  # bytes widened together, through a buffer of half of it


class WidenedArray(PagedArray):
    """An array that is only read; its rows are widened when they are read."""

    def __init__(
        self, shape: tuple[int, ...], bounds: Sequence[int] | NDArray[np.int64], file: BlockFile, io_threads: IoThreads
    ) -> None:
        super().__init__(shape, np.float32, bounds, file, io_threads, read_only=True)

    def _load(self, begin: int, end: int) -> int:
        buffer = ReservedMemory(min(PIECE, end - begin) // 2 + 2 * PAGE).bytes
        count = 0
        for first in range(begin, end, PIECE):
            last = min(first + PIECE, end)
            start, stop = down(first // 2), up(last // 2)
            self.file.read_into(buffer[: stop - start], start)
            halves = buffer[first // 2 - start : last // 2 - start].view(np.float16)
            self._memory.bytes[first:last].view(np.float32)[:] = halves
            count += stop - start
        return count


Bounds = NDArray[np.int64]


class Pager:
    """Everything that is paged in one run: its scratch folder, the threads that move pages, and how much they moved.

    ``tell`` is called with the progress of long passes over files.
    """

    def __init__(self, folder: str | PathLike[str], deadline_s: float = 600.0, tell: ReportStage = silent) -> None:
        self._folder, self._tell = folder, tell
        self.io_threads = IoThreads(deadline_s)
        self._free: list[ScratchFile] = []
        self._lock = threading.Lock()

    def stored(self, file: ReadOnlyFile, array: NDArray[Any], bounds: Bounds) -> PagedArray:
        """The array of a file, of ``array``'s type and shape, in spans of rows; float16 is read as float32."""
        if array.dtype == np.float16:
            return WidenedArray(array.shape, bounds, file, self.io_threads)
        return PagedArray(array.shape, array.dtype, bounds, file, self.io_threads, read_only=True)

    def scratch(self, shape: tuple[int, ...], dtype: DTypeLike, bounds: Bounds) -> PagedArray:
        """A new array whose spans are written to a scratch file when they are left."""
        size = max(1, up(int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize))
        return PagedArray(shape, dtype, bounds, self._take(size), self.io_threads)

    def stage(self, name: str, total: int) -> ProgressStage:
        """The progress of a pass over so many bytes that begins now."""
        return ProgressStage(name, total, self._tell)

    def give_back(self, array: PagedArray) -> None:
        """Drop an array's content: its scratch file is free for another array."""
        array.discard_all()
        assert isinstance(array.file, ScratchFile)
        if array.file.set_aside:
            with self._lock:
                self._free.append(array.file)

    def close(self) -> None:
        """Stop the threads; a scratch file is closed with its last array."""
        self.io_threads.close()

    def _take(self, size: int) -> ScratchFile:
        """The smallest free file that is large enough, else the largest that is not, else a new one."""
        with self._lock:
            if self._free:
                chosen = min(self._free, key=lambda file: (file.size < size, abs(file.size - size)))
                self._free.remove(chosen)
                chosen.use_again(size)
                return chosen
        return ScratchFile(self._folder, size)
