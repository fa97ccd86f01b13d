"""The process's memory as the kernel counts it: now, at its peak, and how much more the machine and its groups allow.

Control groups limit memory, too: those of version 1 and of version 2 are read, up to the root.
"""

import ctypes
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple


class _GroupVersion(NamedTuple):
    """Where a version of control groups lies, and the names of its files and of what the kernel can take back."""

    folder: str
    limit: str
    usage: str
    reclaimable: tuple[str, ...]


FIRST = _GroupVersion(
    "sys/fs/cgroup/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_active_file", "total_inactive_file"),
)
SECOND = _GroupVersion(
    "sys/fs/cgroup", "memory.max", "memory.current", ("active_file", "inactive_file", "slab_reclaimable")
)


def room_in_groups(held: int, root: Path = Path("/")) -> list[int]:
    """What each group with a limit lets this process have: what it has ``held`` so far, and what is left."""
    rooms = (_room(folder, version, held) for folder, version in _groups(root))
    return [room for room in rooms if room is not None]


def _groups(root: Path) -> Iterator[tuple[Path, _GroupVersion]]:
    """The process's own groups and all above them. Where a container sees no more, its own is the topmost."""
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if "memory" in controllers.split(","):
                yield from ((folder, FIRST) for folder in _upwards(root, FIRST, path))
            elif not controllers:
                yield from ((folder, SECOND) for folder in _upwards(root, SECOND, path))


def _upwards(root: Path, version: _GroupVersion, path: str) -> Iterator[Path]:
    # A group outside the part that the process sees is named with "..": what it sees begins at the topmost.
    inside = PurePosixPath(path.lstrip("/"))
    own = PurePosixPath() if ".." in inside.parts else inside
    for group in (own, *own.parents):
        folder = root / version.folder / group
        if group == own or _text(folder / "memory.use_hierarchy") != "0":  # else it does not count those below it
            yield folder


def _room(folder: Path, version: _GroupVersion, held: int) -> int | None:
    """What there is for the process under one group; None where that has no limit, or is not to be seen."""
    try:
        limit = int(_text(folder / version.limit))
    except ValueError:  # no such file, or its content is "max"
        return None
    try:
        kept = int(_text(folder / version.usage)) - _reclaimable(folder, version)
    except ValueError:
        return limit
    return min(limit, max(0, limit - kept + held))


def _reclaimable(folder: Path, version: _GroupVersion) -> int:
    """The page cache and other memory that the kernel reclaims when a process needs it."""
    pairs = (line.split() for line in _text(folder / "memory.stat").splitlines())
    return sum(int(pair[1]) for pair in pairs if len(pair) == 2 and pair[0] in version.reclaimable)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak() -> None:
    """Reset the peak, where the system can; on others the peak stays that of the whole process."""
    with suppress(OSError):
        _CLEAR.write_text("5")


def peak_bytes() -> int:
    """The largest resident size since the last reset."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident_bytes() -> int:
    """The resident size now, or the peak where the system does not report it."""
    return resident_and_mapped_bytes()[0]


def resident_and_mapped_bytes() -> tuple[int, int]:
    """The resident size now, and how much of it is files and code, which the kernel may drop, and shared memory."""
    try:
        _, resident, mapped, *_ = Path("/proc/self/statm").read_text().split()
        return int(resident) * resource.getpagesize(), int(mapped) * resource.getpagesize()
    except OSError:
        return peak_bytes(), 0


def private_bytes() -> int:
    """What is resident now and belongs to this process alone; code and files, which the kernel may drop, are not."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return resident_bytes()


def give_back() -> None:
    """Return freed memory that the C library keeps to the system; does nothing with other C libraries."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def free_bytes(root: Path = Path("/")) -> int | None:
    """What this process has and may still take: of the machine, and of every control group it is in.

    None where the system does not report it. ``root``: the folder that /proc and /sys are in.
    """
    held = private_bytes()
    found = room_in_groups(held, root)
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024 + held)
    return min(found, default=None)


def available_bytes(root: Path = Path("/")) -> int:
    """The same; where the system does not report it, all the memory of the machine."""
    found = free_bytes(root)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if found is None else found
