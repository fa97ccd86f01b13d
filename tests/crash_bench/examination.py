"""Examines writers: a process that is started with the library of faults and reads their names from standard input.

    {"writer": "checkpoint", "action": "kill", "exchange": true, "most": 40}

is answered by {"calls": 18, "tried": 18, "problems": []}, or {"error": ...}. Each call is tried in a forked child, so
that the slow imports happen once. ``most``: at most that many calls are tried, spread over all.
"""

import errno
import json
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crash_bench.power_cut import Unsynced
from crash_bench.preload import COUNT, FAIL, KILL, TEAR, Faults, calls
from crash_bench.writers import WRITERS, Writer
from dorylus.errors import DorylusError

ACTIONS = {"kill": KILL, "tear": TEAR, "power cut": KILL, "full disk": FAIL, "bad disk": FAIL}
ERRORS = {"full disk": errno.ENOSPC, "bad disk": errno.EIO}
FAST = "/dev/shm" if os.path.isdir("/dev/shm") else None  # memory: a test forces to disk thousands of times
DONE, REFUSED, FAILED = 0, 3, 4


class Examination:
    """One writer, one kind of fault, at every call."""

    def __init__(self, root: Path, faults: Faults, writer: Writer, action: str, *, exchange: bool) -> None:
        self._root, self._faults, self._writer, self._action, self._exchange = root, faults, writer, action, exchange
        self._trace = root / "trace"
        self.problems: list[str] = []
        writer.prepare(_made(root / "before"))
        with self._copy() as place:
            status = self._in_child(lambda: writer.write(place), place, 0, COUNT)
            assert status == DONE, "the writer fails without any fault"
            self.num_calls = len(calls(self._trace))
            assert writer.found(place) == "new"
            self._names = _names(place)

    def all(self, most: int | None) -> int:
        """Try the calls; returns their number."""
        step = 1 if most is None else max(1, -(-self.num_calls // most))
        tried = range(1, self.num_calls + 1, step)
        for at in tried:
            try:
                self.one(at)
            except Exception as error:
                self.problems.append(f"{self._where(at)}: {type(error).__name__}: {error}")
        return len(tried)

    def one(self, at: int) -> None:
        """Inject the fault at one call, check the state, and write once more."""
        with self._copy() as place:
            status = self._in_child(
                lambda: self._writer.write(place), place, at, ACTIONS[self._action], ERRORS.get(self._action, 0)
            )
            if ACTIONS[self._action] == FAIL:
                assert status in (DONE, REFUSED), f"the error was not one sentence (status {status})"
            else:
                assert status == -signal.SIGKILL, f"the writer was not killed (status {status})"
            if self._action == "power cut":
                self._cut_power()
            found = self._writer.found(place)
            assert found in ("old", "new"), f"found {found}"
            self._writer.write(place)
            assert self._writer.found(place) == "new", "the next writer did not put it right"
            left = sorted(_names(place) - self._names)
            assert not left, f"the next writer left {left}"

    def _cut_power(self) -> None:
        unsynced = Unsynced()
        for call in calls(self._trace):
            unsynced.follow(call)
        unsynced.take_away()

    def _in_child(self, work: Callable[[], None], place: Path, at: int, action: int, error: int = 0) -> int:
        pid = os.fork()
        if pid == 0:
            status = FAILED
            try:
                self._faults.arm(place, at, action, self._trace, error, exchange=self._exchange)
                work()
                status = DONE
            except DorylusError:
                status = REFUSED
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    @contextmanager
    def _copy(self) -> Iterator[Path]:
        place = self._root / "place"
        shutil.copytree(self._root / "before", place, symlinks=True)
        try:
            yield place
        finally:
            shutil.rmtree(place)

    def _where(self, at: int) -> str:
        made = calls(self._trace)
        last = " ".join(made[at - 2]) if 2 <= at <= len(made) + 1 else "nothing"
        return f"{self._action} at call {at} of {self.num_calls}, after {last}"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _names(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def examine(request: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """The answer to one request."""
    with tempfile.TemporaryDirectory(dir=request.get("folder", FAST)) as root:
        exchange = request.get("exchange", True)
        done = Examination(Path(root), faults, WRITERS[request["writer"]](), request["action"], exchange=exchange)
        return {"calls": done.num_calls, "tried": done.all(request.get("most")), "problems": done.problems}


def main() -> None:
    """Answer requests, a line each, until there are no more."""
    faults = Faults()
    for line in sys.stdin:
        try:
            answer = examine(json.loads(line), faults)
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
