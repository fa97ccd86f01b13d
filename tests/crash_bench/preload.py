"""The library of faults: compiled once, loaded before libc, armed in the child process that it kills."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
COUNT, KILL, FAIL, TEAR = range(4)

Call = tuple[str, str, str]  # what was called, on which path, and the other path of a rename


def compiler() -> str | None:
    """A C compiler, if there is one."""
    return shutil.which("cc") or shutil.which("gcc")


def compiled(folder: Path) -> Path:
    """The shared object, made in a folder."""
    library, found = folder / "faults.so", compiler()
    assert found is not None
    subprocess.run([found, "-O1", "-shared", "-fPIC", "-o", library, SOURCE], check=True, timeout=60)
    return library


class Faults:
    """The library that this process was started with (LD_PRELOAD)."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(os.environ["LD_PRELOAD"])

    def arm(self, folder: Path, at: int, action: int, trace: Path, error: int = 0, *, exchange: bool = True) -> None:
        """From now on count the calls that change a folder, and act at the call with this number."""
        words = os.fsencode(folder), ctypes.c_long(at), action, error, int(not exchange), os.fsencode(trace)
        self._library.faults_arm(*words)


def calls(trace: Path) -> list[Call]:
    """The recorded calls."""
    lines = trace.read_text(errors="surrogateescape").split("\n")[:-1]
    return [
        (what, path.removesuffix(" (deleted)"), other) for what, path, other in (line.split("\t") for line in lines)
    ]
