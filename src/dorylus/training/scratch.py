"""The folder in which a run under a memory limit has its files, and whether the disk has room for them."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dorylus.graph import Graph
from dorylus.graph.places import is_elsewhere
from dorylus.graph.sizes import format_bytes
from dorylus.training.config import RunConfig


def scratch_folder(graph: Graph, config: RunConfig) -> str:
    """The folder asked for, or else the one that the run's folder, or the graph's store, is in."""
    if config.scratch_dir is not None:
        return config.scratch_dir
    if config.run_dir is not None:
        return str(Path(config.run_dir).resolve().parent)
    if graph.store is not None and not is_elsewhere(graph.store):
        return str(Path(graph.store).parent)
    return tempfile.gettempdir()


@dataclass(frozen=True)
class Scratch:
    """Bytes that a run needs in a folder, and those that are free there; None where there is no such folder."""

    folder: str
    needed: int
    free: int | None

    @classmethod
    def of(cls, folder: str, needed: int, *, asked: bool) -> "Scratch":
        """Looks at the disk. A folder that was not ``asked`` for by name is made with the run's, if need be."""
        place = Path(folder)
        while not asked and not place.is_dir() and place != place.parent:
            place = place.parent
        return cls(folder, needed, shutil.disk_usage(place).free if place.is_dir() else None)

    @property
    def problem(self) -> str:
        """Why it will not do, and the cure; nothing where it will."""
        if self.free is None:
            return f"scratch_dir={self.folder!r} is no folder: make it, or name another."
        if self.needed <= self.free:
            return ""
        return (
            f"the run needs {format_bytes(self.needed)} of scratch in {self.folder}, which has "
            f"{format_bytes(self.free)} free: make room there, or name another folder as scratch_dir."
        )
