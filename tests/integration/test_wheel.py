"""The wheel in an environment that has the packages it requires and no others."""

import json
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from plain_install import required

ROOT = Path(__file__).parents[2]
THREADS = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
OPTIONAL = ("zmq", "onnx", "onnxruntime", "pyarrow", "ray", "boto3", "torch_geometric", "pymetis", "pandas", "IPython")


def link_packages(folder, distributions):
    """Fills a folder with links to all that the distributions have in this environment's site-packages."""
    folder.mkdir()
    for name in distributions:
        for file in metadata.distribution(name).files or []:
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (folder / top).exists():
                (folder / top).symlink_to(file.locate().parents[len(file.parts) - 1] / top)


def is_installed(name):
    """Whether a required package is here: one for another system is not."""
    try:
        return bool(metadata.version(name))
    except metadata.PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, ROOT / "tools" / "wheels.py", folder, "--this"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def plain(wheel, tmp_path_factory):
    """The root of an environment with the wheel and what it requires; ``packages`` there may be broken."""
    root = tmp_path_factory.mktemp("plain") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    libraries = Path(sysconfig.get_path("purelib", vars={"base": str(root)}))
    link_packages(root / "packages", filter(is_installed, required("dorylus") - {"dorylus"}))
    (libraries / "packages.pth").write_text(str(root / "packages"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", root / "bin" / "python"]
    subprocess.run([*pip, "install", "--quiet", "--no-index", "--no-deps", wheel], check=True)
    return root


@pytest.fixture
def run(plain, tmp_path):
    """Runs a program of the environment in an empty folder; returns exit code, stdout and stderr."""

    def call(program, *arguments):
        command = [plain / "bin" / program, *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=THREADS, timeout=120)
        return done.returncode, done.stdout, done.stderr

    return call


def test_the_wheel_is_tagged_for_its_python_and_an_old_glibc(wheel):
    python, abi, platform = wheel.stem.split("-")[2:]
    version = sys.version_info[:2]
    assert (python, abi) == (("cp311", "cp311") if version == (3, 11) else ("cp312", "abi3"))
    glibc = re.fullmatch(r"manylinux_2_(\d+)_\w+", platform)
    assert glibc, platform
    assert int(glibc[1]) <= 34


def test_the_wheel_holds_one_module_and_no_sources(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert len([name for name in names if name.endswith(".so")]) == 1
    assert not [name for name in names if name.endswith((".cpp", ".h")) or name.startswith("tests")]
    assert "dorylus/py.typed" in names


def test_the_first_program_of_the_readme_prints_what_it_shows_and_loads_nothing_optional(run):
    program, expected = re.findall(r"```python\n(.*?)```.*?```\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[
        0
    ]
    loaded = f"\nimport sys; print(sorted(set({OPTIONAL}) & set(sys.modules)))"
    code, out, err = run("python", "-c", program + loaded)
    assert code == 0, err
    *printed, optional = out.splitlines()
    assert (printed[0], len(printed)) == (expected.splitlines()[0], len(expected.splitlines()))
    assert optional == "[]"


def test_ingest_train_kill_resume_and_predict(plain, run, tmp_path):
    rng = np.random.default_rng(0)
    np.savetxt(tmp_path / "edges.tsv", rng.integers(0, 200, (2000, 2)), "%d", "\t")
    np.save(tmp_path / "x.npy", rng.standard_normal((200, 8), dtype=np.float32))
    np.save(tmp_path / "y.npy", np.arange(200) % 3)
    np.save(tmp_path / "train.npy", np.arange(100))
    rows = ("--features", "x.npy", "--labels", "y.npy", "--train", "train.npy")
    code, _, err = run("dorylus", "ingest", "edges.tsv", "store", *rows, "--num-vertices", 200)
    assert code == 0, err

    train = ["train", "store", "--epochs", "4000", "--checkpoint-every", "10", "--run-dir", "run", "--quiet"]
    killed = subprocess.Popen([plain / "bin" / "dorylus", *train], cwd=tmp_path, env=THREADS)
    try:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("run/checkpoints/epoch-*")) and time.monotonic() < deadline:
            assert killed.poll() is None
            time.sleep(0.01)
    finally:
        killed.kill()
        assert killed.wait() == -signal.SIGKILL

    script = (
        "import json, dorylus\n"
        "with dorylus.Trainer.resume('run') as trainer:\n"
        "    before = trainer.epoch\n"
        "    result = trainer.run(20).result()\n"
        "    result.predict('classes', out='classes.npy')\n"
        "print(json.dumps([before, len(result.losses)]))"
    )
    code, out, err = run("python", "-c", script)
    assert code == 0, err
    before, after = json.loads(out)
    assert 10 <= before < 4000
    assert after == before + 20
    assert np.load(tmp_path / "classes.npy").shape == (200,)


def test_the_doctor_finds_a_plain_install_fit(run):
    code, out, err = run("dorylus", "doctor")
    assert (code, out.splitlines()[-1]) == (0, "fit to train"), out + err
    assert "missing: parquet" in out


@pytest.mark.parametrize("package", ["safetensors", "scipy", "typer", "kernels"])
def test_the_doctor_names_what_does_not_load_in_one_line(plain, run, package):
    if package == "kernels":
        (there,) = plain.glob("lib/python3*/site-packages/dorylus/backends/native/_native*.so")
        sentence = "the compiled kernels do not load: "
    else:
        there = plain / "packages" / package
        sentence = f"{package} does not load: ImportError: broken on purpose – install {package} again: pip install "
    aside = there.with_name("aside")
    there.rename(aside)
    try:
        if package == "kernels":
            there.write_bytes(aside.read_bytes()[:5000])
        else:
            there.mkdir()
            (there / "__init__.py").write_text("raise ImportError('broken on purpose')")
        code, out, err = run("dorylus", "doctor")
    finally:
        shutil.rmtree(there) if there.is_dir() else there.unlink()
        aside.rename(there)
    assert code == 1
    assert "Traceback" not in out + err
    if package == "typer":  # without it there is no command line to check anything
        assert err.startswith("error: " + sentence.replace(" – ", ". To mend it, "))
        assert err.count("\n") == 1
    else:
        (failed,) = [line for line in out.splitlines() if line.startswith("fail")]
        assert failed.startswith(f"fail  packages   {sentence}")
        assert out.splitlines()[-1] == "1 failed"
