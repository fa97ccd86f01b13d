"""Wheels for another platform than this machine's, fetched by pip from the package index it is set up for.

Each must have a hash that is known before it is fetched: one of ``wheels.lock`` beside this module, or of a file of the
user's. What lies in the folder from an earlier deployment is checked again, before it goes into a zip.
"""

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from dorylus.functions.deploy.errors import DeployError
from dorylus.functions.deploy.platforms import ARCHITECTURES, GLIBC, Platform

DOWNLOAD_S = 600.0
LOCK: Final = Path(__file__).with_name("wheels.lock")
OWN_LOCK: Final = "hashes.lock"  # beside the folders of platforms: hashes of other releases, as pip writes them
_OLDEST_GLIBC = 17  # 2.17: what "manylinux2014" means
_ENTRY = re.compile(r"^([\w.-]+)==([^\s;\\]+)((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")

Hashes = Mapping[str, frozenset[str]]  # those of a release's files, by name==version


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
    """The hashes that wheels of these releases may have; a release that none are known of is refused."""
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
    """How pip is asked for them: compiled ones only, for that platform and no other, with these hashes."""
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
    """The wheel of a package that a folder holds already, with a hash that is known."""
    name, _, version = requirement.partition("==")
    wheels = sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
    return next((each for each in wheels if _sha256(each) in known[requirement]), None)


def _run_pip(requirements: Sequence[str], platform: Platform, folder: Path, known: Hashes) -> None:
    asked = f"wheels of {', '.join(requirements)} for {platform}"
    for wheel in folder.glob("*.whl"):  # pip keeps a file of the right name, whatever is in it
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
            raise DeployError(f"pip was asked for {asked}, but had not ended after {DOWNLOAD_S:.0f} s.") from error
    if done.returncode:
        said = " ".join(done.stderr.split())[-500:]
        raise DeployError(f"pip was asked for {asked}, but failed: {said} Check that it reaches a package index.")


def _read(lock: str) -> dict[str, frozenset[str]]:
    entries = _ENTRY.findall(lock)
    return {f"{name.lower()}=={version}": frozenset(_HASH.findall(rest)) for name, version, rest in entries}


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
