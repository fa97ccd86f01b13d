"""The process's peak memory, as the kernel counts it."""

import os
import resource
from contextlib import suppress
from pathlib import Path

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


def available_bytes() -> int:
    """What this process has and may still take: the machine's free memory, or the limit of its control group."""
    free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024 + private_bytes()
    return min([free, *_group_limits()])


def _group_limits() -> list[int]:
    found = []
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # there is no such group, or it says "max"
            found.append(int(Path(file).read_text()))
    return found
