"""The engine: threads that take ready tasks, run them, and report their ends to the schedulers.

It has as many threads as cores. Each thread runs one task at a time, of any server; the thread that calls
:meth:`Engine.run` is one of them, so a small graph on one thread needs no hand-over between threads.
"""

import heapq
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch

from dorylus.errors import DeadlineError, DorylusError, TrainingError, given
from dorylus.pipeline import EpochFinished, Event, Finished, PeerFinished, Permit, Scheduler, Start, StepFinished, Task

Done = Callable[[], None]
Failed = Callable[[BaseException], None]
Execute = Callable[[int, Task, Done, Failed], None]  # carries out a task of a server


class Span(NamedTuple):
    """When a task ran, for which server, and on which thread."""

    task: Task
    server: int
    thread: int
    start_s: float
    end_s: float


class EnginePass:
    """The schedulers of the servers here, what carries out their tasks, and the tasks in progress.

    Everything is read and written under the engine's lock. ``report_to_peers`` sends what servers in other processes
    wait for; it must not block.
    """

    def __init__(
        self,
        schedulers: Mapping[int, Scheduler],
        execute: Execute,
        first_epoch: int = 0,
        report_to_peers: Callable[[PeerFinished], None] | None = None,
    ) -> None:
        self.schedulers, self.execute = dict(schedulers), execute
        self.ready: list[tuple[Task, int]] = []
        self.running: dict[Task, float] = {}
        self.spans: list[Span] = []
        self.deadlines_checked_s = time.perf_counter()
        self.waits = 0  # intervals that waited at the staleness bound
        self.failure: DorylusError | None = None
        self.last_event_s = time.perf_counter()
        self._report_to_peers = report_to_peers
        self._finished = dict.fromkeys(self.schedulers, first_epoch - 1)

    @property
    def epoch(self) -> int:
        """The newest epoch that every server here has finished."""
        return min(self._finished.values())

    @property
    def is_stuck(self) -> bool:
        """Whether the pass cannot continue: no task is ready or in progress, and no other process takes part."""
        return not self.ready and not self.running and self._report_to_peers is None

    def handle(self, server: int, event: Event) -> None:
        """Pass an event to a server's scheduler and carry out its actions."""
        self.last_event_s = time.perf_counter()
        for action in self.schedulers[server].handle(event):
            if isinstance(action, Start):
                heapq.heappush(self.ready, (action.task, server))
            elif isinstance(action, EpochFinished):
                self._finished[server] = action.epoch
                self._report(server, PeerFinished(server, action.epoch, None))
            elif isinstance(action, StepFinished):
                self._report(server, PeerFinished(server, action.epoch, action.step))
            else:
                self.waits += 1

    def _report(self, server: int, report: PeerFinished) -> None:
        if self._report_to_peers is not None:
            self._report_to_peers(report)
        for peer in self.schedulers:
            if peer != server:
                self.handle(peer, report)


class _RunningTask(NamedTuple):
    """A task in progress, and the thread that took it."""

    work: EnginePass
    task: Task
    server: int
    thread: int
    start_s: float
    identity: int


class Engine:
    """Runs the epochs of a pass; every wait has a deadline.

    It runs one pass at a time. Tasks of another pass may still be in progress on a pool; the tasks that they make ready
    wait until their pass runs again.
    """

    def __init__(self, threads: int, deadline_s: float) -> None:
        self._deadline_s = deadline_s
        self._changed = threading.Condition()
        self._work: EnginePass | None = None
        self._until = 0
        self._closed = False
        self._others = [
            threading.Thread(target=self._help, args=(k,), name=f"dorylus-{k}", daemon=True) for k in range(1, threads)
        ]
        for other in self._others:
            other.start()

    def run(self, work: EnginePass, epoch: int, permit: int | None = None) -> list[Span]:
        """Work until every server has finished an epoch; returns when each task ran.

        ``permit`` is the last epoch that may start; if it is later than ``epoch``, intervals may run ahead.
        """
        intra_op = torch.get_num_threads()
        torch.set_num_threads(1)  # parallelism comes from tasks
        try:
            with self._changed:
                self._work, self._until = work, epoch
                for server in work.schedulers:
                    work.handle(server, Permit(epoch if permit is None else permit))
                if work.is_stuck and not self._over():
                    raise TrainingError(f"epoch {epoch + 1} has no task to start: permit that epoch, or a later one.")
                self._changed.notify_all()
            self._take_tasks(work, 0)
        finally:
            with self._changed:
                self._work = None
                spans, work.spans = work.spans, []
            torch.set_num_threads(intra_op)
        if work.failure is not None:
            raise work.failure
        if work.epoch < epoch:
            raise TrainingError(
                "the servers were closed while an epoch was in progress: let it end before closing them."
            )
        return spans

    def handle(self, work: EnginePass, server: int, event: Event) -> None:
        """Pass an event that is not the end of a task to a server's scheduler."""
        with self._changed:
            self._handle(work, server, event, taken_here=0)

    def fail(self, work: EnginePass, error: DorylusError) -> None:
        """End a pass with this error, in the call of :meth:`run` that is in progress or in the next one."""
        with self._changed:
            self._fail(work, error)

    def close(self, timeout_s: float | None = None) -> bool:
        """Stop the threads, each after its current task; False if some still run after ``timeout_s``."""
        until = time.monotonic() + (self._deadline_s if timeout_s is None else timeout_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for other in self._others:
            other.join(max(0.0, until - time.monotonic()))
        return not any(other.is_alive() for other in self._others)

    def _has_task(self) -> bool:
        """Whether there is a task to take. Tasks of the next epoch may be ready, and wait until it is run."""
        return self._work is not None and bool(self._work.ready) and not self._over()

    def _over(self) -> bool:
        work = self._work
        return work is None or self._closed or work.failure is not None or work.epoch >= self._until

    def _handle(self, work: EnginePass, server: int, event: Event, taken_here: int) -> None:
        """Must be called under the lock. ``taken_here``: the number of tasks that this thread takes next."""
        work.handle(server, event)
        if self._over():
            self._changed.notify_all()
        elif len(work.ready) > taken_here:
            self._changed.notify(len(work.ready) - taken_here)

    def _help(self, thread: int) -> None:
        torch.set_num_threads(1)
        while not self._closed:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self._has_task())
                work = self._work
            if work is not None:
                self._take_tasks(work, thread)

    def _take_tasks(self, work: EnginePass, thread: int) -> None:
        """Take tasks until the epoch is over."""
        while (next_task := self._take(work)) is not None:
            task, server = next_task
            run = _RunningTask(work, task, server, thread, time.perf_counter(), threading.get_ident())
            try:
                work.execute(server, task, partial(self._done, run), partial(self._failed, run))
            except BaseException as error:
                # The task is not finished and never will be: the caller that runs this pass next must see the error.
                self._failed(run, error)
                if thread == 0 and not isinstance(error, Exception):
                    raise

    def _done(self, run: _RunningTask) -> None:
        end = time.perf_counter()
        with self._changed:
            work = run.work
            work.running.pop(run.task, None)
            if work.failure is None:
                work.spans.append(Span(run.task, run.server, run.thread, run.start_s, end))
                here = int(threading.get_ident() == run.identity)
                self._handle(work, run.server, Finished(run.task), taken_here=here)

    def _failed(self, run: _RunningTask, error: BaseException) -> None:
        with self._changed:
            self._fail(run.work, _in_task(run.task, error))

    def _fail(self, work: EnginePass, error: DorylusError) -> None:
        work.failure = work.failure or error
        work.ready.clear()
        self._changed.notify_all()

    def _take(self, work: EnginePass) -> tuple[Task, int] | None:
        with self._changed:
            while not work.ready and self._work is work and not self._over():
                if not self._changed.wait(self._deadline_s) and not work.ready:
                    self._miss_deadline(work)
            if self._work is not work or self._over() or self._too_late(work):
                return None
            next_task = heapq.heappop(work.ready)
            work.running[next_task[0]] = time.perf_counter()
            return next_task

    def _too_late(self, work: EnginePass) -> bool:
        """Whether a task is past its deadline while others still finish; checked four times per deadline."""
        now = time.perf_counter()
        if now - work.deadlines_checked_s > self._deadline_s / 4:
            work.deadlines_checked_s = now
            if work.running:
                self._miss_deadline(work)
        return work.failure is not None

    def _miss_deadline(self, work: EnginePass) -> None:
        oldest = min(work.running, key=work.running.__getitem__, default=None)
        since = work.last_event_s if oldest is None else work.running[oldest]
        if time.perf_counter() - since < self._deadline_s:
            return
        within = f"within {given('deadline_s', self._deadline_s)}"
        if oldest is None:  # what the tasks wait for has not arrived from another process
            self._fail(work, DeadlineError(f"nothing arrived {within} that epoch {self._until + 1} waits for."))
        else:
            late = TimeoutError(f"no answer {within}: raise it if the task really takes that long.")
            self._fail(work, DeadlineError(_in_task(oldest, late).message))


def explained(where: str, error: BaseException) -> DorylusError:
    """An error that says what failed and where; a DorylusError is returned unchanged."""
    if isinstance(error, DorylusError):
        return error
    failure = TrainingError(f"{where}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _in_task(task: Task, error: BaseException) -> DorylusError:
    return explained(f"{task.kind} of interval {task.interval} in epoch {task.epoch + 1} failed", error)
