"""The sort through a file gives what the sort in memory gives, whatever the edges, and leaves nothing behind."""

import errno
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import few

from dorylus.backends import native, reference
from dorylus.backends.native import _native

LEAST = 3 * 12288  # a run is 1,536 edges, or 1,024 with weights
MERGE = 1 << 22


def sorted_by(sort: Any, batches: list[Any], block_edges: int = 1000) -> tuple[Any, ...]:
    """All columns of what a sort gives."""
    with sort:
        for batch in batches:
            sort.add(*batch)
        blocks = list(sort.sorted(MERGE, block_edges))
    assert all(len(rows) == block_edges for rows, _, _ in blocks[:-1])
    return tuple(None if parts[0] is None else np.concatenate(parts) for parts in zip(*blocks, strict=True))


def same(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


@few
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 1535, 1536, 1537, 3072, 6000]),
    st.sampled_from([1, 5, 70_000, 2**31 - 1]),
    st.tuples(*[st.booleans()] * 4),
)
def test_sorted_edges_agree_with_the_reference(
    seed: int, num_edges: int, num_vertices: int, chosen: tuple[bool, ...]
) -> None:
    weighted, undirected, drop_self_loops, coalesce = chosen
    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(0, num_vertices, (2, num_edges)).astype(np.int32)
    # Weights of equal edges are equal where repeats are dropped, and distinguish them where they are kept.
    equal = ((rows ^ columns) % 97).astype(np.float32)
    weights = equal if coalesce else rng.random(num_edges, dtype=np.float32)
    cuts = np.sort(rng.integers(0, num_edges + 1, 3))
    parts = [np.split(each, cuts) for each in (rows, columns, weights)]
    batches = [(r, c, w if weighted else None) for r, c, w in zip(*parts, strict=True)]
    options = {"weighted": weighted, "undirected": undirected}
    options |= {"drop_self_loops": drop_self_loops, "coalesce": coalesce}
    with tempfile.TemporaryDirectory() as folder:
        mine = sorted_by(native.EdgeSort(folder, LEAST, **options), batches)
    same(mine, sorted_by(reference.EdgeSort(folder, LEAST, **options), batches))


def test_a_row_with_all_edges_takes_as_many_runs_as_it_needs(tmp_path: Path) -> None:
    columns = np.random.default_rng(0).permutation(100_000).astype(np.int32)
    rows = np.full(100_000, 7, np.int32)
    with native.EdgeSort(tmp_path, LEAST) as sort:
        sort.add(rows, columns)
        blocks = list(sort.sorted(MERGE))
    np.testing.assert_array_equal(np.concatenate([block[1] for block in blocks]), np.arange(100_000))


def test_repeats_are_dropped_before_they_are_written(tmp_path: Path) -> None:
    with native.EdgeSort(tmp_path, LEAST) as sort:
        for _ in range(20):
            sort.add(np.zeros(10_000, np.int32), np.zeros(10_000, np.int32))
        ((rows, columns, _),) = sort.sorted(MERGE)
        assert (rows.tolist(), columns.tolist()) == ([0], [0])
        assert sort.spooled_bytes == 131 * 4096  # a sector a run, of 1,536 edges each


def blocks_of_unnamed_files(folder: Path) -> int:
    names = [link for link in Path("/proc/self/fd").iterdir() if os.path.islink(link)]
    return sum(os.stat(link).st_blocks for link in names if os.readlink(link).startswith(str(folder)))


def test_the_file_keeps_no_edge_that_was_read(tmp_path: Path) -> None:
    rows = np.arange(100_000, dtype=np.int32)
    with native.EdgeSort(tmp_path, 3 << 20) as sort:
        sort.add(rows, rows)
        assert sort.spooled_bytes == 0, "less than a run"
        first = next(sort.sorted(MERGE, 10))
        assert first[0].tolist() == list(range(10))
        assert sort.spooled_bytes == 196 * 4096
        assert blocks_of_unnamed_files(tmp_path) == 0, "all of it is in the buffers of the merge"


@pytest.mark.parametrize("apart", [0, 5000])
def test_two_weights_of_one_edge_are_refused_in_one_run_and_in_two(apart: int, tmp_path: Path) -> None:
    between = np.arange(10, 10 + apart, dtype=np.int32)
    with native.EdgeSort(tmp_path, LEAST, weighted=True) as sort:
        sort.add(ints(3), ints(4), np.float32([0.5]))
        sort.add(between, between, np.ones(apart, np.float32))
        sort.add(ints(3), ints(4), np.float32([0.25]))
        with pytest.raises(native.WeightClash) as refused:
            list(sort.sorted(MERGE))
    clash = refused.value
    assert (clash.row, clash.column, clash.first, clash.second) == (3, 4, 0.5, 0.25)


@pytest.mark.parametrize(
    ("edges", "error", "message"),
    [
        ((ints(0, 1), ints(2, -1)), ValueError, r"edge 1 is \(1, -1\): rows and columns are numbered from 0"),
        ((ints(0, 1), ints(2)), ValueError, "columns must have 2 elements, not 1"),
        ((np.zeros(1), ints(0)), TypeError, "rows must hold int32"),
        ((ints(0), ints(0), np.ones(1, np.float32)), ValueError, "made without weighted=True"),
    ],
)
def test_invalid_edges_are_refused(edges: Any, error: type[Exception], message: str, tmp_path: Path) -> None:
    with native.EdgeSort(tmp_path, LEAST) as sort, pytest.raises(error, match=message):
        sort.add(*edges)


def test_weights_must_come_with_every_edge_of_a_weighted_sort(tmp_path: Path) -> None:
    with (
        native.EdgeSort(tmp_path, LEAST, weighted=True) as sort,
        pytest.raises(TypeError, match="weights must hold float32, not None"),
    ):
        sort.add(ints(0), ints(0))


def test_late_edges_and_too_little_memory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="memory_bytes is 1000: give at least 36864"):
        native.EdgeSort(tmp_path, 1000)
    with native.EdgeSort(tmp_path, LEAST) as sort:
        assert list(sort.sorted(MERGE)) == []
        with pytest.raises(ValueError, match="after sorted"):
            sort.add(ints(0), ints(0))
        with pytest.raises(ValueError, match="called twice"):
            next(sort.sorted(MERGE))
    with pytest.raises(ValueError, match="it was closed"):
        sort.add(ints(0), ints(0))
    with native.EdgeSort(tmp_path, LEAST) as sort:
        sort.add(*np.arange(8000, dtype=np.int32).reshape(2, -1))
        with pytest.raises(ValueError, match="merging 3 runs takes 36864 bytes"):
            next(sort.sorted(20_000))


def test_a_reader_may_stop_halfway(tmp_path: Path) -> None:
    with native.EdgeSort(tmp_path, LEAST) as sort:
        sort.add(*np.arange(20_000, dtype=np.int32).reshape(2, -1))
        blocks = sort.sorted(MERGE, 100)
        assert next(blocks)[0][0] == 0
        blocks.close()


def test_the_file_has_no_name_and_its_space_comes_back_as_it_is_read(tmp_path: Path) -> None:
    numbers = np.arange(1_000_000, dtype=np.int32)
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        sort = _native.EdgeSort(file.fileno(), 30 * LEAST, False, False, False, True)
        sort.add(numbers, numbers, None)
        edges = sort.sorted(1 << 20, 100_000)
        full = os.fstat(file.fileno()).st_blocks
        while edges.next() is not None:
            assert list(tmp_path.iterdir()) == []
        assert full * 512 >= 4_000_000
        assert os.fstat(file.fileno()).st_blocks * 512 < 1_000_000


def test_a_full_disk_is_an_os_error_with_its_number() -> None:
    numbers = np.arange(10_000, dtype=np.int32)
    with open("/dev/full", "r+b", buffering=0) as full:
        sort = _native.EdgeSort(full.fileno(), LEAST, False, False, False, True)
        with pytest.raises(OSError, match="No space left on device") as refused:
            sort.add(numbers, numbers, None)
    assert refused.value.errno == errno.ENOSPC


LIMITED = """
import errno, resource, signal, sys
import numpy as np
from dorylus.backends import EdgeSort
resource.setrlimit(resource.RLIMIT_FSIZE, (50_001, 50_001))  # not a whole sector: the last write is cut short
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
numbers = np.arange(100_000, dtype=np.int32)
try:
    with EdgeSort(sys.argv[1], 3 * 12288) as sort:
        sort.add(numbers, numbers)
except OSError as error:
    print(errno.errorcode[error.errno])
"""


def test_a_write_that_is_cut_short_is_an_os_error(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, tmp_path], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("EFBIG\n", "")
    assert list(tmp_path.iterdir()) == []
