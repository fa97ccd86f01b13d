"""Compressed text is read like plain text, and a damaged file is reported."""

import bz2
import gzip
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from all_edges import edges_of

from dorylus.errors import DataError
from dorylus.ingest.readers.files import open_edges

EDGES = [(i * 7919 % 1000, i) for i in range(20_000)]
TEXT = "".join(f"{a}\t{b}\n" for a, b in EDGES).encode()


def by_arrow(codec: str) -> Callable[[bytes], bytes]:
    def pack(content: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as stream:
            stream.write(content)
        return sink.getvalue().to_pybytes()

    return pack


PACK = {".gz": gzip.compress, ".bz2": bz2.compress, ".zst": by_arrow("zstd"), ".lz4": by_arrow("lz4")}
packings = pytest.mark.parametrize("suffix", PACK)


@packings
def test_packed_text_is_unpacked(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"web.tsv{suffix}"
    path.write_bytes(PACK[suffix](TEXT))
    source = open_edges(path)
    assert source.total_bytes == path.stat().st_size < len(TEXT)
    assert edges_of(source) == EDGES
    assert edges_of(source) == EDGES  # a source can be read again


@packings
def test_a_packed_file_may_be_made_of_several(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"web{suffix}"
    path.write_bytes(PACK[suffix](TEXT[:1000]) + PACK[suffix](TEXT[1000:]))
    assert edges_of(open_edges(path)) == EDGES


@packings
def test_a_packed_file_cut_short_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"web.txt{suffix}"
    path.write_bytes(PACK[suffix](TEXT)[:-20])
    with pytest.raises(DataError, match=r"web.txt\S+: .*truncated: copy it again"):
        edges_of(open_edges(path))


@packings
def test_a_file_that_is_not_packed_at_all_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"web.txt{suffix}"
    path.write_bytes(TEXT)
    with pytest.raises(
        DataError, match=rf"does not begin like a {suffix} file: if it is plain text, rename it to web.txt"
    ):
        open_edges(path)


def test_a_bad_line_of_a_packed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "web.gz").write_bytes(gzip.compress(TEXT + b"1 two\n"))
    with pytest.raises(DataError, match=r"web.gz, line 20,001: '1 two'"):
        edges_of(open_edges(tmp_path / "web.gz"))


def test_only_text_is_read_packed(tmp_path: Path) -> None:
    (tmp_path / "web.npy.gz").write_bytes(b"x")
    with pytest.raises(DataError, match="only text may be compressed"):
        open_edges(tmp_path / "web.npy.gz")


@pytest.mark.parametrize("suffix", [".txt.zst", ".txt.lz4", ".parquet", ".arrow"])
def test_the_error_for_a_format_that_needs_arrow_names_the_extra(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / f"web{suffix}").write_bytes(b"x")
    with pytest.raises(DataError, match=r'pip install "dorylus\[parquet\]"'):
        open_edges(tmp_path / f"web{suffix}")


def test_plain_text_gz_and_bz2_need_no_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    for suffix, pack in {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress}.items():
        (tmp_path / f"web.txt{suffix}").write_bytes(pack(TEXT))
        assert edges_of(open_edges(tmp_path / f"web.txt{suffix}")) == EDGES
