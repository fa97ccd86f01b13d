"""The machine's cores: one half for the trainer, one for its functions; and their use during a turn."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.quiet import QUIET_CORES, machine_s, process_s


def split_cores() -> set[int]:
    """Keep this process to half of its cores, and give the others, which are for the functions.

    Real functions run on other machines, so they must not use the graph server's cores here.
    """
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("Functions need a core that is not the graph server's: use a machine with two or more.")
    own = set(cores[: len(cores) // 2])
    os.sched_setaffinity(0, own)
    return set(cores) - own


class Cores:
    """Processor seconds since it was made, of this process, of its functions, and of other processes."""

    def __init__(self, pids: Iterable[int]) -> None:
        self._pids = list(pids)
        self._start = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        ours = sum(process_s(pid) for pid in self._pids if Path(f"/proc/{pid}").exists())
        return time.perf_counter(), process_s(os.getpid()), ours, machine_s()

    def used(self) -> dict[str, float]:
        """Processor seconds of the trainer and of its functions (relay included), and cores of other processes."""
        wall_s, trainer_s, ours_s, machine = (now - then for now, then in zip(self._now(), self._start, strict=True))
        foreign = max(0.0, machine - trainer_s - ours_s) / wall_s
        return {"trainer_s": trainer_s, "functions_s": ours_s, "foreign_cores": foreign}


def quiet(foreign_cores: float) -> bool:
    return foreign_cores <= QUIET_CORES
