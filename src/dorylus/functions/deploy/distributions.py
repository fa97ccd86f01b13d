"""The packages that a function needs besides dorylus, from this environment or from wheels, without unused files.

Wheels for another platform are fetched by pip from the package index it is set up for.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath
from typing import Final

from dorylus.errors import ConfigError
from dorylus.functions.deploy.config import ARCHITECTURES, GLIBC, DeployError, Platform

NEEDED: Final = ("numpy", "onnxruntime", "pyzmq")
RUNTIME_CLIENT: Final = ("awslambdaric", "simplejson", "snapshot-restore-py")  # where the service has no Python

Entry = tuple[str, bytes]  # a file's place in the zip, and its content

_ENDINGS = frozenset({".pyi", ".pyx", ".pxd", ".pyc", ".h", ".hpp", ".c", ".cpp", ".a", ".cmake", ".pc"})
_FOLDERS = frozenset({"tests", "__pycache__", "include", "f2py"})
_ONNXRUNTIME_KEEPS = ("onnxruntime/__init__.py", "onnxruntime/capi/")
_UNUSED_LIBRARY = re.compile(r"onnxruntime/capi/libonnxruntime\.so")  # a second copy, for other languages
_LICENCE = re.compile(r"licen[cs]e|copying|notice", re.IGNORECASE)
_MANYLINUX = re.compile(r"manylinux_(\d+)_(\d+)_(\w+)")
_EARLIER_NAMES = {"manylinux1": (2, 5), "manylinux2010": (2, 12), "manylinux2014": (2, 17)}
DOWNLOAD_S = 600.0
OWN_LOCK: Final = "hashes.lock"  # beside the platforms' folders: hashes of further releases, in pip's format
_OLDEST_GLIBC = 17  # 2.17: what "manylinux2014" means
_ENTRY = re.compile(r"^([\w.-]+)==([^\s;\\]+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
Hashes = Mapping[str, frozenset[str]]  # those of a release's files, by name==version


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
    """The installed versions as pip's requirements: programs were checked with these."""
    return [f"{name}=={installed(name).version}" for name in names]


def can_be_copied(names: Iterable[str], platform: Platform) -> bool:
    """Whether the packages installed here run on the platform."""
    if not platform.fits_here:
        return False
    return not platform.managed or all(runs_on_lambda(_tags(installed(name)), platform.architecture) for name in names)


def runs_on_lambda(tags: Iterable[str], architecture: str) -> bool:
    """Whether a wheel with one of these platform tags runs on Amazon Linux 2023."""
    return any(tag.endswith("-any") or _is_old_enough(tag, ARCHITECTURES[architecture]) for tag in tags)


def copied(name: str) -> Iterator[Entry]:
    """The files of an installed package that a function needs."""
    found = installed(name)
    if found.files is None:
        raise ConfigError(f"{name} was installed without a list of its files, so it cannot be packed: use pip for it.")
    for file in found.files:
        place = PurePosixPath(file)
        if ".." not in place.parts and is_needed(str(place)):
            yield str(place), Path(str(found.locate_file(file))).read_bytes()


def unpacked(wheel: Path) -> Iterator[Entry]:
    """The files of a wheel that a function needs."""
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/") and is_needed(name):
                yield name, archive.read(name)


def is_needed(place: str) -> bool:
    """Whether a function needs this file of a package; licences are always included."""
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


LOCK: Final = Path(__file__).with_name("wheels.lock")


def download(requirements: Sequence[str], platform: Platform, folder: Path) -> list[Path]:
    """The wheels of these packages for a platform; those that the folder holds already are not fetched again."""
    known = known_hashes(requirements, folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = [found_in(folder, requirement, known) for requirement in requirements]
    if None in found:
        _run_pip(requirements, platform, folder, known)
        found = [found_in(folder, requirement, known) for requirement in requirements]
    wheels = [wheel for wheel in found if wheel is not None]
    if len(wheels) != len(requirements):
        raise DeployError(
            f"pip ended well, but {folder} lacks wheels of {', '.join(requirements)} with known hashes: empty it."
        )
    return wheels


def known_hashes(requirements: Sequence[str], folder: Path) -> Hashes:
    """The hashes that wheels of these releases may have; a release without known hashes is refused."""
    own = folder.parent / OWN_LOCK
    known = {**_read(LOCK.read_text()), **(_read(own.read_text()) if own.is_file() else {})}
    unknown = [each for each in requirements if each not in known]
    if unknown:
        names = {each.partition("==")[0] for each in unknown}
        ours = " ".join(sorted(each for each in known if each.partition("==")[0] in names))
        raise DeployError(
            f"the function is packed with {', '.join(unknown)}, as installed here, but no hashes of their wheels for "
            f"other platforms are known, and wheels are fetched by hash only: pip install {ours} here, or write these "
            f"releases with what `pip hash` prints of their wheels into {own}, or choose --python and --architecture "
            "of this machine."
        )
    return {each: known[each] for each in requirements}


def command(platform: Platform, folder: Path, requirements_file: Path) -> list[str]:
    """The pip command that downloads wheels for the platform, and no sources, with these hashes."""
    machine = ARCHITECTURES[platform.architecture]
    glibcs = range(GLIBC[1], _OLDEST_GLIBC - 1, -1)
    tags = [*(f"manylinux_2_{minor}_{machine}" for minor in glibcs), f"manylinux2014_{machine}"]
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", platform.python),
        *(part for tag in tags for part in ("--platform", tag)),
        *("--dest", str(folder), "--require-hashes", "--requirement", str(requirements_file)),
    ]


def found_in(folder: Path, requirement: str, known: Hashes) -> Path | None:
    """The wheel of a package in a folder, if its hash is known."""
    name, _, version = requirement.partition("==")
    wheels = sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    return next((each for each in wheels if _sha256(each) in known[requirement]), None)


def _run_pip(requirements: Sequence[str], platform: Platform, folder: Path, known: Hashes) -> None:
    what = f"wheels of {', '.join(requirements)} for {platform}"
    for wheel in folder.glob("*.whl"):  # pip would keep a file of the right name without checking its hash
        if _sha256(wheel) not in frozenset().union(*known.values()):
            wheel.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        for each in requirements:
            file.write(" ".join([each, *(f"--hash=sha256:{found}" for found in sorted(known[each]))]) + "\n")
        file.flush()
        try:
            done = subprocess.run(
                command(platform, folder, Path(file.name)), capture_output=True, text=True, timeout=DOWNLOAD_S
            )
        except subprocess.TimeoutExpired as error:
            raise DeployError(f"pip was to fetch {what}, but had not ended after {DOWNLOAD_S:.0f} s.") from error
    if done.returncode:
        message = " ".join(done.stderr.split())[-500:]
        raise DeployError(f"pip was to fetch {what}, but failed: {message} Check that it reaches a package index.")


def _read(lock: str) -> dict[str, frozenset[str]]:
    entries = _ENTRY.findall(lock)
    return {f"{name.lower()}=={version}": frozenset(_HASH.findall(rest)) for name, version, rest in entries}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
