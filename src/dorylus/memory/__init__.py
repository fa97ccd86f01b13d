"""The memory of a run: the model that predicts it, the limit that bounds it, and the folder of files under a limit."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.memory.limit import (
        EDGES_PER_EDGE_TASK,
        MemoryBounds,
        MemoryPlan,
        RunLimits,
        RunRequest,
        SpillSettings,
        limits,
        memory_plan,
    )
    from dorylus.memory.room import check_room
    from dorylus.memory.scratch import Scratch
    from dorylus.memory.settings import MemorySettings

__all__ = [
    "EDGES_PER_EDGE_TASK",
    "MemoryBounds",
    "MemoryPlan",
    "MemorySettings",
    "RunLimits",
    "RunRequest",
    "Scratch",
    "SpillSettings",
    "check_room",
    "limits",
    "memory_plan",
]

__getattr__ = lazy_names(
    __name__,
    {
        "limit": "EDGES_PER_EDGE_TASK MemoryBounds MemoryPlan RunLimits RunRequest SpillSettings limits memory_plan",
        "room": "check_room",
        "scratch": "Scratch",
        "settings": "MemorySettings",
    },
)
