"""Programs of calls, made on a thread of their own: an export takes seconds, and the engine must not wait for it."""

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor

from dorylus.functions import ExportedProgram
from dorylus.saga import Call


class Programs:
    """Makes each program once and keeps it. ``signature`` says which calls share one; ``export`` makes it.

    Exports are made one after the other, in the thread that :meth:`first` uses, too.
    """

    def __init__(self, signature: Callable[[Call], Hashable], export: Callable[[Call], ExportedProgram]) -> None:
        self._signature, self._export = signature, export
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dorylus-export")
        self._lock = threading.Lock()
        self._programs: dict[Hashable, Future[ExportedProgram]] = {}

    def first(self, work: Callable[[], None]) -> None:
        """Do something before the next program is made."""
        self._thread.submit(work)

    def when_ready(
        self, call: Call, ready: Callable[[ExportedProgram], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Hand a call's program to ``ready``: now, where it is known; else when it is made, in that thread."""
        key = self._signature(call)
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._thread.submit(self._export, call)
            program = self._programs[key]

        def tell(made: Future[ExportedProgram]) -> None:
            if made.cancelled():
                return
            error = made.exception()
            if error is not None:
                failed(error)
            else:
                ready(made.result())

        program.add_done_callback(tell)

    def close(self) -> None:
        """Make no more; one that is being made is finished first."""
        self._thread.shutdown(wait=True, cancel_futures=True)
