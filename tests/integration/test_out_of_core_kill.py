"""Training under a memory limit, killed several times and resumed, ends with the weights of an undisturbed run."""

import multiprocessing
import random
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
from limited_children import EPOCHS, PRELOAD, small_graph, train
from safetensors.numpy import load_file

FORKS = multiprocessing.get_context("forkserver")
LIMIT_S = 60.0  # for any one process
MOMENT_S = 0.05  # about an epoch


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    FORKS.set_forkserver_preload(PRELOAD)
    path = tmp_path_factory.mktemp("graph") / "store"
    small_graph().save(path)
    return path


def started(store: Path, folder: Path) -> BaseProcess:
    (folder / "scratch").mkdir(parents=True, exist_ok=True)
    child = FORKS.Process(target=train, args=(store, folder / "run", folder / "scratch"))
    child.start()
    return child


def finished(store: Path, folder: Path) -> dict[str, np.ndarray]:
    """The weights at the end of a run that is not killed from here on."""
    child = started(store, folder)
    child.join(LIMIT_S)
    assert child.exitcode == 0
    assert reached(folder) == EPOCHS
    return load_file(folder / "run" / "checkpoints" / f"epoch-{EPOCHS:06d}" / "weights.safetensors")


def reached(folder: Path) -> int:
    """The epoch of the last checkpoint; 0 before the first, -1 before there is a run."""
    if not (folder / "run" / "run.toml").exists():
        return -1
    return max((int(path.name[-6:]) for path in (folder / "run" / "checkpoints").glob("epoch-??????")), default=0)


def killed(store: Path, folder: Path, epoch: int, moment_s: float) -> None:
    """Train until this epoch's checkpoint is there, and a moment longer."""
    child = started(store, folder)
    while reached(folder) < epoch:
        assert child.is_alive(), "the run ended before it could be killed"
        child.join(0.002)
    child.join(moment_s)
    child.kill()
    child.join(LIMIT_S)
    assert child.exitcode == -9
    assert reached(folder) < EPOCHS, "a run that had ended was killed, which proves nothing"


@pytest.fixture(scope="module")
def undisturbed(store: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    return finished(store, tmp_path_factory.mktemp("undisturbed"))


@pytest.mark.parametrize("seed", [0, 1])
def test_five_kills_change_no_weight_and_leave_no_file(seed: int, store: Path, undisturbed, tmp_path: Path) -> None:
    rng = random.Random(seed)
    epochs = [0, *sorted(rng.choices(range(0, EPOCHS - 6, 2), k=4))]
    for epoch in epochs:
        killed(store, tmp_path, epoch, rng.uniform(0, MOMENT_S))
        assert not list((tmp_path / "scratch").iterdir())
    weights = finished(store, tmp_path)
    assert weights.keys() == undisturbed.keys()
    for name, weight in weights.items():
        np.testing.assert_allclose(weight, undisturbed[name], rtol=0, atol=1e-6, err_msg=name)
    assert not list((tmp_path / "scratch").iterdir())
