"""Threads that move pages between memory and files while other threads compute."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from dorylus.errors import DeadlineError, given

THREADS = 2  # one reads while the other writes, which keeps a disk busy
WRITES = 4  # at most at a time, so that little memory waits to be written


class Moved(NamedTuple):
    """Bytes that went between memory and files."""

    read: int = 0
    written: int = 0

    def since(self, before: "Moved") -> "Moved":
        """The bytes since an earlier count."""
        return Moved(self.read - before.read, self.written - before.written)


class IoThreads:
    """Carries out reads and writes. A caller that writes faster than the disk waits; every wait has a deadline."""

    def __init__(self, deadline_s: float = 600.0) -> None:
        self.deadline_s = deadline_s
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="dorylus-pages")
        self._writes = threading.BoundedSemaphore(WRITES)
        self._failure: BaseException | None = None
        self.moved = Moved()
        self._lock = threading.Lock()

    def read(self, work: Callable[[], int]) -> Future[int]:
        """Start a read; ``work`` carries it out and returns the number of bytes."""
        self.check()
        return self._threads.submit(self._counted, work, reading=True)

    def write(self, work: Callable[[], int]) -> None:
        """Start a write; ``work`` returns the number of bytes. The next read or write raises its error."""
        self.check()
        if not self._writes.acquire(timeout=self.deadline_s):
            raise self._too_late("took")
        self._threads.submit(self._write, work)

    def wait(self, moved: "Future[int]") -> None:
        """Wait until a read or a write is over."""
        try:
            moved.result(self.deadline_s)
        except TimeoutError as error:
            raise self._too_late("moved") from error

    def _too_late(self, did: str) -> DeadlineError:
        within = given("deadline_s", self.deadline_s)
        return DeadlineError(f"the disk {did} nothing within {within}: raise it if the disk really takes that long.")

    def count(self, num_bytes: int) -> int:
        """Count bytes that the caller read itself, and return their number."""
        self._add(Moved(read=num_bytes))
        return num_bytes

    def check(self) -> None:
        """Raise the error of a write that failed."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Finish the reads and writes that were started, and stop the threads."""
        self._threads.shutdown()

    def _write(self, work: Callable[[], int]) -> None:
        try:
            self._counted(work, reading=False)
        except BaseException as error:
            self._failure = error
        finally:
            self._writes.release()

    def _counted(self, work: Callable[[], int], *, reading: bool) -> int:
        count = work()
        self._add(Moved(read=count) if reading else Moved(written=count))
        return count

    def _add(self, more: Moved) -> None:
        with self._lock:
            self.moved = Moved(self.moved.read + more.read, self.moved.written + more.written)
