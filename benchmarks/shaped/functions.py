"""Functions of the benchmarks: processes with the real handler, in the place that a command line selects.

Only the way there is ours: a process gets its invocations over a socket pair (the Invoke API, with the delay a network
would add), and dials the data ports through its own bandwidth and the relay.
"""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from dorylus.pools.pool import InvocationResponse, Lost, Throttled
from dorylus.pools.processes import ONE_THREAD, Worker


class FunctionWorker(Worker):
    """A process with the handler; ``where`` are the words before the command that put it there."""

    def __init__(self, where: Sequence[str]) -> None:
        self._link, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [*where, sys.executable, "-m", "dorylus.functions.worker"],
                stdin=theirs.fileno(),
                env={**os.environ, **ONE_THREAD},
                process_group=0,
            )


class FunctionsInvoker:
    """Invokes functions; each is started once, before anything is measured, and serves all pools."""

    payload_limit_bytes = None

    def __init__(self, where: Sequence[Sequence[str]], delay_s: float) -> None:
        self._delay_s = delay_s
        self._idle: queue.LifoQueue[Worker] = queue.LifoQueue()
        self._workers = [FunctionWorker(words) for words in where]
        for worker in reversed(self._workers):
            worker.wait_until_ready()
            self._idle.put(worker)

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._workers]

    def invoke(self, request: bytes, timeout_s: float) -> InvocationResponse:
        deadline_s = time.monotonic() + timeout_s
        time.sleep(self._delay_s)
        try:
            worker = self._idle.get(timeout=timeout_s)
        except queue.Empty:
            raise Throttled(None, "all functions were busy until the time was up.") from None
        try:
            content = worker.ask(request, deadline_s)
        except (OSError, EOFError) as error:  # not replaced: a function that dies invalidates the measurement
            worker.stop()
            raise Lost(f"function {worker.process.pid} died or did not answer within {timeout_s:g} s.") from error
        self._idle.put(worker)
        time.sleep(self._delay_s)
        return InvocationResponse(content)

    def close(self) -> None:
        """Stays open: several pools use the same functions. :meth:`stop` ends them."""

    def stop(self) -> None:
        for worker in self._workers:
            worker.stop()


class RelayProcess:
    """The relay, running until it is stopped."""

    def __init__(self, where: Sequence[str], host: str, delay_ms: float, ports: Sequence[int]) -> None:
        words = [*where, sys.executable, "-m", "benchmarks.shaped.relay", host, f"{delay_ms:g}", *map(str, ports)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)
        assert self.process.stdout is not None
        if self.process.stdout.readline() != b"ready\n":
            raise SystemExit(f"The relay did not start: exit code {self.process.wait()}.")

    def stop(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)
