"""The pool whose dense tasks run on functions, on any service.

A call becomes a program and named arrays, which travel by one of two data paths; the arrays that return become the
reply. Two submissions of the same call are two attempts at one task: the one that completes it completes it for both.
"""

import secrets
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from math import inf
from typing import Any

from dorylus.errors import TrainingError, given
from dorylus.functions import ExportedProgram, Exports, ProgramCache, signature
from dorylus.pools.functions.data_paths import DataPath, InvocationJob, OpenPortsOf, PathChoice
from dorylus.pools.functions.data_service import open_ports
from dorylus.pools.functions.invocations import FunctionsConfig, FunctionUsage, Invocations, Invoked, UsageCounter
from dorylus.pools.functions.tasks import OpenTask, TaskAttempt, reply_of
from dorylus.pools.pool import Invoker, Lost
from dorylus.pools.registry import POOLS
from dorylus.saga import Call, Reply, Saved, dense

Note = Callable[..., None]
REPLY_THREADS = 4
SETTLE_S = 2.0


class Programs:
    """Makes each program once and keeps it. Calls with the same ``signature`` share one; ``export`` makes it.

    Exports are made one after the other, in the thread that :meth:`first` uses, too.
    """

    def __init__(self, signature: Callable[[Call], Hashable], export: Callable[[Call], ExportedProgram]) -> None:
        self._signature, self._export = signature, export
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="dorylus-export")
        self._lock = threading.Lock()
        self._programs: dict[Hashable, Future[ExportedProgram]] = {}

    def first(self, work: Callable[[], None]) -> None:
        """Run a function before the next program is made."""
        self._thread.submit(work)

    def when_ready(
        self, call: Call, ready: Callable[[ExportedProgram], None], failed: Callable[[BaseException], None]
    ) -> None:
        """Pass a call's program to ``ready``: now if it exists, else when it is made, in the exporting thread."""
        key = self._signature(call)
        with self._lock:
            if key not in self._programs:
                self._programs[key] = self._thread.submit(self._export, call)
            program = self._programs[key]

        def answer(made: Future[ExportedProgram]) -> None:
            if made.cancelled():
                return
            error = made.exception()
            if error is not None:
                failed(error)
            else:
                ready(made.result())

        program.add_done_callback(answer)

    def close(self) -> None:
        """Stop making programs, after the one in progress."""
        self._thread.shutdown(wait=True, cancel_futures=True)


@dataclass(frozen=True, eq=False)
class _RunningInvocation:
    """One of the invocations that an attempt at a task takes."""

    task: OpenTask
    attempt: TaskAttempt
    job: InvocationJob


class FunctionsPool:
    """Runs calls on the functions that an invoker invokes.

    It never retries a call: wrap it in :class:`Relaunching` and :class:`LimitedPool`. A call may be several
    invocations; ``at_once`` returns how many may be in flight, for all calls together. The others wait, in order. A
    replaced attempt, one of a cancelled call, and one whose results came some seconds ago do not count, so that a
    function that hangs does not block others. Calls must not bring an autograd graph (``kept``): it cannot travel. The
    arrays that a program lists as ``kept`` go into the reply, and return with the call for the gradient. ``note(what,
    **details)`` is called for decisions, such as the choice of the data path; ``invoked`` for invocations. ``begins``
    is called before each of them.
    """

    def __init__(
        self,
        invoker: Invoker,
        programs: Programs,
        config: FunctionsConfig | None = None,
        note: Note = lambda what, **details: None,
        invoked: Callable[[Invoked], None] = lambda invocation: None,
        open_ports: OpenPortsOf = open_ports,
        at_once: Callable[[], float] = lambda: inf,
        clock: Callable[[], float] = time.monotonic,
        begins: Callable[[], None] = lambda: None,
    ) -> None:
        config = config or FunctionsConfig()
        self._invoker, self._programs, self._note = invoker, programs, note
        self._usage = UsageCounter()
        self._invocations = invocations = Invocations(invoker, self._usage, config.timeout_s, invoked, begins=begins)
        self._choice = PathChoice(config, invocations, self._usage, self._completed, open_ports)
        self._run, self._serial = secrets.token_hex(8), count()
        self._lock = threading.Lock()
        self._open: dict[int, OpenTask] = {}
        self._closed = False
        self._at_once, self._clock = at_once, clock
        self._waiting: deque[_RunningInvocation] = deque()
        self._under_way: set[_RunningInvocation] = set()
        self._path: DataPath | None = None
        self._no_path: BaseException | None = None
        self._calls = ThreadPoolExecutor(config.max_invocations, thread_name_prefix="dorylus-invoke")
        # A port's thread must not answer a call: while it waits for the engine, the port would serve no function.
        self._replies = ThreadPoolExecutor(REPLY_THREADS, thread_name_prefix="dorylus-reply")
        self._is_choosing = False

    def submit(self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None]) -> None:
        """Take a call. A thread of the pool answers it; a call without work for functions is answered immediately."""
        attempt = TaskAttempt(done, failed)
        with self._lock:
            if self._closed:
                raise TrainingError("the pool is closed: it takes no more calls.")
            if not self._is_choosing:
                self._is_choosing = True
                self._programs.first(self._choose_path)
            if id(call) not in self._open:
                self._open[id(call)] = OpenTask(f"{self._run}-{next(self._serial)}", call)
            task = self._open[id(call)]
            for earlier in task.attempts:
                earlier.replaced = True
            task.attempts.append(attempt)
        try:
            _check_can_travel(call)
            self._programs.when_ready(call, partial(self._launch, task, attempt), partial(self._fail, task, attempt))
        except Exception as error:
            self._fail(task, attempt, error)

    def cancel(self, calls: Collection[Call]) -> None:
        """Drop these calls: what waits is not invoked any more, and functions are refused their rows.

        An invocation in flight ends by itself, and is billed; its results are dropped.
        """
        with self._lock:  # in one step, or the place of the first would go to the second
            tasks = [self._open[id(call)] for call in calls if id(call) in self._open]
            for task in tasks:
                for attempt in task.attempts:
                    attempt.answered = attempt.replaced = True
            ended = [task for task in tasks if self._close_task(task)]
            self._waiting = deque(each for each in self._waiting if not each.task.over)
        for task in ended:
            self._withdraw(task)
        self._start_next()

    def usage(self) -> Mapping[str, FunctionUsage]:
        """The usage of functions so far, by kind of task."""
        return self._usage.snapshot()

    @property
    def data_path(self) -> str | None:
        """The path tensors travel by; None until it is chosen."""
        return None if self._path is None else self._path.name

    def settle(self) -> None:
        """Wait shortly for invocations whose results have arrived: they end, and are billed, a little later."""
        self._invocations.wait_for_all(SETTLE_S)

    def close(self) -> None:
        """Stop: invocations under way are abandoned, ports and threads closed."""
        with self._lock:
            self._closed = True
            self._open.clear()
            self._waiting.clear()
        self._invoker.close()
        self._programs.close()
        self._calls.shutdown(wait=True, cancel_futures=True)
        if self._path is not None:
            self._path.close()
        self._replies.shutdown(wait=True, cancel_futures=True)

    def _choose_path(self) -> None:
        try:
            self._path, why = self._choice.make(self._run)
            self._note("data_path", path=self._path.name, why=why)
        except Exception as error:  # the thread would lose it: the calls fail with it
            self._no_path = error

    def _launch(self, task: OpenTask, attempt: TaskAttempt, program: ExportedProgram) -> None:
        """Start an attempt whose program is ready."""
        try:
            if not program.outputs or all(rows.shape[0] == 0 for rows in task.call.inputs):
                self._answer(task, dense.run(task.call))
                return
            jobs = self._jobs(task, attempt, program)
            with self._lock:
                self._waiting.extend(_RunningInvocation(task, attempt, job) for job in jobs)
            self._start_next()
        except Exception as error:
            self._fail(task, attempt, error)

    def _jobs(self, task: OpenTask, attempt: TaskAttempt, program: ExportedProgram) -> list[InvocationJob]:
        path = self._path
        if path is None:
            raise self._no_path or TrainingError("the pool has no data path: it was closed before it was opened.")
        with self._lock:
            if task.over or self._closed:
                return []
            if task.work is None:
                task.work = path.prepare(task, program)
            jobs = path.jobs(task, task.work)
            attempt.jobs = len(jobs)
        return jobs

    def _start_next(self) -> None:
        """Start waiting invocations up to the limit."""
        with self._lock:
            while self._waiting and not self._closed and self._num_counted() < self._at_once():
                invocation = self._waiting.popleft()
                if not invocation.task.over:
                    self._under_way.add(invocation)
                    self._calls.submit(self._carry_out, invocation)

    def _num_counted(self) -> int:
        settled_s = self._clock() - SETTLE_S
        return sum(
            not each.attempt.replaced and not (each.task.over and each.task.over_s < settled_s)
            for each in self._under_way
        )

    def _carry_out(self, invocation: "_RunningInvocation") -> None:
        try:
            self._invoke(invocation.task, invocation.attempt, invocation.job)
        finally:
            with self._lock:
                self._under_way.discard(invocation)
            self._start_next()

    def _invoke(self, task: OpenTask, attempt: TaskAttempt, job: InvocationJob) -> None:
        assert task.work is not None
        try:
            if not task.over:
                job()
        except Exception as error:
            self._fail(task, attempt, error)
            return
        with self._lock:
            attempt.jobs -= 1
            ended = attempt.jobs == 0
        if task.work.outcome.complete:
            if self._end(task):
                self._reply(task)
        elif ended:
            self._fail(task, attempt, Lost("a function ended before it had returned all of its task's outputs."))

    def _completed(self, task: OpenTask) -> None:
        """Complete a task whose last piece was pushed; its invocation may end much later, or never."""
        if self._end(task):
            self._replies.submit(self._reply, task)

    def _reply(self, task: OpenTask) -> None:
        assert task.work is not None
        try:
            reply = reply_of(task.call, task.work.outcome.arrays(), task.work.program.kept)
        except Exception as error:  # the thread would lose it
            fault = error
            self._answer_attempts(task, lambda attempt: attempt.failed(fault))
        else:
            self._answer_attempts(task, lambda attempt: attempt.done(reply))

    def _answer(self, task: OpenTask, reply: Reply) -> None:
        if self._end(task):
            self._answer_attempts(task, lambda attempt: attempt.done(reply))

    def _answer_attempts(self, task: OpenTask, answer: Callable[[TaskAttempt], Any]) -> None:
        """Answer the attempts that were not answered yet."""
        with self._lock:
            waiting = [] if self._closed else [attempt for attempt in task.attempts if not attempt.answered]
            for attempt in waiting:
                attempt.answered = True
        for attempt in waiting:
            _guarded(partial(answer, attempt))

    def _fail(self, task: OpenTask, attempt: TaskAttempt, error: BaseException) -> None:
        """An attempt has failed; with the last one the task is given up."""
        with self._lock:
            if attempt.answered or self._closed or task.over:
                return
            attempt.answered = True
            last = all(each.answered for each in task.attempts)
        if last:
            self._end(task)
        _guarded(partial(attempt.failed, error))

    def _end(self, task: OpenTask) -> bool:
        """Mark a task as over, and withdraw its inputs; False if it was over already."""
        with self._lock:
            ended = self._close_task(task)
        if ended:
            self._withdraw(task)
        return ended

    def _close_task(self, task: OpenTask) -> bool:
        """Under the lock: mark a task as over; False if it was over already."""
        if task.over or self._closed:
            return False
        task.over, task.over_s = True, self._clock()
        self._open.pop(id(task.call), None)
        return True

    def _withdraw(self, task: OpenTask) -> None:
        if self._path is not None:
            self._path.withdraw(task)


def _guarded(answer: Callable[[], Any]) -> None:
    """Run the caller's callback. Its error does not fail the call: this thread reports it and continues."""
    try:
        answer()
    except Exception:
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


def _check_can_travel(call: Call) -> None:
    if call.kept is not None and not isinstance(call.kept, Saved):
        raise TrainingError(
            f"{call.body.label} kept its autograd graph, which cannot travel to a function: train with "
            f"{given('rematerialize', True)}."
        )


def functions_pool(
    invoker: Invoker,
    config: FunctionsConfig | None = None,
    *,
    cache: ProgramCache | None = None,
    note: Note = lambda what, **details: None,
    invoked: Callable[[Invoked], None] = lambda invocation: None,
    at_once: Callable[[], float] = lambda: inf,
    begins: Callable[[], None] = lambda: None,
) -> FunctionsPool:
    """The pool; ``cache`` is where finished exports are kept, the user's cache folder unless given.

    ``at_once`` is how many invocations may be under way.
    """
    torch_pools = [spec.name for spec in POOLS.values() if spec.runs_torch]
    exports = Exports(ProgramCache() if cache is None else cache, torch_pools)
    rematerialize = (config or FunctionsConfig()).rematerialize

    def without_keep(call: Call) -> Call:
        return replace(call, keep=False) if rematerialize else call

    def export(call: Call) -> ExportedProgram:
        start_s = time.perf_counter()
        program = exports.program(without_keep(call))
        note("program", body=call.body.label, mode=call.mode.value, seconds=time.perf_counter() - start_s)
        return program

    programs = Programs(lambda call: signature(without_keep(call)), export)
    return FunctionsPool(invoker, programs, config, note, invoked, at_once=at_once, begins=begins)
