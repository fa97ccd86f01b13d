import subprocess
from types import SimpleNamespace

import pytest

from dorylus.functions.deploy import wheels
from dorylus.functions.deploy.errors import DeployError
from dorylus.functions.deploy.platforms import on_aws

ASKED = ["numpy==2.4.6", "pyzmq==27.3.0"]
PLATFORM = on_aws("arm64", "3.13")


@pytest.fixture
def pip(monkeypatch):
    """Stands in for pip: ``pip.does(command)`` says what happens."""

    calls = []

    def run(command, **settings):
        calls.append(command)
        assert settings["timeout"] > 0
        return made.does(command)

    made = SimpleNamespace(calls=calls, does=lambda command: subprocess.CompletedProcess(command, 0, "", ""))
    monkeypatch.setattr(wheels.subprocess, "run", run)
    return made


def put(folder):
    (folder / "numpy-2.4.6-cp313-cp313-manylinux_2_28_aarch64.whl").touch()
    (folder / "pyzmq-27.3.0-cp312-abi3-manylinux_2_28_aarch64.whl").touch()


def test_pip_is_asked_for_compiled_packages_of_that_platform_alone(tmp_path):
    command = wheels.command(ASKED, PLATFORM, tmp_path)
    asked = " ".join(command)
    assert "--only-binary=:all:" in asked
    assert "--no-deps" in asked
    assert "--python-version 3.13" in asked
    assert "--platform manylinux_2_28_aarch64" in asked
    assert "manylinux_2_35" not in asked
    assert "x86_64" not in asked
    assert command[-2:] == ASKED


def test_wheels_are_fetched_once(tmp_path, pip):
    def fetch(command):
        put(tmp_path)
        return subprocess.CompletedProcess(command, 0, "", "")

    pip.does = fetch
    first = wheels.download(ASKED, PLATFORM, tmp_path)
    assert [path.name.split("-")[0] for path in first] == ["numpy", "pyzmq"]
    assert wheels.download(ASKED, PLATFORM, tmp_path) == first
    assert len(pip.calls) == 1


def test_what_pip_says_when_it_fails_is_told(tmp_path, pip):
    pip.does = lambda command: subprocess.CompletedProcess(command, 1, "", "ERROR: no matching\n  distribution")
    with pytest.raises(DeployError, match=r"Python 3\.13 on arm64, but failed: ERROR: no matching distribution"):
        wheels.download(ASKED, PLATFORM, tmp_path)


def test_pip_that_does_not_end_is_given_up(tmp_path, pip):
    def hang(command):
        raise subprocess.TimeoutExpired(command, 600)

    pip.does = hang
    with pytest.raises(DeployError, match="had not ended after 600 s"):
        wheels.download(ASKED, PLATFORM, tmp_path)


def test_pip_that_fetches_something_else_is_told_of(tmp_path, pip):
    with pytest.raises(DeployError, match="lacks wheels of"):
        wheels.download(ASKED, PLATFORM, tmp_path)
