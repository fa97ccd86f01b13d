"""Functions without a cloud: the same handler in processes of this machine. No fork, no pickle.

A process is started when all others are busy, up to the number set. A process that ends is replaced; its task is lost,
as with a function.
"""

import os
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress

from dorylus.errors import ConfigError
from dorylus.functions import receive, send
from dorylus.pools.pool import InvocationResponse, Lost, Throttled, Unavailable

START_S = 60.0  # how long a process may take to be ready
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Worker:
    """One process, and the socket for its requests and answers."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "dorylus.functions.worker"],
                stdin=theirs.fileno(),
                env={**os.environ, **ONE_THREAD},
                process_group=0,  # Ctrl-C is handled by the process of the run, which finishes tasks in progress
            )

    def wait_until_ready(self) -> None:
        """Wait for its first message; :class:`Unavailable` if it ends by itself instead."""
        try:
            receive(self._link, time.monotonic() + START_S)
        except (OSError, EOFError) as error:
            code = self._ended() if isinstance(error, EOFError) else self.stop()
            if code < 0:  # it was killed: its task may be tried again
                raise Lost(f"process {self.process.pid} died before it was ready, by signal {-code}.") from error
            raise Unavailable(
                f"a process for dense tasks did not start (exit code {code}): its own message is above. "
                'Check that pip install "dorylus[functions]" has been done for this Python.'
            ) from error

    def ask(self, request: bytes, deadline_s: float) -> bytearray:
        """The answer to a request; raises OSError or EOFError if the process ends or takes longer."""
        send(self._link, [request], deadline_s)
        return receive(self._link, deadline_s)

    def _ended(self) -> int:
        """The exit code of a process that has closed its connection: it is about to end."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(START_S)
        return self.stop()

    def stop(self) -> int:
        """End it now; its exit code."""
        self.process.kill()
        self._link.close()
        return self.process.wait()


class ProcessesInvoker:
    """Invokes the handler in at most ``num_workers`` processes; further invocations wait."""

    payload_limit_bytes: int | None = None

    def __init__(self, num_workers: int | None = None) -> None:
        self._num_workers = os.cpu_count() or 1 if num_workers is None else num_workers
        if self._num_workers < 1:
            raise ConfigError(f"num_workers={num_workers}: at least one process runs tasks, so use 1 or more.")
        self._changed = threading.Condition()
        self._idle: deque[Worker] = deque()
        self._workers: set[Worker] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """The ids of its processes."""
        with self._changed:
            return sorted(worker.process.pid for worker in self._workers)

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        """Send a request to an idle process; a process that does not answer in time is killed."""
        deadline_s = time.monotonic() + timeout_s
        worker, is_new = self._take(deadline_s)
        try:
            if is_new:
                worker.wait_until_ready()
            content = worker.ask(request, deadline_s)
        except BaseException as error:
            code = self._replace(worker)
            if isinstance(error, TimeoutError):
                raise Lost(f"process {worker.process.pid} was killed: no answer within {timeout_s:g} s.") from error
            if isinstance(error, OSError | EOFError):
                raise Lost(f"process {worker.process.pid} died on its task with exit code {code}.") from error
            raise
        self._give_back(worker)
        return InvocationResponse(content)

    def close(self) -> None:
        """End all processes."""
        with self._changed:
            self._closed = True
            idle, workers = list(self._idle), list(self._workers)
            self._idle.clear()
            self._changed.notify_all()
        for worker in workers:
            worker.process.kill()
        for worker in idle:  # the threads that wait for the others' answers stop them
            self._replace(worker)

    def _take(self, deadline_s: float) -> tuple[Worker, bool]:
        """An idle process, or a new one (True)."""
        with self._changed:
            while not self._idle and len(self._workers) >= self._num_workers and not self._closed:
                if not self._changed.wait(max(0.0, deadline_s - time.monotonic())) and not self._idle:
                    raise Throttled(None, f"all {self._num_workers} processes were busy until the time was up.")
            if self._closed:
                raise Lost("the processes for dense tasks were stopped.")
            if self._idle:
                return self._idle.pop(), False  # the one used last: its caches are the warmest
            worker = Worker()
            self._workers.add(worker)
            return worker, True

    def _give_back(self, worker: Worker) -> None:
        with self._changed:
            if not self._closed:
                self._idle.append(worker)
                self._changed.notify()
                return
        self._replace(worker)  # close() did not stop it, because it was busy

    def _replace(self, worker: Worker) -> int:
        """End a process and make room for another; its exit code."""
        code = worker.stop()
        with self._changed:
            self._workers.discard(worker)
            self._changed.notify()
        return code
