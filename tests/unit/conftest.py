"""What tests of files share that are far larger than they should be."""

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

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
