"""Wheels and a source distribution of this tree: ``python tools/wheels.py FOLDER``, as ``make wheel`` does.

Two wheels serve every Python: one for 3.11, and one of the stable ABI (abi3) for 3.12 and all later ones. Each is built
by an interpreter of its kind, with the build tools of the environment that runs this program, which are plain Python.
Where none is found, the wheel is left out and the last lines say so. auditwheel checks each wheel and tags it
manylinux.
"""

import argparse
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD_S = 1200.0
BUILD = "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1])"
VERSION = "import sys; print(*sys.version_info[:2])"
KINDS = {"cp311": "Python 3.11", "cp312-abi3": "Python 3.12 and later"}


def main() -> int:
    """Writes the files into the folder that the command line names; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--this", action="store_true", help="only the wheel for the Python that runs this")
    options = parser.parse_args()
    folder = options.folder.absolute()
    if options.this:
        print(build(sys.executable, folder))
        return 0
    found = interpreters()
    for kind, python in found.items():
        build(python, folder)
        print(f"built the wheel for {KINDS[kind]} with {python}", flush=True)
    run(
        sys.executable, "-c", "import sys; from scikit_build_core.build import build_sdist as b; b(sys.argv[1])", folder
    )
    for file in sorted(folder.iterdir()):
        print(f"{file.stat().st_size:>10,}  {file.name}")
    for kind in sorted(KINDS.keys() - found.keys()):
        print(f"NOT BUILT: the wheel for {KINDS[kind]}, because no such interpreter is on PATH or in pyenv")
    return 0


def interpreters() -> dict[str, Path | str]:
    """An interpreter for each kind of wheel: this one first, then those on PATH and in pyenv."""
    names = [f"python3.{minor}" for minor in (11, 12, 13, 14)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found: dict[str, Path | str] = {}
    for python in (sys.executable, *names, *sorted(pyenv.glob("3.*/bin/python3"))):
        kind = kind_of(python)
        if kind is not None:
            found.setdefault(kind, python)
    return dict(sorted(found.items()))


def kind_of(python: Path | str) -> str | None:
    """Which wheel an interpreter builds; None for one that is too old, or does not start."""
    try:
        done = subprocess.run([python, "-c", VERSION], capture_output=True, text=True, timeout=60)
    except OSError:
        return None
    if done.returncode:
        return None
    version = tuple(map(int, done.stdout.split()))  # empty if it is no Python
    return "cp312-abi3" if version >= (3, 12) else "cp311" if version == (3, 11) else None


def build(python: Path | str, folder: Path) -> Path:
    """Builds the wheel of an interpreter; returns the file, as auditwheel has tagged it."""
    with tempfile.TemporaryDirectory() as plain:
        run(python, "-c", BUILD, plain)
        (wheel,) = Path(plain).glob("*.whl")
        run(sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", folder, wheel)
    tagged = max(folder.glob("*.whl"), key=lambda each: each.stat().st_mtime_ns)
    modules = [name for name in zipfile.ZipFile(tagged).namelist() if name.endswith(".so")]
    if "-abi3-" in tagged.name and not all(name.endswith(".abi3.so") for name in modules):
        raise SystemExit(f"{tagged.name} holds {', '.join(modules)}, which only one version of Python loads")
    return tagged


def run(*command: object) -> None:
    """Runs a command in the root of the tree with the build tools at hand; shows what it printed if it fails."""
    tools = [sysconfig.get_path("scripts"), str(Path(sysconfig.get_path("scripts")).resolve())]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path.endswith("site-packages")),
        "PATH": os.pathsep.join([*tools, os.environ.get("PATH", os.defpath)]),
    }
    done = subprocess.run(
        list(map(str, command)), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=BUILD_S
    )
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise SystemExit(f"{' '.join(map(str, command[:3]))} ended with exit code {done.returncode}")


if __name__ == "__main__":
    sys.exit(main())
