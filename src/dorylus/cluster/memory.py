"""The process's memory as the kernel counts it: now, at its peak, and how much more there may be."""

import ctypes
import os
import resource
from contextlib import suppress
from pathlib import Path

from dorylus.cluster.control_groups import room_in_groups

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def reset_peak() -> None:
    """Start a new peak here, where the system can; elsewhere the peak is that of the whole process."""
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
    """The resident size now, or the peak where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_bytes()


def private_bytes() -> int:
    """What is resident now and belongs to this process alone; code and files, which the kernel may drop, are not."""
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return resident_bytes()


def give_back() -> None:
    """Return memory that the C library keeps for the next to ask for some, where it can; elsewhere nothing happens."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def free_bytes(root: Path = Path("/")) -> int | None:
    """What this process has and may still take: of the machine, and of every control group it is in.

    None where the system does not tell. ``root``: the folder that /proc and /sys are in.
    """
    held = private_bytes()
    found = room_in_groups(held, root)
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found.append(int(line.split()[1]) * 1024 + held)
    return min(found, default=None)


def available_bytes(root: Path = Path("/")) -> int:
    """The same; where the system does not tell, all the memory of the machine."""
    found = free_bytes(root)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if found is None else found
