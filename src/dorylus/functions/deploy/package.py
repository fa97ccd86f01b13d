"""The function's zip: the modules of dorylus that its entry point imports, directly or not, and its packages.

The same contents always give the same bytes (files in order, no times of day), so the hash of a zip shows whether
anything changed. A zip is built once and kept; a damaged one is built again. Sources are compiled in advance: a
function's folder is read-only, so every cold start would compile them again.
"""

import ast
import base64
import hashlib
import io
import os
import shlex
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dorylus.files import new_file
from dorylus.functions.deploy import compiling
from dorylus.functions.deploy.config import PYTHON_HERE, DeployError, Platform
from dorylus.functions.deploy.distributions import (
    can_be_copied,
    copied,
    download,
    found_in,
    known_hashes,
    needed_for,
    requirements,
    unpacked,
)

ENTRY: Final = "dorylus.functions.aws_lambda"
_OURS: Final = "dorylus"
_ROOT: Final = Path(__file__).parents[2]
HANDLER: Final = f"{ENTRY}.handler"
REPORTING: Final = "dorylus.functions.deploy.reporting"
MAX_UNPACKED_BYTES: Final = 200_000_000
MAX_ZIP_BYTES: Final = 50_000_000  # the most that Lambda takes in a request
_FORMAT: Final = 2  # raise it when packing changes, so that zips in the cache are built again
_MOST_KEPT: Final = 6  # zips
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
_SEPARATOR: Final = "-"
_COMPILE_S = 120.0


def modules_of(entry: str = ENTRY) -> dict[str, Path]:
    """The modules of dorylus that a module imports, directly or not: name and file."""
    found: dict[str, Path] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name in found or (path := _file_of(name)) is None:
            continue
        found[name] = path
        waiting += [name.rpartition(".")[0], *(each for each in imports_of(name) if each.split(".")[0] == _OURS)]
    return dict(sorted(found.items()))


def packages_of(entry: str = ENTRY) -> set[str]:
    """The top-level packages other than dorylus that these modules import, the standard library's included."""
    return {name.split(".")[0] for module in modules_of(entry) for name in imports_of(module)} - {_OURS}


def imports_of(module: str) -> list[str]:
    """All names that a module's source imports; one that may be a module or a member of one is listed as both."""
    path = _file_of(module)
    assert path is not None
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    names: list[str] = []
    for node in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = _origin(node, package)
            names += [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
            names += filter(None, (_lazy_home(origin, alias.name) for alias in node.names))
    return names


def _lazy_home(package: str, name: str) -> str | None:
    """The module that a package of ours loads a name from when it is first used, as its type checker's imports say."""
    path = _file_of(package)
    if path is None or path.name != "__init__.py":
        return None
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            return _origin(node, package)
    return None


def _origin(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    above = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*above, *filter(None, [node.module])])


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below a node, without those under ``if TYPE_CHECKING``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            for other in child.orelse:
                yield other
                yield from _statements(other)
        else:
            yield child
            yield from _statements(child)


def _file_of(name: str) -> Path | None:
    """The file of a module of dorylus; None if there is no such module."""
    below = name.split(".")
    if below[0] != _OURS:
        return None
    place = _ROOT.joinpath(*below[1:])
    return next((path for path in (place.with_suffix(".py"), place / "__init__.py") if path.is_file()), None)


@dataclass(frozen=True)
class Package:
    """A zip that is ready to be deployed."""

    path: Path
    sha256: str
    size_bytes: int
    unpacked_bytes: int

    @property
    def code_sha256(self) -> str:
        """The hash as Lambda reports it."""
        return base64.b64encode(bytes.fromhex(self.sha256)).decode()

    def read(self) -> bytes:
        """The zip."""
        return self.path.read_bytes()

    def __str__(self) -> str:
        size, unpacked = self.size_bytes / 1e6, self.unpacked_bytes / 1e6
        return f"zip of {size:.1f} MB ({unpacked:.1f} MB unpacked), sha256 {self.sha256[:16]}"


def default_folder() -> Path:
    """The user's cache folder: ``$XDG_CACHE_HOME/dorylus/functions``, or ``~/.cache/dorylus/functions``."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "dorylus" / "functions"


def build(platform: Platform, folder: Path | None = None) -> Package:
    """The zip for a platform, built if it is not kept in the folder. Another platform's packages are fetched by pip."""
    folder = default_folder() if folder is None else folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DeployError(
            f"the folder {folder} for the function's zip cannot be made ({error.strerror or error}): let "
            "XDG_CACHE_HOME name one that can be written to."
        ) from error
    entries = _entries(platform, folder)
    python = interpreter(platform)
    key = _key(platform, entries, with_bytecode=python is not None)
    package = _kept(folder, key) or _built(folder, key, entries | (compile_all(entries, python) if python else {}))
    if package.unpacked_bytes > MAX_UNPACKED_BYTES or package.size_bytes > MAX_ZIP_BYTES:
        raise DeployError(
            f"the function is a {package}, but may have {MAX_ZIP_BYTES / 1e6:.0f} MB, unpacked "
            f"{MAX_UNPACKED_BYTES / 1e6:.0f} MB: install smaller releases of numpy and onnxruntime."
        )
    return package


def needs_download(platform: Platform, folder: Path | None = None) -> list[str]:
    """The wheels that pip must fetch before a zip for the platform can be built; none if they are there."""
    names = needed_for(platform)
    if can_be_copied(names, platform):
        return []
    wheels = _wheels(folder or default_folder(), platform)
    needed = requirements(names)
    known = known_hashes(needed, wheels)
    return [each for each in needed if found_in(wheels, each, known) is None]


def _entries(platform: Platform, folder: Path) -> dict[str, bytes]:
    names = needed_for(platform)
    if can_be_copied(names, platform):
        entries = {place: content for name in names for place, content in copied(name)}
    else:
        wheels = download(requirements(names), platform, _wheels(folder, platform))
        entries = {place: content for wheel in wheels for place, content in unpacked(wheel)}
    entries |= _ours(ENTRY)
    if platform.managed:
        return entries
    return {**entries, **_ours(REPORTING), "bootstrap": bootstrap(sys.executable).encode()}


def _ours(entry: str) -> dict[str, bytes]:
    root = Path(__file__).parents[3]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in modules_of(entry).values()}


def bootstrap(python: str) -> str:
    """The script that starts a function where the service has no Python: this interpreter, without site packages."""
    return (
        "#!/bin/sh\n"
        'cd "$(dirname "$0")" || exit 1\n'
        'export PYTHONPATH="$PWD" PYTHONDONTWRITEBYTECODE=1\n'  # as on AWS, where the folder is read-only
        'export _HANDLER="${_HANDLER:-$1}"\n'
        f"exec {shlex.quote(python)} -S -m awslambdaric {REPORTING}.handler\n"
    )


def _key(platform: Platform, entries: Mapping[str, bytes], *, with_bytecode: bool) -> str:
    """The key of a zip in the cache: a hash of the platform and of all files before they are compiled."""
    whole = hashlib.sha256(f"format {_FORMAT} {platform} {platform.managed} {with_bytecode}".encode())
    for place, content in sorted(entries.items()):
        whole.update(f"\n{place} {hashlib.sha256(content).hexdigest()}".encode())
    return whole.hexdigest()[:32]


def _kept(folder: Path, key: str) -> Package | None:
    """The cached zip, if its content has the hash in its name."""
    for path in folder.glob(f"{key}{_SEPARATOR}*.zip"):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.stem == f"{key}{_SEPARATOR}{sha256}":
            return _package(path, sha256)
        path.unlink(missing_ok=True)
    return None


def _built(folder: Path, key: str, entries: Mapping[str, bytes]) -> Package:
    content = _zip(entries)
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / f"{key}{_SEPARATOR}{sha256}.zip"
    try:
        with new_file(path, sync=False) as file:  # the hash is in its name
            file.write(content)
    except OSError as error:
        raise DeployError(
            f"the function's zip cannot be written to {folder} ({error.strerror or error}): make room there, or let "
            "XDG_CACHE_HOME name another folder."
        ) from error
    with suppress(FileNotFoundError):  # another process may have dropped it
        for old in sorted(folder.glob("*.zip"), key=lambda each: each.stat().st_mtime)[:-_MOST_KEPT]:
            old.unlink()
    return _package(path, sha256)


def _package(path: Path, sha256: str) -> Package:
    with zipfile.ZipFile(path) as archive:
        unpacked_bytes = sum(info.file_size for info in archive.infolist())
    return Package(path, sha256, path.stat().st_size, unpacked_bytes)


def _zip(entries: Mapping[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for place, content in sorted(entries.items()):
            info = zipfile.ZipInfo(place, _EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.create_system = 3  # Unix, or else the permissions are ignored
            info.external_attr = (0o100755 if _is_run(place) else 0o100644) << 16
            archive.writestr(info, content)
    return whole.getvalue()


def _is_run(place: str) -> bool:
    return place == "bootstrap" or ".so" in Path(place).suffixes


def _wheels(folder: Path, platform: Platform) -> Path:
    return folder / "wheels" / f"{platform.python}-{platform.architecture}"


def interpreter(platform: Platform) -> str | None:
    """A Python on this machine of the platform's version, if there is one."""
    if platform.python == PYTHON_HERE:
        return sys.executable
    found = shutil.which(f"python{platform.python}")
    if found is None or _run(found, "-c", "pass") is None:  # version managers put launchers on the path that may fail
        return None
    return found


def compile_all(entries: Mapping[str, bytes], python: str) -> dict[str, bytes]:
    """The bytecode of all sources that this Python can compile, by path; empty if it cannot be run."""
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
    """The output of an interpreter in isolated mode (-I); None if it fails."""
    try:
        done = subprocess.run([python, "-I", *words], input=given, capture_output=True, timeout=_COMPILE_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
