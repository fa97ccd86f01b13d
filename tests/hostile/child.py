"""The process that reads hostile cases: it checks their errors, their time and their memory, and reports them.

    python -m hostile.child SEED FOLDER KIND:FIRST:LAST ...

FOLDER/reports gets a line of JSON for each case that broke a rule, and one with the counts of each kind. FOLDER/at has
the kind and the number of the current case, so that the parent process knows them if this one dies or hangs.
"""

import gc
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from dorylus.errors import DorylusError

CASE_S = 5.0
SLACK_BYTES = 16 << 20  # of what an allocator keeps and a library loads when it is first used
SPACE_BYTES = 768 << 20  # addresses, not memory: libraries reserve more than they use
FILE_BYTES = 32 << 20  # of one file: few edges may name a vertex of a high number, and so a store of many
MOST_CHARACTERS = 20_000  # of an error

AT = struct.Struct("<QQ")  # the number of the kind, from 1 on, and the case


class TooLong(BaseException):
    """A case was not over in time."""


def _too_long(number: int, frame: FrameType | None) -> None:
    raise TooLong


class Peak:
    """How much memory something takes at most: the process's own high-water mark, set back before."""

    def __init__(self) -> None:
        self._mark = os.open("/proc/self/clear_refs", os.O_WRONLY)
        self._status = os.open("/proc/self/status", os.O_RDONLY)
        self._before = 0

    def start(self) -> None:
        os.pwrite(self._mark, b"5", 0)
        self._before = self._highest()

    def bytes(self) -> int:
        return self._highest() - self._before

    def _highest(self) -> int:
        # Not ru_maxrss: what the parent had when it made this process is part of that.
        status = os.pread(self._status, 4096, 0)
        at = status.index(b"VmHWM:") + 6
        return 1024 * int(status[at : status.index(b"kB", at)])


class Child:
    """Runs the cases of one kind after the other."""

    def __init__(self, seed: str, folder: Path) -> None:
        self._seed, self._folder, self._peak = seed, folder, Peak()
        with open(folder / "at", "w+b") as file:
            file.write(bytes(AT.size))
            file.flush()
            self._at = mmap.mmap(file.fileno(), AT.size)
        signal.signal(signal.SIGALRM, _too_long)
        resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_BYTES, FILE_BYTES))

    def run(self, place: int, name: str, first: int, last: int) -> None:
        from hostile.kinds import BREAKERS, KINDS

        AT.pack_into(self._at, 0, place, first)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        kind, begun = (KINDS | BREAKERS)[name](self._folder), time.monotonic()
        legitimate = self._legitimate(kind)
        allowed, worst = 2 * legitimate + SLACK_BYTES, 0
        addressed = 4096 * int(Path("/proc/self/statm").read_text().split()[0])
        addressed += allowed + SPACE_BYTES + getattr(kind, "space_bytes", 0)
        resource.setrlimit(resource.RLIMIT_AS, (addressed, resource.RLIM_INFINITY))
        counts: Counter[str] = Counter()
        for number in range(first, last):
            AT.pack_into(self._at, 0, place, number)
            if number % 1000 == 0:
                gc.collect()
            hostile = kind.hostile(random.Random(f"{name} {self._seed} {number}"))
            outcome, took = self._outcome(kind, hostile)
            worst = max(worst, took)
            if took > allowed and not outcome.startswith("broken"):
                outcome = f"broken: {took >> 20} MiB, where {allowed >> 20} are allowed"
            if outcome.startswith("broken"):
                self._report({"kind": name, "case": number, "why": outcome})
                outcome = "broken"
            counts[outcome] += 1
        seconds = time.monotonic() - begun
        totals = {"counts": counts, "seconds": seconds, "legitimate": legitimate, "worst": worst}
        self._report({"kind": name, **totals})

    def _legitimate(self, kind: Any) -> int:
        """The memory of the largest sample, once libraries are loaded."""
        most = 0
        for _ in range(3):
            most = 0
            for sample in kind.samples():
                self._peak.start()
                kind.take(sample)
                most = max(most, self._peak.bytes())
        return most

    def _outcome(self, kind: Any, hostile: Any) -> tuple[str, int]:
        signal.setitimer(signal.ITIMER_REAL, CASE_S)
        self._peak.start()
        try:
            kind.take(hostile)
            outcome = "value"
        except DorylusError as error:
            size = len(str(error).strip())
            outcome = "refused" if 0 < size <= MOST_CHARACTERS else f"broken: an error of {size} characters"
        except TooLong:
            outcome = "broken: too long"
        except Exception as error:
            outcome = f"broken: {type(error).__name__}: {str(error)[:200]}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return outcome, self._peak.bytes()

    def _report(self, record: dict[str, Any]) -> None:
        with open(self._folder / "reports", "a") as file:  # not printed: libraries print, too
            file.write(json.dumps(record) + "\n")


def main(seed: str, folder: str, *kinds: str) -> int:
    child = Child(seed, Path(folder))
    for place, each in enumerate(kinds, 1):
        name, first, last = each.split(":")
        child.run(place, name, int(first), int(last))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
