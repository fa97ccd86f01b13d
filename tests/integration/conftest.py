"""Fixtures that several files of integration tests use."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

GROUPS = Path("/sys/fs/cgroup/memory")


@pytest.fixture
def group() -> Iterator[Path]:
    """A new memory group (version 1)."""
    path = GROUPS / f"dorylus-test-{uuid.uuid4().hex}"
    try:
        path.mkdir()
    except OSError as error:
        pytest.skip(f"no memory group can be made here: {error}")
    yield path
    path.rmdir()
