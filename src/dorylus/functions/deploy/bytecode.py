"""Sources compiled ahead: a function's folder cannot be written to, so every cold start would compile them again.

The function's own version of Python must do it: the one that runs us, or else one that is found on this machine.
"""

import io
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping

from dorylus.functions.deploy import compiling
from dorylus.functions.deploy.config import PYTHON_HERE, Platform

_DEADLINE_S = 120.0


def interpreter(platform: Platform) -> str | None:
    """A Python of this machine that is of the platform's version, if there is one."""
    if platform.python == PYTHON_HERE:
        return sys.executable
    found = shutil.which(f"python{platform.python}")
    if found is None or _run(found, "-c", "pass") is None:  # version managers put names there that lead nowhere
        return None
    return found


def compile_all(entries: Mapping[str, bytes], python: str) -> dict[str, bytes]:
    """The bytecode of all sources that this Python understands, by place; none if it cannot be run."""
    sources = io.BytesIO()
    with zipfile.ZipFile(sources, "w") as archive:
        for place, content in entries.items():
            if place.endswith(".py"):
                archive.writestr(place, content)
    made = _run(python, compiling.__file__, given=sources.getvalue())
    if made is None:
        return {}
    with zipfile.ZipFile(io.BytesIO(made)) as bytecode:
        return {place: bytecode.read(place) for place in bytecode.namelist()}


def _run(python: str, *words: str, given: bytes = b"") -> bytes | None:
    """What an interpreter says, kept apart from the surroundings (-I); None if it fails."""
    try:
        done = subprocess.run([python, "-I", *words], input=given, capture_output=True, timeout=_DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
