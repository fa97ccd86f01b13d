"""The engine: threads that take ready tasks, run them, and tell the scheduler.

As many threads as cores, one task each; the thread that calls :meth:`Engine.run` is one of them, so a small graph on
one thread pays for no hand-over at all.
"""

import heapq
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch

from dorylus.errors import DorylusError, TrainingError
from dorylus.pipeline import EpochFinished, Event, Finished, Permit, Scheduler, Task

Execute = Callable[[Task, Callable[[], None], Callable[[BaseException], None]], None]


class Span(NamedTuple):
    """When a task ran, and on which thread."""

    task: Task
    thread: int
    start_s: float
    end_s: float


class _Running(NamedTuple):
    """A task in hand, and the thread that took it."""

    task: Task
    thread: int
    start_s: float
    identity: int


class Engine:
    """Runs epochs of a scheduler; every wait has a deadline."""

    def __init__(self, threads: int, deadline_s: float) -> None:
        self._threads = threads
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        self._ready: list[Task] = []
        self._running: dict[Task, float] = {}
        self._execute: Execute | None = None
        self._scheduler: Scheduler | None = None
        self._failure: tuple[Task, BaseException] | None = None
        self._over = True
        self._closed = False
        self._spans: list[Span] = []
        self._others = [
            threading.Thread(target=self._help, args=(k,), name=f"dorylus-{k}", daemon=True) for k in range(1, threads)
        ]
        for other in self._others:
            other.start()

    def run(self, scheduler: Scheduler, epoch: int, execute: Execute) -> list[Span]:
        """Run one epoch of the scheduler; gives when each task ran."""
        intra_op = torch.get_num_threads()
        torch.set_num_threads(1)  # parallelism comes from tasks
        try:
            with self._changed:
                self._scheduler, self._execute, self._spans = scheduler, execute, []
                self._failure, self._over = None, False
                self._handle(Permit(epoch), taken_here=1)
                if not self._ready and not self._over:  # nothing would ever happen: do not wait for it
                    raise TrainingError(f"epoch {epoch} has no task to start: it is over already, or has none at all.")
            self._work(0)
        finally:
            with self._changed:
                self._over = True
                self._ready.clear()
                self._running.clear()
            torch.set_num_threads(intra_op)
        if self._failure is not None:
            raise _explained(*self._failure)
        return self._spans

    def close(self) -> None:
        """Stop the threads."""
        with self._changed:
            self._closed = self._over = True
            self._changed.notify_all()
        for other in self._others:
            other.join(self._deadline_s)

    def _handle(self, event: Event, taken_here: int) -> None:
        """Tell the scheduler, carry out what it says; under the lock. ``taken_here``: tasks this thread takes next."""
        assert self._scheduler is not None
        for action in self._scheduler.handle(event):
            if isinstance(action, EpochFinished):
                self._over = True
            else:
                heapq.heappush(self._ready, action.task)
        if self._over:
            self._changed.notify_all()
        elif len(self._ready) > taken_here:
            self._changed.notify(len(self._ready) - taken_here)

    def _help(self, thread: int) -> None:
        torch.set_num_threads(1)
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._closed)
            self._work(thread)

    def _work(self, thread: int) -> None:
        """Take tasks until the epoch is over."""
        while (task := self._take()) is not None:
            run = _Running(task, thread, time.perf_counter(), threading.get_ident())
            assert self._execute is not None
            try:
                self._execute(task, partial(self._done, run), partial(self._failed, task))
            except Exception as error:
                self._failed(task, error)

    def _done(self, run: _Running) -> None:
        end = time.perf_counter()
        with self._changed:
            self._running.pop(run.task, None)
            if not self._over:
                self._spans.append(Span(run.task, run.thread, run.start_s, end))
                self._handle(Finished(run.task), taken_here=int(threading.get_ident() == run.identity))

    def _failed(self, task: Task, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or (task, error)
            self._over = True
            self._changed.notify_all()

    def _take(self) -> Task | None:
        with self._changed:
            while not self._ready and not self._over:
                if not self._changed.wait(self._deadline_s) and not self._ready and not self._over:
                    self._miss_deadline()
            if self._over:
                return None
            task = heapq.heappop(self._ready)
            self._running[task] = time.perf_counter()
            return task

    def _miss_deadline(self) -> None:
        oldest = min(self._running, key=self._running.__getitem__, default=None)
        if oldest is None or time.perf_counter() - self._running[oldest] < self._deadline_s:
            return
        message = f"no answer within deadline_s={self._deadline_s:g}: raise it if the task is honestly that long."
        self._failure = (oldest, TimeoutError(message))
        self._over = True
        self._changed.notify_all()


def _explained(task: Task, error: BaseException) -> DorylusError:
    if isinstance(error, DorylusError):
        return error
    where = f"{task.kind} of interval {task.interval} in epoch {task.epoch + 1}"
    failure = TrainingError(f"{where} failed: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
