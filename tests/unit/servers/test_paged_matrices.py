from itertools import pairwise

import numpy as np
import pytest

from dorylus.backends.host import NativeBackend
from dorylus.paging import PAGE, Pager, ReadOnlyFile
from dorylus.servers.graph.paged import PagedMatrices

BOUNDS = np.array([0, 1000, 2500, 3000], np.int64)
ROWS = 3000


@pytest.fixture
def pager(tmp_path):
    pager = Pager(tmp_path, deadline_s=10)
    yield pager
    pager.close()


@pytest.fixture
def matrices(pager):
    return PagedMatrices(NativeBackend(), pager, BOUNDS, lambda name: str(name).startswith("paged"))


def fill(matrices, name, value):
    """Write every span of a paged matrix and leave it."""
    array = matrices.paged[name]
    for number, (begin, end) in enumerate(pairwise(BOUNDS)):
        array.acquire(number)
        array.array[begin:end] = value
        array.wrote(number)
        array.release(number, leave=True)


def test_a_matrix_is_made_once_as_zeros_wherever_it_lies(matrices):
    for name in ("paged", "plain"):
        first = matrices.get(name, ROWS, 8)
        assert first.shape == (ROWS, 8)
        assert first.dtype == np.float32
        assert not first.any()
        assert matrices.get(name, 1, 1) is first
    assert set(matrices.paged) == {"paged"}
    assert len(matrices) == 2


def test_a_paged_matrix_has_a_span_for_every_interval(matrices):
    matrices.get("paged", ROWS, 4)
    assert matrices.paged["paged"].num_spans == len(BOUNDS) - 1


def test_a_released_matrix_is_created_again_over_the_same_scratch(matrices):
    matrices.get("paged 1", ROWS, 8)
    fill(matrices, "paged 1", 7)
    file = matrices.paged["paged 1"].file
    matrices.release(["paged 1", "unknown"])
    assert "paged 1" not in matrices
    assert not matrices.get("paged 2", ROWS, 8).any()
    assert matrices.paged["paged 2"].file is file


def test_other_matrices_stay_when_some_are_released(matrices):
    for name in ("paged 1", "paged 2", "plain"):
        matrices.get(name, ROWS, 8)
    matrices.release(["paged 1"])
    assert [name in matrices for name in ("paged 1", "paged 2", "plain")] == [False, True, True]
    assert set(matrices.paged) == {"paged 2"}


def test_a_registered_paged_array_is_found_by_its_name(matrices, pager):
    made = pager.scratch((ROWS, 4), np.float32, BOUNDS)
    matrices.put("static", made)
    assert matrices.get("static", ROWS, 4) is made.array
    assert matrices.pages_of(["static", "plain"], lambda name: matrices.get(name, ROWS, 4)) == [made]
    assert "plain" in matrices  # made, and not paged


def test_a_plain_matrix_takes_the_place_of_a_paged_one(matrices):
    matrices.get("paged", ROWS, 4)
    plain = np.ones((ROWS, 4), np.float32)
    matrices.put("paged", plain)
    assert matrices.get("paged", ROWS, 4) is plain
    assert not matrices.paged


def test_permanent_files_are_not_released(matrices, pager, tmp_path):
    content = np.arange(ROWS * 4, dtype=np.float32).reshape(ROWS, 4)
    content.tofile(tmp_path / "features.bin")
    stored = pager.stored(ReadOnlyFile(tmp_path / "features.bin"), content, BOUNDS)
    matrices.put("features", stored)
    matrices.release(["features"])
    assert "features" in matrices
    stored.acquire(1)
    np.testing.assert_array_equal(stored.array[1000:2500], content[1000:2500])
    stored.release(1, leave=True)
    stored.file.close()


def test_matrices_in_memory_are_given_back_to_the_system():
    def resident():
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * PAGE

    size = 32 << 20
    matrices = PagedMatrices(NativeBackend(), None, BOUNDS, lambda name: False)  # type: ignore[arg-type]
    before = resident()
    matrices.get("large", size // 16, 4).fill(1)
    assert resident() - before > 0.9 * size
    matrices.release(["large"])
    assert resident() - before < 0.1 * size
