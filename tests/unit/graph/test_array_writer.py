"""An array written block by block is complete, whatever the file system supports."""

import errno
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dorylus.graph.array_writer as array_writer
from dorylus.graph.array_writer import BUFFER_BYTES, ArrayWriter

RNG = np.random.default_rng(0)
SIZES = [0, 1, 511, 512, BUFFER_BYTES // 8 - 1, BUFFER_BYTES // 8, BUFFER_BYTES // 4 + 3]


@pytest.fixture(params=["direct", "refused when opened", "refused when written", "cut short"])
def file_system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ways in which file systems take direct writes."""
    opened, pwrite = os.open, os.pwrite

    def refuse(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return opened(path, flags, *mode)

    def refuse_first(file: int, data: Any, offset: int, calls: list[int] = []) -> int:  # noqa: B006
        calls.append(offset)
        if len(calls) == 1:
            raise OSError(errno.EINVAL, "Invalid argument")
        return pwrite(file, data, offset)

    def cut(file: int, data: Any, offset: int) -> int:
        return pwrite(file, data[: 4096 * 100] if len(data) > 4096 * 100 else data, offset)

    if request.param == "refused when opened":
        monkeypatch.setattr(array_writer.os, "open", refuse)
    if request.param == "refused when written":
        monkeypatch.setattr(array_writer.os, "pwrite", refuse_first)
    if request.param == "cut short":
        monkeypatch.setattr(array_writer.os, "pwrite", cut)


@pytest.mark.usefixtures("file_system")
@pytest.mark.parametrize("size", SIZES)
def test_blocks_make_up_the_array_and_its_entry(size: int, tmp_path: Path) -> None:
    array = RNG.integers(0, 1 << 40, size)
    with ArrayWriter(tmp_path / "a.bin", "<i8") as writer:
        for block in np.array_split(array, [size // 7, size // 3, size // 3]):
            writer.write(block)
    assert (tmp_path / "a.bin").read_bytes() == array.tobytes()
    crc = zlib.crc32(array.tobytes())
    assert writer.entry == {"dtype": "<i8", "shape": [size], "bytes": 8 * size, "crc32": crc}


def test_rows_may_have_columns_and_come_in_another_type(tmp_path: Path) -> None:
    rows = RNG.random((7, 3))
    with ArrayWriter(tmp_path / "a.bin", "<f4", (3,)) as writer:
        writer.write(rows[:4])
        writer.write(rows[4:])
        with pytest.raises(ValueError, match=r"rows of shape \(2,\)"):
            writer.write(rows[:, :2])
    assert np.array_equal(np.fromfile(tmp_path / "a.bin", "<f4").reshape(7, 3), rows.astype(np.float32))
    assert writer.entry["shape"] == [7, 3]


@pytest.mark.parametrize("result", [OSError(errno.ENOSPC, "No space left on device"), 0])
def test_a_full_disk_is_reported(result: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int, data: Any, offset: int) -> int:
        if isinstance(result, OSError):
            raise result
        return 0

    monkeypatch.setattr(array_writer.os, "pwrite", full)
    with pytest.raises(OSError, match="No space left") as refused, ArrayWriter(tmp_path / "a.bin", "<i8") as writer:
        writer.write(np.arange(10))
    assert refused.value.errno == errno.ENOSPC


def test_no_file_stays_open_after_an_error(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyError), ArrayWriter(tmp_path / "a.bin", "<i8"):
        raise KeyError
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("steps", [[1], [7, 50, 3], [16, 16], [100, 1, 1000], [48]])
def test_every_block_of_the_file_has_its_checksum_however_it_is_written(
    steps: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(array_writer, "CHECKED_BYTES", 16)
    content = np.random.default_rng(0).integers(0, 256, sum(steps), np.uint8)
    with ArrayWriter(tmp_path / "x.bin", "|u1") as writer:
        for part in np.split(content, np.cumsum(steps)[:-1]):
            writer.write(part)
    expected = [zlib.crc32(content[begin : begin + 16].data) for begin in range(0, content.size, 16)]
    assert writer.sums.tolist() == expected
