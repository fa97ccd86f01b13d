"""Fixtures that several tests share, among them files that are far larger than they should be."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
import pytest

import dorylus
from dorylus import process_memory

LARGE_BYTES = 256 << 20
LITTLE_BYTES = 16 << 20


@pytest.fixture
def fill_with_zeros() -> Callable[[Path], None]:
    """Puts a large file of zeros in place; it is one hole, and takes no disk."""

    def fill(path: Path) -> None:
        with open(path, "wb") as file:
            file.truncate(LARGE_BYTES)

    return fill


@pytest.fixture
def little_memory() -> Callable[[], AbstractContextManager[None]]:
    """Fails what takes more than a few MiB of memory for Python's objects while it is open."""

    @contextmanager
    def watch() -> Iterator[None]:
        tracemalloc.start()
        try:
            yield
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < LITTLE_BYTES

    return watch


@pytest.fixture(scope="module")
def wide():
    """A graph of some MiB, most of it in its features."""
    rng = np.random.default_rng(0)
    size = 16384
    source, destination = np.unique(rng.integers(0, size, (2, 80_000)), axis=1)
    return dorylus.Graph.from_edges(
        source,
        destination,
        size,
        undirected=False,
        features=rng.standard_normal((size, 128), dtype=np.float32),
        labels=rng.integers(0, 40, size),
        train_mask=np.ones(size, np.bool_),
    )


@pytest.fixture
def bare_process(monkeypatch):
    """A process whose own memory is not counted: a limit covers the run alone, and is the same every time."""
    taken = ["memory.limit.SLACK", "memory.limit.SPARE", "memory.limit.LEAST_MARGIN", "training.assembly.TO_LOAD"]
    for name in (*taken, "memory.model_pass.ARENA", "memory.room.ARENA"):
        monkeypatch.setattr(f"dorylus.{name}", 0)
    monkeypatch.setattr(process_memory, "private_bytes", lambda: 0)


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=200, num_classes=3, num_features=6, average_degree=6, seed=0)


@pytest.fixture
def trainer(graph):
    """Makes trainers and closes them."""
    made = []

    def make(model=None, graph=graph, **settings):
        made.append(dorylus.Trainer(graph, model or dorylus.gcn(), **({"threads": 1, "epochs": 12} | settings)))
        return made[-1]

    make.made = made
    yield make
    for each in made:
        each.close()


@pytest.fixture
def resumed(graph, trainer):
    """Resumes runs after the previous holders of their folders are closed, and closes them."""
    made = []

    def resume(folder, model=None, **more):
        for each in [*trainer.made, *made]:
            each.close()
        made.append(dorylus.Trainer.resume(folder, graph, model or dorylus.gcn(), **more))
        return made[-1]

    yield resume
    for each in made:
        each.close()
