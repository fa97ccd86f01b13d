"""The engine: threads that take ready tasks, run them, and tell the schedulers.

As many threads as cores, one task each, whatever server it belongs to; the thread that calls :meth:`Engine.run` is one
of them, so a small graph on one thread pays for no hand-over at all.
"""

import heapq
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import torch

from dorylus.errors import DeadlineError, DorylusError, TrainingError
from dorylus.pipeline import EpochFinished, Event, Finished, PeerFinished, Permit, Scheduler, Start, StepFinished, Task

Execute = Callable[[Task, Callable[[], None], Callable[[BaseException], None]], None]


class Span(NamedTuple):
    """When a task ran, for which server, and on which thread."""

    task: Task
    server: int
    thread: int
    start_s: float
    end_s: float


class ServerRuntime(NamedTuple):
    """One server's part in a pass: the scheduler that decides, and what carries its tasks out."""

    scheduler: Scheduler
    execute: Execute


class EnginePass:
    """The stations of the servers here, and what they have under way. Touched under the engine's lock only.

    ``tell_elsewhere`` passes on what servers in other processes wait for; it must not wait itself.
    """

    def __init__(
        self,
        stations: Mapping[int, ServerRuntime],
        first_epoch: int = 0,
        tell_elsewhere: Callable[[PeerFinished], None] | None = None,
    ) -> None:
        self.stations = dict(stations)
        self.ready: list[tuple[Task, int]] = []
        self.running: dict[Task, float] = {}
        self.spans: list[Span] = []
        self.watched_s = time.perf_counter()  # when deadlines were last looked at
        self.waits = 0  # intervals that stood at the bound
        self.failure: DorylusError | None = None
        self.stirred_s = time.perf_counter()  # when a scheduler last heard of something
        self._tell_elsewhere = tell_elsewhere
        self._finished = dict.fromkeys(stations, first_epoch - 1)

    @property
    def epoch(self) -> int:
        """The newest epoch that every server here has finished."""
        return min(self._finished.values())

    @property
    def is_stuck(self) -> bool:
        """Whether nothing will ever happen: no task is ready or under way, and nobody elsewhere could change that."""
        return not self.ready and not self.running and self._tell_elsewhere is None

    def tell(self, server: int, event: Event) -> None:
        """Hand an event to a server's scheduler and carry out what it says."""
        self.stirred_s = time.perf_counter()
        for action in self.stations[server].scheduler.handle(event):
            if isinstance(action, Start):
                heapq.heappush(self.ready, (action.task, server))
            elif isinstance(action, EpochFinished):
                self._finished[server] = action.epoch
                self._tell_peers(server, PeerFinished(server, action.epoch, None))
            elif isinstance(action, StepFinished):
                self._tell_peers(server, PeerFinished(server, action.epoch, action.step))
            else:
                self.waits += 1

    def _tell_peers(self, server: int, report: PeerFinished) -> None:
        if self._tell_elsewhere is not None:
            self._tell_elsewhere(report)
        for peer in self.stations:
            if peer != server:
                self.tell(peer, report)


class _Running(NamedTuple):
    """A task in hand, and the thread that took it."""

    work: EnginePass
    task: Task
    server: int
    thread: int
    start_s: float
    identity: int


class Engine:
    """Runs the epochs of a pass; every wait has a deadline.

    One pass is worked on at a time. Tasks of another that are under way on a pool meanwhile lose nothing: what they
    make ready waits until their pass is taken up again.
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
        """Work until every server has finished an epoch; gives when each task ran meanwhile.

        ``permit``: the last epoch that may be started while at it; later than ``epoch``, intervals may run ahead.
        """
        intra_op = torch.get_num_threads()
        torch.set_num_threads(1)  # parallelism comes from tasks
        try:
            with self._changed:
                self._work, self._until = work, epoch
                for server in work.stations:
                    work.tell(server, Permit(epoch if permit is None else permit))
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
            raise TrainingError("the servers were closed while an epoch was under way: let it end before closing them.")
        return spans

    def tell(self, work: EnginePass, server: int, event: Event) -> None:
        """Tell a server's scheduler of something that happened outside a task's end."""
        with self._changed:
            self._tell(work, server, event, taken_here=0)

    def fail(self, work: EnginePass, error: DorylusError) -> None:
        """Nothing will come any more of what a pass waits for: whoever runs it, now or later, gets this error."""
        with self._changed:
            self._fail(work, error)

    def close(self, timeout_s: float | None = None) -> bool:
        """Stop the threads, each after the task in its hands; False if some are still at it after so long."""
        until = time.monotonic() + (self._deadline_s if timeout_s is None else timeout_s)
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for other in self._others:
            other.join(max(0.0, until - time.monotonic()))
        return not any(other.is_alive() for other in self._others)

    def _has_task(self) -> bool:
        """Whether there is a task to take: those of the next epoch may be ready, and have to wait for their turn."""
        return self._work is not None and bool(self._work.ready) and not self._over()

    def _over(self) -> bool:
        work = self._work
        return work is None or self._closed or work.failure is not None or work.epoch >= self._until

    def _tell(self, work: EnginePass, server: int, event: Event, taken_here: int) -> None:
        """Under the lock. ``taken_here``: tasks this thread takes next."""
        work.tell(server, event)
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
        while (taken := self._take(work)) is not None:
            task, server = taken
            run = _Running(work, task, server, thread, time.perf_counter(), threading.get_ident())
            try:
                work.stations[server].execute(task, partial(self._done, run), partial(self._failed, run))
            except BaseException as error:
                # What was begun is not done and never will be: whoever goes on with this pass must hear of it.
                self._failed(run, error)
                if thread == 0 and not isinstance(error, Exception):
                    raise

    def _done(self, run: _Running) -> None:
        end = time.perf_counter()
        with self._changed:
            work = run.work
            work.running.pop(run.task, None)
            if work.failure is None:
                work.spans.append(Span(run.task, run.server, run.thread, run.start_s, end))
                here = int(threading.get_ident() == run.identity)
                self._tell(work, run.server, Finished(run.task), taken_here=here)

    def _failed(self, run: _Running, error: BaseException) -> None:
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
            taken = heapq.heappop(work.ready)
            work.running[taken[0]] = time.perf_counter()
            return taken

    def _too_late(self, work: EnginePass) -> bool:
        """Whether some task is past its deadline while others still come and go; looked at now and then."""
        now = time.perf_counter()
        if now - work.watched_s > self._deadline_s / 4:
            work.watched_s = now
            if work.running:
                self._miss_deadline(work)
        return work.failure is not None

    def _miss_deadline(self, work: EnginePass) -> None:
        oldest = min(work.running, key=work.running.__getitem__, default=None)
        since = work.stirred_s if oldest is None else work.running[oldest]
        if time.perf_counter() - since < self._deadline_s:
            return
        within = f"within deadline_s={self._deadline_s:g}"
        if oldest is None:  # what tasks wait for is on its way, or lost
            self._fail(work, DeadlineError(f"nothing came {within} that would let epoch {self._until + 1} go on."))
        else:
            late = TimeoutError(f"no answer {within}: raise it if the task is honestly that long.")
            self._fail(work, DeadlineError(str(_in_task(oldest, late))))


def explained(where: str, error: BaseException) -> DorylusError:
    """An error told with what failed and where; one of ours says so itself."""
    if isinstance(error, DorylusError):
        return error
    failure = TrainingError(f"{where}: {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure


def _in_task(task: Task, error: BaseException) -> DorylusError:
    return explained(f"{task.kind} of interval {task.interval} in epoch {task.epoch + 1} failed", error)
