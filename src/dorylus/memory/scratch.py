"""The folder in which a run under a memory limit has its files, and whether the disk has room for them."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from dorylus.errors import given
from dorylus.graph import Graph, disk_folder, file_system_in_memory, is_remote, not_on_disk
from dorylus.units import format_bytes


def scratch_folder(graph: Graph, scratch_dir: str | None, run_dir: str | None) -> str:
    """The folder of the settings, or else the one that contains the run's folder or the graph's store.

    Where that is memory and no disk (tmpfs, which /tmp often is), the next one that is on a disk, if there is any.
    """
    if scratch_dir is not None:
        return scratch_dir
    beside: list[str] = []
    if run_dir is not None:
        beside.append(str(Path(run_dir).resolve().parent))
    if graph.store is not None and not is_remote(graph.store):
        beside.append(str(Path(graph.store).parent))
    return disk_folder(*beside) or (beside or [tempfile.gettempdir()])[0]


@dataclass(frozen=True)
class Scratch:
    """The bytes that a run needs in a folder, and those free there; None where there is no such folder.

    ``in_memory``: the kind of its file system, where that is memory and no disk.
    """

    folder: str
    needed: int
    free: int | None
    in_memory: str | None = None

    @classmethod
    def of(cls, folder: str, needed: int, *, named: bool) -> "Scratch":
        """The state of the disk. A folder that the settings did not name may not exist yet: the run makes it."""
        place = Path(folder)
        while not named and not place.is_dir() and place != place.parent:
            place = place.parent
        if not place.is_dir():
            return cls(folder, needed, None)
        return cls(folder, needed, shutil.disk_usage(place).free, file_system_in_memory(place))

    @property
    def problem(self) -> str:
        """Why the folder cannot be used, and the cure; empty where it can."""
        if self.free is None:
            return f"{given('scratch_dir', self.folder)} is no folder: make it, or name another."
        if self.in_memory is not None and self.needed:
            return not_on_disk(self.folder, self.in_memory)
        if self.needed <= self.free:
            return ""
        return (
            f"the run needs {format_bytes(self.needed)} of scratch in {self.folder}, which has "
            f"{format_bytes(self.free)} free: make room there, or name another folder as {given('scratch_dir')}."
        )
