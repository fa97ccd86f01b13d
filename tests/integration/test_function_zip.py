"""The real zip: how big it is, and how fast a fresh process imports it with nothing else to import."""

import os
import subprocess
import sys
import zipfile

import pytest

from dorylus.functions.deploy.config import on_this_machine
from dorylus.functions.deploy.package import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the function is packed for Linux")

IMPORT = """
import time
start = time.perf_counter()
import dorylus.functions.aws_lambda as entry
entry.handler({}, None)  # makes the handler, and so loads ONNX Runtime
print(time.perf_counter() - start)
import sys
import dorylus.wire.client  # what the direct path needs, too
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
assert not [file for file in files if "site-packages" in file]
"""


@pytest.fixture(scope="module")
def package():
    return build(on_this_machine())


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    with zipfile.ZipFile(package.path) as archive:
        archive.extractall(folder)
    return folder


def import_s(folder):
    """The seconds of the import in a fresh process, which can import from this folder only and write nowhere."""
    environment = {"PATH": os.defpath, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-S", "-P", "-c", IMPORT]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


def test_it_unpacks_to_less_than_200_mb_and_lambda_takes_it_in_a_call(package, unpacked):
    size = sum(path.stat().st_size for path in unpacked.rglob("*") if path.is_file())
    assert size == package.unpacked_bytes < 200_000_000
    assert package.size_bytes < 50_000_000


def test_it_imports_in_less_than_a_second_from_the_unpacked_folder_alone(unpacked):
    assert min(import_s(unpacked) for _ in range(3)) < 1.0


def test_nothing_that_a_function_does_not_run_is_inside(package):
    with zipfile.ZipFile(package.path) as archive:
        names = archive.namelist()
    assert not [name for name in names if name.startswith(("torch", "boto", "scipy", "onnx/")) or "/tests/" in name]
    assert not [
        name for name in names if name.startswith("dorylus/") and name.split("/")[1] in ("saga", "pools", "cli")
    ]
