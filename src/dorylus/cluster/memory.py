"""The process's peak memory, as the kernel counts it."""

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
