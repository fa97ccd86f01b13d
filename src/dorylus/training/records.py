"""What the trainer writes into the run log, as plain data.

The set-up of a run under a memory limit, in its run log: on a large graph it takes minutes.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from dorylus import process_memory
from dorylus.config import RunConfig
from dorylus.graph import Graph
from dorylus.memory import RunLimits
from dorylus.progress import StageProgress
from dorylus.runtime import EpochReport
from dorylus.saga import Program


def run_record(graph: Graph, program: Program, name: str, config: RunConfig) -> dict[str, Any]:
    """What a run is: its settings, graph and model."""
    return {
        "config": config.to_dict(),
        "graph": {
            "name": graph.name,
            "vertices": graph.num_vertices,
            "edges": graph.num_edges,
            "features": graph.num_features,
            "classes": graph.num_classes,
            "multilabel": graph.multilabel,
        },
        "model": {"name": name, "parameters": sum(p.numel() for p in program.parameters())},
    }


def epoch_record(report: EpochReport, epoch: int, usd: float) -> dict[str, Any]:
    """What an epoch, counted from 1, did, and what the run has cost by its end."""
    record = {
        "epoch": epoch,
        "loss": report.loss,
        "seconds": report.seconds,
        "memory_bytes": process_memory.resident_bytes(),
        "tasks": report.seconds_by_kind(),
        "busy": report.busy_seconds,
        "traffic": report.traffic,
        "ages": report.ages,
        "waits": report.waits,
        "usd": usd,
    }
    if report.moved is not None:
        record["files"] = {"read_bytes": report.moved.read, "written_bytes": report.moved.written}
    if report.servers:
        record["servers"] = [each._asdict() for each in report.servers]
    return record


def memory_record(limits: RunLimits) -> dict[str, Any]:
    """How a run keeps its memory limit, and what that is predicted to take."""
    figures = limits.figures
    return {
        "peak_bytes": limits.peak,
        "resident": dict(figures.resident),
        "on_disk": dict(figures.on_disk),
        "read_bytes": figures.read,
        "written_bytes": figures.written,
    }


SILENT_S = 2.0  # set-up that is over by then is not worth a word
EVERY_S = 1.0


class SetupProgress:
    """Hears how far set-up is, from any thread, and writes a record of it now and then."""

    def __init__(self, write: Callable[..., None], clock: Callable[[], float] = time.monotonic) -> None:
        self._write, self._clock = write, clock
        self._lock = threading.Lock()
        self._stage = ""
        self._began_s = self._stage_began_s = 0.0
        self._told_s: float | None = None

    def __call__(self, progress: StageProgress) -> None:
        """Write a record of the stage's progress, unless the last one is recent."""
        stage, done, total, _ = progress
        with self._lock:
            now = self._clock()
            if not self._stage:
                self._began_s = now
            if stage != self._stage:
                self._stage, self._stage_began_s = stage, now
            if now - self._began_s < SILENT_S or (self._told_s is not None and now - self._told_s < EVERY_S):
                return
            self._told_s = now
            spent_s = round(now - self._stage_began_s, 3)
            self._write("set_up", stage=stage, done_bytes=done, total_bytes=total, seconds=spent_s)

    def finished(self) -> None:
        """Set-up is over, if any was told of."""
        with self._lock:
            if self._told_s is not None:
                self._write("set_up", stage=None, seconds=round(self._clock() - self._began_s, 3))
            self._stage, self._told_s = "", None
