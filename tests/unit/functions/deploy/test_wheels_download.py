import hashlib
import re
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from dorylus.functions.deploy import distributions as wheels
from dorylus.functions.deploy.config import DeployError, on_aws
from dorylus.functions.deploy.distributions import NEEDED

REQUESTED = ["numpy==2.4", "pyzmq==27.3"]
PLATFORM = on_aws("arm64", "3.13")
NUMPY = "numpy-2.4-cp313-cp313-manylinux_2_28_aarch64.whl"
FILES = {NUMPY: b"the numbers", "pyzmq-27.3-cp312-abi3-manylinux_2_28_aarch64.whl": b"the sockets"}


@pytest.fixture
def folder(tmp_path):
    """A folder for wheels, next to a file of their hashes."""
    hashes = [f"--hash=sha256:{hashlib.sha256(content).hexdigest()}" for content in FILES.values()]
    (tmp_path / wheels.OWN_LOCK).write_text(
        f"{REQUESTED[0]} \\\n    {hashes[0]} \\\n    {hashes[1]}\n{REQUESTED[1]} {hashes[1]}\n"
    )
    return tmp_path / "3.13-arm64"


@pytest.fixture
def pip(monkeypatch):
    """Stands in for pip: ``pip.does(command)`` is called in its place."""

    def run(command, **settings):
        made.calls.append(Path(command[-1]).read_text())
        assert settings["timeout"] > 0
        return made.does(command)

    made = SimpleNamespace(calls=[], does=lambda command: subprocess.CompletedProcess(command, 0, "", ""))
    monkeypatch.setattr(wheels.subprocess, "run", run)
    return made


def fetched(folder, **changed):
    """What pip does when it fetches the wheels; like pip, it leaves a file of the right name as it is."""

    def fetch(command):
        for name, content in FILES.items():
            if not (folder / name).exists():
                (folder / name).write_bytes(changed.get(name.split("-")[0], content))
        return subprocess.CompletedProcess(command, 0, "", "")

    return fetch


def test_pip_fetches_compiled_packages_of_that_platform_only_and_by_hash(tmp_path):
    arguments = " ".join(wheels.command(PLATFORM, tmp_path, tmp_path / "requirements.txt"))
    assert "--only-binary=:all:" in arguments
    assert "--no-deps" in arguments
    assert "--python-version 3.13" in arguments
    assert "--platform manylinux_2_28_aarch64" in arguments
    assert "manylinux_2_35" not in arguments
    assert "x86_64" not in arguments
    assert arguments.endswith(f"--require-hashes --requirement {tmp_path / 'requirements.txt'}")


def test_wheels_are_fetched_once(folder, pip):
    pip.does = fetched(folder)
    first = wheels.download(REQUESTED, PLATFORM, folder)
    assert [path.name.split("-")[0] for path in first] == ["numpy", "pyzmq"]
    assert wheels.download(REQUESTED, PLATFORM, folder) == first
    (requirements,) = pip.calls
    assert re.fullmatch(r"numpy==2.4( --hash=sha256:\w{64}){2}\npyzmq==27.3 --hash=sha256:\w{64}\n", requirements)


def test_a_wheel_that_was_changed_since_it_was_fetched_is_fetched_again(folder, pip):
    pip.does = fetched(folder)
    wheels.download(REQUESTED, PLATFORM, folder)
    (folder / NUMPY).write_bytes(b"something else")
    assert wheels.download(REQUESTED, PLATFORM, folder)[0].read_bytes() == FILES[NUMPY]
    assert len(pip.calls) == 2


def test_a_wheel_with_another_hash_is_not_packed(folder, pip):
    pip.does = fetched(folder, numpy=b"something else")
    with pytest.raises(DeployError, match=r"lacks wheels of .* with known hashes"):
        wheels.download(REQUESTED, PLATFORM, folder)


def test_a_release_whose_hashes_are_not_known_is_refused_before_anything_is_fetched(tmp_path, pip):
    with pytest.raises(DeployError, match=r"numpy==1\.0, as installed here.* pip install numpy==\d.*hashes\.lock"):
        wheels.download(["numpy==1.0"], PLATFORM, tmp_path / "3.13-arm64")
    assert pip.calls == []


def test_the_hashes_shipped_are_those_of_the_lock_for_every_package_of_a_function():
    lock = (Path(__file__).parents[4] / "requirements.lock").read_text()
    shipped = wheels._read(wheels.LOCK.read_text())
    assert {release.partition("==")[0] for release in shipped} == set(NEEDED)
    assert all(hashes and wheels._read(lock)[release] == hashes for release, hashes in shipped.items())


def test_the_message_of_a_failed_pip_is_reported(folder, pip):
    pip.does = lambda command: subprocess.CompletedProcess(command, 1, "", "ERROR: no matching\n  distribution")
    with pytest.raises(DeployError, match=r"Python 3\.13 on arm64, but failed: ERROR: no matching distribution"):
        wheels.download(REQUESTED, PLATFORM, folder)


def test_pip_that_does_not_end_is_given_up(folder, pip):
    def hang(command):
        raise subprocess.TimeoutExpired(command, 600)

    pip.does = hang
    with pytest.raises(DeployError, match="had not ended after 600 s"):
        wheels.download(REQUESTED, PLATFORM, folder)


def test_wheels_that_pip_did_not_fetch_are_reported(folder, pip):
    with pytest.raises(DeployError, match="lacks wheels of"):
        wheels.download(REQUESTED, PLATFORM, folder)
