"""A prediction that is killed, or whose file may not grow, leaves no partial file."""

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import os, resource, signal, sys
from contextlib import closing
import numpy as np
from dorylus.errors import DataError
from dorylus.inference.prediction_file import StoredNumberIds
from dorylus.inference.prediction_file import PredictionForm, PredictionFile

target, how = sys.argv[1:]
size = 400_000
if how == "limit":
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

def tell(done, total):
    if how == "kill" and done > total // 2:
        os.kill(os.getpid(), signal.SIGKILL)

rows = np.random.default_rng(0).random((size, 4), np.float32)
ids = StoredNumberIds(np.arange(size))
try:
    with closing(PredictionFile(target, PredictionForm(size, 4, rows.dtype), "logits", ids)) as file:
        file.write([rows], tell)
except DataError as error:
    sys.exit(str(error))
"""


@pytest.mark.parametrize(
    ("name", "before"),
    [
        ("x.npy", b"the file there was"),
        ("x.parquet", None),
        pytest.param("x.npy", None, marks=pytest.mark.soak),
        pytest.param("x.parquet", b"the file there was", marks=pytest.mark.soak),
    ],
)
@pytest.mark.parametrize("how", ["kill", "limit"])
def test_no_partial_file_is_left(tmp_path, name, how, before):
    if before is not None:
        (tmp_path / name).write_bytes(before)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / name), how], capture_output=True, text=True, timeout=120
    )
    if how == "kill":
        assert done.returncode == -signal.SIGKILL
    else:
        assert done.stderr == (
            f"predictions cannot be written to {tmp_path / name}: File too large. Make room, or name another file.\n"
        )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == ({name: before} if before else {})
