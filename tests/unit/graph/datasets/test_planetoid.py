"""Cora, Citeseer and Pubmed: the real files against their plain form, and small files of the same shape."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from shared_data import FOLDER, needs_shared_data

from dorylus.errors import DataError
from dorylus.graph import Graph, SparseFeatures, load
from dorylus.graph.datasets import planetoid
from small_planetoid import write_small_set


def dense(graph: Graph) -> np.ndarray:
    return graph.features.to_dense() if isinstance(graph.features, SparseFeatures) else graph.features


@needs_shared_data
@pytest.mark.parametrize("name", planetoid.NAMES)
def test_the_original_files_give_the_published_graph(name: str) -> None:
    graph = load(name, root=FOLDER / "planetoid", download=False)
    plain = load(FOLDER / "plain" / f"{name}.npz")
    assert np.array_equal(graph.indptr, plain.indptr)
    assert np.array_equal(graph.indices, plain.indices)
    assert graph.labels is not None
    assert plain.labels is not None
    assert np.array_equal(graph.labels, plain.labels)
    for mask in ("train_mask", "val_mask", "test_mask"):
        assert np.array_equal(getattr(graph, mask), getattr(plain, mask)), mask
    assert np.array_equal(dense(graph), dense(plain))
    assert isinstance(graph.features, SparseFeatures)
    assert isinstance(plain.features, SparseFeatures)


@needs_shared_data
def test_the_sums_are_those_of_the_original_files() -> None:
    for name, expected in planetoid.SHA256.items():
        assert hashlib.sha256((FOLDER / "planetoid" / name).read_bytes()).hexdigest() == expected


@pytest.fixture
def small_val(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planetoid, "NUM_VAL", 2)


@pytest.mark.usefixtures("small_val")
def test_rows_of_the_test_block_go_to_their_vertices(tmp_path: Path) -> None:
    write_small_set(tmp_path)
    graph = planetoid.load("citeseer", root=tmp_path, download=False)
    assert graph.num_vertices == 7
    assert dense(graph)[[4, 5, 6]].tolist() == [[0, 0, 0, 4], [0, 0, 0, 0], [0, 0, 0, 6]]
    assert graph.labels is not None
    assert graph.labels.tolist() == [0, 1, 0, 1, 0, 0, 1]
    assert np.flatnonzero(graph.train_mask).tolist() == [0, 1]
    assert np.flatnonzero(graph.val_mask).tolist() == [2, 3]
    assert np.flatnonzero(graph.test_mask).tolist() == [4, 6]
    assert sorted(zip(*(ends.tolist() for ends in graph.edge_list()), strict=True)) == [
        (0, 1), (0, 4), (1, 0), (2, 6), (4, 0), (6, 2),
    ]  # fmt: skip


@pytest.mark.usefixtures("small_val")
@pytest.mark.parametrize("place", [".", "planetoid", "citeseer/raw", "Citeseer/raw"])
def test_the_files_are_found_in_the_usual_folders(place: str, tmp_path: Path) -> None:
    write_small_set(tmp_path / place)
    assert load("citeseer", root=tmp_path, download=False).num_vertices == 7


def names_of(*parts: str) -> str:
    return ", ".join(f"ind.citeseer.{part}" for part in parts)


def test_all_files_that_are_missing_are_named_when_they_may_not_be_fetched(tmp_path: Path) -> None:
    with pytest.raises(DataError) as refused:
        load("citeseer", root=tmp_path, download=False)
    assert str(refused.value) == (
        f"with download=False, citeseer lacks 8 of its 8 files in {tmp_path / 'planetoid'}: "
        f"{names_of(*planetoid.PARTS)}. Put them there, or allow the download."
    )


@pytest.mark.parametrize("place", [".", "planetoid", "Citeseer/raw"])
def test_files_that_are_missing_are_looked_for_where_the_others_are(place: str, tmp_path: Path) -> None:
    write_small_set(tmp_path / place)
    for part in ("graph", "y", "test.index"):
        (tmp_path / place / f"ind.citeseer.{part}").unlink()
    with pytest.raises(DataError) as refused:
        load("citeseer", root=tmp_path, download=False)
    missing = f"lacks 3 of its 8 files in {tmp_path / place}: {names_of('y', 'graph', 'test.index')}. Put them there"
    assert missing in str(refused.value)


def test_a_failed_download_names_all_files_that_are_still_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(url: str, target: Path, **_: object) -> None:
        if target.name.endswith(".graph"):
            raise DataError(f"cannot download {url}.")
        target.touch()

    write_small_set(tmp_path)
    for part in ("y", "graph", "test.index"):
        (tmp_path / f"ind.citeseer.{part}").unlink()
    monkeypatch.setattr(planetoid, "fetch", fetch)
    with pytest.raises(DataError, match=r"^cannot download .*ind\.citeseer\.graph\. In all, ") as failed:
        load("citeseer", root=tmp_path)
    assert str(failed.value).endswith(f"lacks 2 of its 8 files in {tmp_path}: {names_of('graph', 'test.index')}.")


def test_files_that_do_not_fit_together_are_one_sentence(tmp_path: Path) -> None:
    write_small_set(tmp_path)
    (tmp_path / "ind.citeseer.test.index").write_text("6\n4\n5\n")
    with pytest.raises(DataError, match="do not fit together"):
        load("citeseer", root=tmp_path, download=False)


def test_a_test_index_of_text_is_one_sentence(tmp_path: Path) -> None:
    write_small_set(tmp_path)
    (tmp_path / "ind.citeseer.test.index").write_text("<html>\n")
    with pytest.raises(DataError, match="not a list of vertex numbers"):
        load("citeseer", root=tmp_path, download=False)
