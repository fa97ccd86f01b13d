"""The packages a function needs besides ours, as they are installed here or lie in wheels; pruned to what it runs."""

import re
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from dorylus.errors import ConfigError
from dorylus.functions.deploy.platforms import ARCHITECTURES, GLIBC, Platform

NEEDED: Final = ("numpy", "onnxruntime", "pyzmq")
RUNTIME_CLIENT: Final = ("awslambdaric", "simplejson", "snapshot-restore-py")  # where the service brings none

Entry = tuple[str, bytes]  # a file's place in the zip, and its content

_ENDINGS = frozenset({".pyi", ".pyx", ".pxd", ".pyc", ".h", ".hpp", ".c", ".cpp", ".a", ".cmake", ".pc"})
_FOLDERS = frozenset({"tests", "__pycache__", "include", "f2py"})
_ONNXRUNTIME_KEEPS = ("onnxruntime/__init__.py", "onnxruntime/capi/")
_UNUSED_LIBRARY = re.compile(r"onnxruntime/capi/libonnxruntime\.so")  # the same again, for programs in other languages
_LICENCE = re.compile(r"licen[cs]e|copying|notice", re.IGNORECASE)
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
_EARLIER_NAMES = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}


def needed_for(platform: Platform) -> tuple[str, ...]:
    """The names of the packages that are put into the zip."""
    return NEEDED if platform.managed else NEEDED + RUNTIME_CLIENT


def installed(name: str) -> Distribution:
    """A package as it is installed here."""
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        extra = "local-functions" if name in RUNTIME_CLIENT else "lambda"
        raise ConfigError(
            f'the function is packed with {name}, which is not installed: pip install "dorylus[{extra}]".'
        ) from error


def requirements(names: Iterable[str]) -> list[str]:
    """The very versions that are installed here, as pip takes them: programs were checked with these."""
    return [f"{name}=={installed(name).version}" for name in names]


def can_be_copied(names: Iterable[str], platform: Platform) -> bool:
    """Whether what is installed here runs there, too."""
    if not platform.fits_here:
        return False
    return not platform.managed or all(runs_on_lambda(_tags(installed(name)), platform.architecture) for name in names)


def runs_on_lambda(tags: Iterable[str], architecture: str) -> bool:
    """Whether a wheel with one of these platform tags runs on Amazon Linux 2023."""
    return any(tag.endswith("-any") or _is_old_enough(tag, ARCHITECTURES[architecture]) for tag in tags)


def copied(name: str) -> Iterator[Entry]:
    """What a function needs of an installed package."""
    found = installed(name)
    if found.files is None:
        raise ConfigError(f"{name} was installed without a list of its files, so it cannot be packed: use pip for it.")
    for file in found.files:
        place = PurePosixPath(file)
        if ".." not in place.parts and is_needed(str(place)):
            yield str(place), Path(str(found.locate_file(file))).read_bytes()


def unpacked(wheel: Path) -> Iterator[Entry]:
    """What a function needs of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/") and is_needed(name):
                yield name, archive.read(name)


def is_needed(place: str) -> bool:
    """Whether a function needs this file of a package; licences always travel along."""
    path = PurePosixPath(place)
    if _LICENCE.search(path.name):
        return True
    if path.parts[0].endswith(".dist-info"):
        return path.name == "METADATA"
    if path.suffix in _ENDINGS or _FOLDERS.intersection(path.parts):
        return False
    if path.parts[0] == "onnxruntime":
        return place.startswith(_ONNXRUNTIME_KEEPS) and not _UNUSED_LIBRARY.match(place)
    return True


def _tags(found: Distribution) -> list[str]:
    lines = (found.read_text("WHEEL") or "").splitlines()
    return [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")]


def _is_old_enough(tag: str, machine: str) -> bool:
    tag = tag.rpartition("-")[2]
    for earlier, glibc in _EARLIER_NAMES.items():
        tag = tag.replace(f"{earlier}_", f"manylinux_{glibc[0]}_{glibc[1]}_")
    found = _MANYLINUX.fullmatch(tag)
    return found is not None and (int(found[1]), int(found[2])) <= GLIBC and found[3] == machine
