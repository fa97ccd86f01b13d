"""Whether the machine was quiet while something was measured.

Taking turns is not enough. A process that takes a core makes the spinning barriers of OpenMP, which the peers wait in,
many times slower (PyG's Cora epoch: 5 ms alone, 30-60 ms next to one busy process), while an engine without such
barriers hardly notices. A busy machine therefore flatters us: turns in which others used it are measured again.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

QUIET_CORES = 0.1  # what other processes may use, on average, in a turn that counts
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass
class Watch:
    """Measures, around a block, how many cores all processes but one used."""

    pid: int
    foreign_cores: float = 0.0

    def __enter__(self) -> Self:
        self._start = (time.perf_counter(), machine_s(), process_s(self.pid))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None):
        if error is None:
            wall, machine, own = self._start
            foreign = machine_s() - machine - (process_s(self.pid) - own)
            self.foreign_cores = max(0.0, foreign / (time.perf_counter() - wall))

    @property
    def quiet(self) -> bool:
        return self.foreign_cores <= QUIET_CORES


def machine_s() -> float:
    """Processor seconds that the machine has spent on anything, stolen time included, but idling and waiting."""
    fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS_PER_S


def process_s(pid: int) -> float:
    """Processor seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_S
