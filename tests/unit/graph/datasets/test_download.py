"""Downloads from a server on this machine: a file is complete and correct, or absent."""

import errno
import hashlib
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from loopback import Loopback, serving

from dorylus.errors import DataError
from dorylus.graph.datasets import npz, planetoid
from dorylus.graph.datasets.download import cache_folder, fetch
from small_planetoid import write_small_set

CONTENT = b"some bytes" * 1000
SUM = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server() -> Iterator[Loopback]:
    with serving({"file": CONTENT}) as state:
        yield state


def test_a_file_arrives_whole(server: Loopback, tmp_path: Path) -> None:
    target = fetch(f"{server.url}/file", tmp_path / "new" / "file", sha256=SUM)
    assert target.read_bytes() == CONTENT
    assert [entry.name for entry in target.parent.iterdir()] == ["file"]


def refused(server: Loopback, folder: Path, **options: Any) -> str:
    with pytest.raises(DataError) as caught:
        fetch(f"{server.url}/{options.pop('name', 'file')}", folder / "file", **options)
    assert list(folder.iterdir()) == []
    return str(caught.value)


def test_a_file_with_another_sum_is_not_kept(server: Loopback, tmp_path: Path) -> None:
    assert f"has SHA-256 {SUM}, but file should have {'0' * 64}" in refused(server, tmp_path, sha256="0" * 64)


def test_a_file_cut_short_is_not_kept(server: Loopback, tmp_path: Path) -> None:
    server.cut_short_by = 10
    assert "cannot download" in refused(server, tmp_path)


def test_a_file_that_fails_its_check_is_not_kept(server: Loopback, tmp_path: Path) -> None:
    def check(path: Path) -> None:
        raise DataError(f"{path.stat().st_size} bytes of the wrong kind")

    assert "10000 bytes of the wrong kind" in refused(server, tmp_path, check=check)


def test_a_file_missing_on_the_server_is_refused_in_one_sentence(server: Loopback, tmp_path: Path) -> None:
    assert "the server answered 404 Not Found" in refused(server, tmp_path, name="other")


def test_without_a_network_the_error_names_the_place_for_the_file(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}/file"
        with pytest.raises(
            DataError,
            match=r"cannot download .*refused.*put the file at .*/file by hand, or give the folder .* by root=",
        ):
            fetch(url, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_a_server_that_never_answers_is_given_up(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(DataError, match="timed out"):
            fetch(f"http://127.0.0.1:{silent.getsockname()[1]}/file", tmp_path / "file", timeout_s=0.05)


def test_only_web_addresses_are_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="must start with https"):
        fetch("file:///etc/hostname", tmp_path / "file")


def test_the_cache_is_in_the_home_folder_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder(None) == tmp_path / ".cache" / "dorylus"
    assert cache_folder("~/graphs") == tmp_path / "graphs"


def test_planetoid_files_are_fetched_once_and_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planetoid, "NUM_VAL", 2)
    write_small_set(tmp_path / "original", "cora")
    files = {path.name: path.read_bytes() for path in (tmp_path / "original").iterdir()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    with serving(files) as server:
        for _ in range(2):
            graph = planetoid.load("cora", root=tmp_path / "cache", base_url=server.url, sums=sums)
        assert sorted(server.requests) == sorted(files)
    assert graph.num_vertices == 7
    with serving(files) as server, pytest.raises(DataError, match="SHA-256"):
        planetoid.load("cora", root=tmp_path / "other", base_url=server.url)  # these are not the published files


def archive(**changes: Any) -> bytes:
    parts: dict[str, Any] = {
        "adj_data": np.ones(3, np.float32),
        "adj_indices": np.array([1, 2, 2], np.int32),
        "adj_indptr": np.array([0, 1, 2, 3], np.int32),
        "adj_shape": np.array([3, 3]),
        "attr_matrix": np.ones((3, 2), np.float32),
        "labels": np.array([0, 1, 0]),
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{key: value for key, value in (parts | changes).items() if value is not None})
    return buffer.getvalue()


def test_a_published_archive_is_fetched_once(tmp_path: Path) -> None:
    with serving({"amazon_electronics_photo.npz": archive()}) as server:
        for _ in range(2):
            graph = npz.load_named("amazon-photo", root=tmp_path, base_url=server.url)
        assert server.requests == ["amazon_electronics_photo.npz"]
    assert (graph.name, graph.num_vertices, graph.num_edges) == ("amazon-photo", 3, 4)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"<html>not found</html>", "is not an .npz archive"),
        (archive(labels=None), "no member labels.npy"),
        (archive()[:-30], "is not an .npz archive"),
    ],
)
def test_a_file_that_is_no_graph_archive_is_not_kept(content: bytes, sentence: str, tmp_path: Path) -> None:
    with serving({"ms_academic_cs.npz": content}) as server, pytest.raises(DataError, match=sentence):
        npz.load_named("coauthor-cs", root=tmp_path, base_url=server.url)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_missing_archive_is_named_when_it_may_not_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ms_academic_phy.npz is missing and download=False"):
        npz.load_named("coauthor-physics", root=tmp_path, download=False)


def test_a_full_disk_is_no_failed_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def receive(*_: Any) -> str:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("dorylus.graph.datasets.download._receive", receive)
    with pytest.raises(DataError, match=r"^cannot write .*file: No space left on device\. Make room") as failed:
        fetch("https://nowhere/file", tmp_path / "file")
    assert failed.value.exit_code == 1
