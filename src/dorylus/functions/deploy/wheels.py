"""Wheels for another platform than this machine's, fetched by pip from the package index it is set up for."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from dorylus.functions.deploy.errors import DeployError
from dorylus.functions.deploy.platforms import ARCHITECTURES, GLIBC, Platform

DOWNLOAD_S = 600.0
_OLDEST_GLIBC = 17  # 2.17: what "manylinux2014" means


def download(requirements: Sequence[str], platform: Platform, folder: Path) -> list[Path]:
    """The wheels of these packages for a platform; those that the folder holds already are not fetched again."""
    folder.mkdir(parents=True, exist_ok=True)
    found = [found_in(folder, requirement) for requirement in requirements]
    if None in found:
        _run_pip(requirements, platform, folder)
        found = [found_in(folder, requirement) for requirement in requirements]
    wheels = [wheel for wheel in found if wheel is not None]
    if len(wheels) != len(requirements):
        raise DeployError(f"pip ended well, but {folder} lacks wheels of {', '.join(requirements)}: empty that folder.")
    return wheels


def command(requirements: Sequence[str], platform: Platform, folder: Path) -> list[str]:
    """How pip is asked for them: compiled ones only, for that platform and no other."""
    machine = ARCHITECTURES[platform.architecture]
    glibcs = range(GLIBC[1], _OLDEST_GLIBC - 1, -1)
    tags = [*(f"manylinux_2_{minor}_{machine}" for minor in glibcs), f"manylinux2014_{machine}"]
    return [
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"),
        *("--no-deps", "--only-binary=:all:", "--implementation", "cp", "--python-version", platform.python),
        *(part for tag in tags for part in ("--platform", tag)),
        *("--dest", str(folder), *requirements),
    ]


def _run_pip(requirements: Sequence[str], platform: Platform, folder: Path) -> None:
    asked = f"wheels of {', '.join(requirements)} for {platform}"
    try:
        done = subprocess.run(
            command(requirements, platform, folder), capture_output=True, text=True, timeout=DOWNLOAD_S
        )
    except subprocess.TimeoutExpired as error:
        raise DeployError(f"pip was asked for {asked}, but had not ended after {DOWNLOAD_S:.0f} s.") from error
    if done.returncode:
        said = " ".join(done.stderr.split())[-500:]
        raise DeployError(f"pip was asked for {asked}, but failed: {said} Check that it reaches a package index.")


def found_in(folder: Path, requirement: str) -> Path | None:
    """The wheel of a package that a folder holds already."""
    name, _, version = requirement.partition("==")
    return next(iter(sorted(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))), None)
