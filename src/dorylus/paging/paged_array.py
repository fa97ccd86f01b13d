"""A paged array: rows in spans, each in memory, in a file, or both.

Neighbouring spans share a page where they meet. Such a page is never dropped and, in an array that is written to,
never moved: two spans that wrote it at different moments would undo each other's work.

A paged float32 array over a file of float16: half the bytes are read, and whoever works on it knows one type.

The pager: makes paged arrays, over files that are there or over scratch that is used again and again.
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
from dorylus.progress import ProgressStage, Tell, silent


@dataclass
class _Span:
    """What is known of a span. ``busy``: pages are on their way in or out, and nobody may touch them."""

    users: int = 0
    present: bool = False
    dirty: bool = False
    stored: bool = False
    busy: Future[int] | None = None


class PagedArray:
    """An array whose rows come and go span by span. ``bounds``: the first row of every span, and the end.

    ``file`` holds the array's bytes from its beginning. One that is read-only is complete; to another, spans are
    written as they are left.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: DTypeLike,
        bounds: Sequence[int] | NDArray[np.int64],
        file: BlockFile,
        mover: IoThreads,
        *,
        read_only: bool = False,
    ) -> None:
        row_bytes = np.dtype(dtype).itemsize * int(np.prod(shape[1:], dtype=np.int64))
        self._window = ReservedMemory(shape[0] * row_bytes)
        self.array: NDArray[Any] = self._window.array(shape, dtype)
        self.file, self._mover, self.read_only = file, mover, read_only
        self._starts = [int(bound) * row_bytes for bound in bounds]
        self._spans = [_Span(stored=read_only) for _ in self._starts[1:]]
        self._lock = threading.Condition()

    @property
    def num_spans(self) -> int:
        """How many spans there are."""
        return len(self._spans)

    def acquire(self, number: int) -> None:
        """Have a span in memory until it is released. One that was never stored is taken as it is."""
        span = self._spans[number]
        while True:
            with self._lock:
                if span.busy is None:
                    if span.present or not span.stored:
                        span.present = True
                        span.users += 1
                        return
                    coming = span.busy = Future()
                    break
                waiting = span.busy
            waiting.result(self._mover.deadline_s)
        self._mover.count(self._read(number, coming))
        self.acquire(number)

    def ahead(self, number: int) -> None:
        """Have a span read soon, if there is one of that number and it has to be read at all."""
        if not 0 <= number < len(self._spans):
            return
        span = self._spans[number]
        with self._lock:
            if span.busy is not None or span.present or not span.stored:
                return
            coming = span.busy = Future()
        try:
            self._mover.read(lambda: self._read(number, coming))
        except BaseException as error:
            self._done(number, coming, error)
            raise

    def wrote(self, number: int) -> None:
        """A span has new content; one that is only read has none, whatever is said."""
        if self.read_only:
            return
        with self._lock:
            span = self._spans[number]
            span.present = span.dirty = True

    def release(self, number: int, *, leave: bool) -> None:
        """A user is done with a span; ``leave``: it is not needed for a while, and goes when nobody uses it."""
        with self._lock:
            span = self._spans[number]
            span.users -= 1
        if leave:
            self.leave(number)

    def leave(self, number: int) -> None:
        """Drop a span that nobody uses, written to the file first if it is new."""
        span = self._spans[number]
        with self._lock:
            if span.users > 0 or not span.present or span.busy is not None:
                return
            if not span.dirty:
                self._drop(number)
                return
            going: Future[int] = Future()
            span.busy = going
        try:
            self._mover.write(lambda: self._write(number, going))
        except BaseException as error:
            self._done(number, going, error)
            raise

    def acquire_all(self) -> None:
        """Have every span in memory, for random access."""
        self._window.prefer_huge(True)
        for number in range(len(self._spans)):
            self.ahead(number)
        for number in range(len(self._spans)):
            self.acquire(number)

    def release_all(self) -> None:
        """Nobody needs all spans any more."""
        self._window.prefer_huge(False)
        for number in range(len(self._spans)):
            self.release(number, leave=True)

    def forget(self, number: int) -> None:
        """A span's content is not needed any more, unless somebody uses it still."""
        with self._lock:
            span = self._spans[number]
            if span.users == 0 and span.busy is None:
                span.dirty, span.stored = False, self.read_only
                self._drop(number)

    def forget_all(self) -> None:
        """No content is needed any more; waits for what is on its way."""
        for span in self._spans:
            with self._lock:
                busy = span.busy
            if busy is not None:
                busy.result(self._mover.deadline_s)
        with self._lock:
            self._spans = [_Span(stored=self.read_only) for _ in self._spans]
            self._window.drop_all()

    def _read(self, number: int, coming: "Future[int]") -> int:
        begin, end = self._pages(number)
        try:
            count = self._load(begin, end)
        except BaseException as error:
            self._done(number, coming, error)
            raise
        with self._lock:
            self._spans[number].present = True
        self._done(number, coming)
        return count

    def _load(self, begin: int, end: int) -> int:
        """Fill some pages of the window from the file; how many bytes were read for it."""
        self.file.read_into(self._window.bytes[begin:end], begin)
        return end - begin

    def _write(self, number: int, going: "Future[int]") -> int:
        begin, end = self._pages(number)
        try:
            self.file.write_from(self._window.bytes[begin:end], begin)
        except BaseException as error:
            self._done(number, going, error)
            raise
        with self._lock:
            span = self._spans[number]
            span.dirty, span.stored = False, True
            self._drop(number)
        self._done(number, going)
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
        self._window.drop(*self._inner(number))

    def _inner(self, number: int) -> tuple[int, int]:
        """The pages that belong to a span alone."""
        begin, end = up(self._starts[number]), down(self._starts[number + 1])
        return (begin, end) if begin < end else (begin, begin)

    def _pages(self, number: int) -> tuple[int, int]:
        """The pages that are moved with a span."""
        if not self.read_only:
            return self._inner(number)
        begin, end = self._starts[number], self._starts[number + 1]
        return (down(begin), up(end)) if begin < end else (0, 0)


PIECE = 1 << 23  # bytes widened together: what waits for that is half of it


class WidenedArray(PagedArray):
    """An array that is only read; its rows are widened as they come in."""

    def __init__(
        self, shape: tuple[int, ...], bounds: Sequence[int] | NDArray[np.int64], file: BlockFile, mover: IoThreads
    ) -> None:
        super().__init__(shape, np.float32, bounds, file, mover, read_only=True)

    def _load(self, begin: int, end: int) -> int:
        buffer = ReservedMemory(min(PIECE, end - begin) // 2 + 2 * PAGE).bytes
        count = 0
        for first in range(begin, end, PIECE):
            last = min(first + PIECE, end)
            start, stop = down(first // 2), up(last // 2)
            self.file.read_into(buffer[: stop - start], start)
            halves = buffer[first // 2 - start : last // 2 - start].view(np.float16)
            self._window.bytes[first:last].view(np.float32)[:] = halves
            count += stop - start
        return count


Bounds = NDArray[np.int64]


class Pager:
    """Everything that is paged in one run: its scratch folder, the threads that move pages, and how much they moved.

    ``tell`` hears how far long passes over files are.
    """

    def __init__(self, folder: str | PathLike[str], deadline_s: float = 600.0, tell: Tell = silent) -> None:
        self._folder, self._tell = folder, tell
        self.mover = IoThreads(deadline_s)
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

    def stage(self, name: str, total: int) -> ProgressStage:
        """A pass over so many bytes that begins now."""
        return ProgressStage(name, total, self._tell)

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
