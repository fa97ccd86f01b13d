import platform

import pytest

from dorylus.errors import ConfigError
from dorylus.functions.deploy import config as platforms
from dorylus.functions.deploy.config import PYTHON_HERE, Platform, architecture_here, on_aws, on_this_machine


def test_aws_runs_one_of_its_own_pythons_and_this_machine_brings_its_own():
    assert on_aws("arm64", "3.13").runtime == "python3.13"
    assert on_this_machine().runtime == "provided.al2023"
    assert on_this_machine().fits_here == (platform.system() == "Linux")


def test_by_default_the_platform_is_the_nearest_to_this_machine():
    nearest = PYTHON_HERE if PYTHON_HERE in platforms.PYTHONS else "3.12"
    assert on_aws() == Platform(architecture_here(), nearest)


@pytest.mark.parametrize(
    ("machine", "name"), [("x86_64", "x86_64"), ("aarch64", "arm64"), ("arm64", "arm64"), ("riscv64", "x86_64")]
)
def test_architectures_are_called_as_lambda_calls_them(monkeypatch, machine, name):
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert architecture_here() == name


def test_a_python_whose_runtime_cannot_load_the_packages_is_refused_with_those_that_can():
    with pytest.raises(ConfigError, match=r"python=3\.11.*3\.12, 3\.13, 3\.14"):
        on_aws(python="3.11")


def test_an_unknown_architecture_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="Did you mean 'arm64'"):
        on_aws("arm46")


def test_another_python_or_processor_does_not_fit_here():
    assert not Platform(architecture_here(), "3.99", managed=False).fits_here
    other = "arm64" if architecture_here() == "x86_64" else "x86_64"
    assert not Platform(other, PYTHON_HERE, managed=False).fits_here
