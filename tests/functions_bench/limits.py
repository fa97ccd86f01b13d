"""The limits of a real service: memory and a share of a processor for each function, by control groups."""

import hashlib
import os
import shlex
import zipfile
from contextlib import suppress
from copy import copy
from dataclasses import replace
from pathlib import Path

from dorylus.functions.deploy.package import Package

ROOT = Path("/sys/fs/cgroup")
PERIOD_US = 20_000
_REAL = "bootstrap.unlimited"


def group_of_this_process(controller: str) -> Path | None:
    """Where groups of a controller (version 1) can be made; None without the controller or the right to."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, place = line.split(":", 2)
        if controller in names.split(","):
            path = ROOT / controller / place.lstrip("/")
            return path if os.access(path, os.W_OK) else None
    return None


class FunctionLimits:
    """Groups for the functions of one zip: every process makes its own when it starts, with these limits."""

    def __init__(self, name: str, *, memory_mb: int, cores: float) -> None:
        memory, cpu = (group_of_this_process(controller) for controller in ("memory", "cpu"))
        assert memory is not None
        assert cpu is not None
        self._homes = {"memory": memory / name, "cpu": cpu / name}
        self._memory_bytes, self._quota_us = memory_mb << 20, int(PERIOD_US * cores)
        for home in self._homes.values():
            home.mkdir()

    def around(self, package: Package, path: Path) -> Package:
        """The zip, written to a path, with a bootstrap that limits itself and then does what it did before."""
        with zipfile.ZipFile(package.path) as old, zipfile.ZipFile(path, "w") as new:
            for entry in old.infolist():
                content = old.read(entry)
                if entry.filename == "bootstrap":
                    new.writestr(copy(entry), self._bootstrap())
                    entry.filename = _REAL
                new.writestr(entry, content)
        return replace(package, path=path, sha256=hashlib.sha256(path.read_bytes()).hexdigest())

    def counted(self, controller: str, file: str, name: str) -> int:
        """A counter of the kernel's, summed over all functions so far."""
        found = (each.read_text().split() for each in self._homes[controller].glob(f"*/{file}"))
        return sum(int(words[words.index(name) + 1]) for words in found)

    def close(self) -> None:
        """Remove the groups; their processes have ended."""
        for home in self._homes.values():
            for group in [*home.iterdir(), home]:
                if group.is_dir():
                    with suppress(OSError):
                        group.rmdir()

    def _bootstrap(self) -> str:
        memory, cpu = (shlex.quote(str(self._homes[name])) for name in ("memory", "cpu"))
        return (
            "#!/bin/sh\n"
            f"memory={memory}/$$ cpu={cpu}/$$\n"
            'mkdir "$memory" "$cpu" || exit 1\n'
            f'echo {self._memory_bytes} > "$memory/memory.limit_in_bytes" || exit 1\n'
            f'echo {PERIOD_US} > "$cpu/cpu.cfs_period_us" || exit 1\n'
            f'echo {self._quota_us} > "$cpu/cpu.cfs_quota_us" || exit 1\n'
            'echo $$ > "$memory/cgroup.procs" && echo $$ > "$cpu/cgroup.procs" || exit 1\n'
            f'exec /bin/sh "$(dirname "$0")/{_REAL}" "$@"\n'
        )
