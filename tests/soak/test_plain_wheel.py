"""The wheel as pip installs it, with the newest packages it allows and no extras; the source distribution."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCH = "torch==2.13.0"
LONG_S = 1800
pytestmark = pytest.mark.timeout(2 * LONG_S)


def run(*command, cwd=ROOT, **settings):
    """Stdout of a command that must exit with 0."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=LONG_S, **settings)
    assert done.returncode == 0, f"{words}: {done.stdout[-2000:]}{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def dist():
    """The folder with a wheel and a source distribution of this tree."""
    run("make", "wheel")
    return ROOT / "build" / "dist"


def wheel_of(dist):
    """The wheel for the Python that runs this."""
    (wheel,) = dist.glob("*-cp311-cp311-*.whl" if sys.version_info < (3, 12) else "*-cp312-abi3-*.whl")
    return wheel


@pytest.fixture(scope="module")
def plain(dist, tmp_path_factory):
    """The bin folder of an environment with the wheel and its requirements, and nothing else."""
    pip = ("-m", "pip", "--disable-pip-version-check")
    found = run(
        sys.executable,
        *pip,
        "install",
        "--dry-run",
        "--ignore-installed",
        "--no-deps",
        "--quiet",
        "--report",
        "-",
        TORCH,
    )
    version = json.loads(found)["install"][0]["metadata"]["version"]
    if "+cpu" not in version:
        pytest.skip(f"pip finds torch {version}, which brings gigabytes of CUDA, and no build for CPUs only")
    folder = tmp_path_factory.mktemp("plain") / "venv"
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", *pip, "install", TORCH)
    run(folder / "bin" / "python", *pip, "install", wheel_of(dist))
    return folder / "bin"


def test_packages_of_extras_are_not_installed(plain):
    names = run(plain / "python", "-m", "pip", "list", "--format", "freeze")
    assert not re.search(r"^(pyzmq|onnx|pyarrow|ray|boto3)", names, re.MULTILINE)


def test_the_first_program_of_the_readme_prints_what_the_readme_shows(plain, tmp_path):
    readme = (ROOT / "README.md").read_text()
    program, expected = re.findall(r"```python\n(.*?)```.*?```\n(.*?)```", readme, re.DOTALL)[0]
    printed = run(plain / "python", "-c", program, cwd=tmp_path).splitlines()
    assert len(printed) == len(expected.splitlines())
    assert printed[0] == expected.splitlines()[0]
    accuracy = float(re.search(r"test accuracy +([\d.]+)%", "\n".join(printed))[1])
    assert accuracy > 97


def test_the_commands_of_one_machine_run(plain, tmp_path):
    dorylus = plain / "dorylus"
    assert run(dorylus, "doctor", cwd=tmp_path).splitlines()[-1] == "fit to train"
    run(dorylus, "train", "communities:num_vertices=2000", "--epochs", 12, "--run-dir", "run", cwd=tmp_path)
    run(dorylus, "predict", "run", "--out", "classes.npy", cwd=tmp_path)
    run(dorylus, "timeline", "run", cwd=tmp_path)
    run(dorylus, "report", "run", cwd=tmp_path)
    assert (tmp_path / "classes.npy").is_file()


def test_the_source_distribution_holds_all_that_a_wheel_is_built_from(dist, tmp_path):
    (source,) = dist.glob("*.tar.gz")
    run(*(sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", tmp_path, source))
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.split("-")[:-1] == wheel_of(dist).name.split("-")[:-1]  # auditwheel changes the last part
