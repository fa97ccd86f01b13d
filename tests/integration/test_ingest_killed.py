"""An ingest that is killed leaves no partial store, and the next one removes its files."""

import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.graph import Graph

TOUCHED = "open os.mkdir os.rename os.truncate os.remove os.rmdir os.listdir os.scandir fcntl.flock"

# Kills itself at its n-th step: an access to a file or folder (the interpreter's audit events), or a progress report.
KILLED = """
import os, signal, sys
import numpy as np
import dorylus.ingest.budget as budget
import dorylus.ingest.pipeline as pipeline
import dorylus.files as durable
from dorylus.ingest import ingest_edges
budget.shares_of = lambda *_, **__: budget.IngestShares(spool=36864, merge=1 << 20, transpose=36864)
pipeline.BLOCK_EDGES = 2000
edges, store, last, overwrite, events = sys.argv[1:]
if events == "os.rename":  # as on a file system that cannot exchange two names
    durable.exchange = lambda first, second: False
ends = tuple(np.load(edges))
steps = 0
def step(event, *_):
    global steps
    if (event if isinstance(event, str) else "progress") in events.split():
        steps += 1
        if steps == int(last):
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(step)
ingest_edges(ends, store, undirected=False, overwrite=overwrite == "True", name="new", tell=step)
print(steps)
"""


def run(
    edges: Path, store: Path, last: int, *, overwrite: bool, events: str = f"{TOUCHED} progress"
) -> subprocess.CompletedProcess[str]:
    """An ingest that kills itself at its ``last`` step; 0: at none."""
    command = [sys.executable, "-c", KILLED, edges, store, str(last), str(overwrite), events]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def edges(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("edges") / "edges.npy"
    np.save(path, np.random.default_rng(0).integers(0, 500, (2, 8000)))
    return path


def is_the_old_one(graph: Graph) -> bool:
    return graph.name == "old" and graph.num_edges == 2


def assert_new(store: Path, edges: Path) -> None:
    graph, built = Graph.open(store, verify=True), Graph.from_edges(*np.load(edges), undirected=False)
    assert graph.name == "new"
    assert np.array_equal(graph.indptr, built.indptr)
    assert np.array_equal(graph.indices, built.indices)


@pytest.mark.parametrize("overwrite", [False, True])
def test_killed_at_any_step_the_store_is_whole_or_not_there_and_the_next_run_is_right(
    overwrite: bool, edges: Path, tmp_path: Path
) -> None:
    def place(name: str) -> Path:
        (tmp_path / name).mkdir()
        if overwrite:
            Graph.from_edges([0], [1], name="old").save(tmp_path / name / "store")
        return tmp_path / name / "store"

    whole = run(edges, place("counted"), 0, overwrite=overwrite)
    assert whole.returncode == 0, whole.stderr
    num_steps = int(whole.stdout)
    assert num_steps > 20
    for step in random.Random(0).sample(range(1, num_steps + 1), 6):
        store = place(str(step))
        assert run(edges, store, step, overwrite=overwrite).returncode == -signal.SIGKILL
        if store.exists():
            graph = Graph.open(store, verify=True)
            assert graph.name == "new" or is_the_old_one(graph)
        Graph.ingest(tuple(np.load(edges)), store, undirected=False, overwrite=True, name="new")
        assert_new(store, edges)
        assert [each.name for each in store.parent.iterdir()] == ["store"], f"left behind at step {step}"


@pytest.mark.parametrize(("rename", "left"), [(1, "old"), (2, None)])
def test_an_old_store_is_never_lost(rename: int, left: str | None, edges: Path, tmp_path: Path) -> None:
    """After a kill between the two renames, where names cannot be exchanged, the next ingest to the same place restores
    the old store."""
    store = tmp_path / "store"
    Graph.from_edges([0], [1], name="old").save(store)
    assert run(edges, store, rename, overwrite=True, events="os.rename").returncode == -signal.SIGKILL
    assert (Graph.open(store).name if store.exists() else None) == left
    with pytest.raises(DataError, match="exists already"):
        Graph.ingest(tuple(np.load(edges)), store)
    assert is_the_old_one(Graph.open(store, verify=True))
    assert [each.name for each in tmp_path.iterdir()] == ["store"]
