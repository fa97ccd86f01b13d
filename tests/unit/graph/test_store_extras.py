"""Stores of version 2: out-edges and ids are stored with the graph and read only on request."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dorylus.errors import DataError
from dorylus.graph import Graph
from dorylus.graph.store import open_ids, open_out_edges


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A directed store with weights."""
    Graph.ingest(([0, 1, 1, 3], [2, 2, 0, 1], [1.0, 2.0, 3.0, 4.0]), tmp_path / "store", undirected=False)
    return tmp_path / "store"


def rewrite(path: Path, **changes: Any) -> None:
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | changes))


def test_out_edges_list_destinations_ascending_with_their_weights(store: Path) -> None:
    out = open_out_edges(store)
    assert out is not None
    assert out.indptr.tolist() == [0, 1, 3, 3, 4]
    assert out.indices.tolist() == [2, 0, 2, 1]
    assert out.edge_weight is not None
    assert out.edge_weight.tolist() == [1.0, 3.0, 2.0, 4.0]
    assert json.loads((store / "manifest.json").read_text())["version"] == 2


def test_a_store_without_extras_is_of_version_1_and_has_none(tmp_path: Path) -> None:
    Graph.ingest(([0, 1], [1, 2]), tmp_path / "plain")
    assert json.loads((tmp_path / "plain" / "manifest.json").read_text())["version"] == 1
    assert open_out_edges(tmp_path / "plain") is None
    assert open_ids(tmp_path / "plain") is None


def test_bytes_of_out_edges_are_read_only_when_verified(store: Path) -> None:
    (store / "out.indices.bin").write_bytes(bytes(16))
    assert Graph.open(store).num_edges == 4
    with pytest.raises(DataError, match=r"checksum of out\.indices differs"):
        Graph.open(store, verify=True)


def test_a_truncated_array_of_out_edges_is_found_when_opened(store: Path) -> None:
    (store / "out.indices.bin").write_bytes(bytes(15))
    with pytest.raises(DataError, match=r"out\.indices\.bin has 15 bytes instead of 16"):
        Graph.open(store)


def test_extras_in_version_1_are_damage(store: Path) -> None:
    rewrite(store, version=1)
    for opened in (Graph.open, open_out_edges):
        with pytest.raises(DataError, match=r"damaged: array 'out.edge_weight' in version 1"):
            opened(store)


def test_half_of_the_out_edges_is_damage(store: Path) -> None:
    arrays = json.loads((store / "manifest.json").read_text())["arrays"]
    del arrays["out.indices"]
    rewrite(store, arrays=arrays)
    with pytest.raises(DataError, match=r"'out.indptr' and 'out.indices' without the other"):
        Graph.open(store)


def test_out_edges_of_another_length_are_damage(store: Path) -> None:
    arrays = json.loads((store / "manifest.json").read_text())["arrays"]
    arrays["out.indptr"] = arrays["out.indices"]
    rewrite(store, arrays=arrays)
    with pytest.raises(DataError, match=r"damaged: out.indptr is <i4 \[4\]"):
        open_out_edges(store)


def names_of(store: Path) -> dict[str, Any]:
    manifest = json.loads((store / "manifest.json").read_text())
    return {name: entry["crc32"] for name, entry in manifest["arrays"].items()} | {"version": manifest["version"]}


def test_a_graph_saved_again_keeps_its_out_edges(store: Path, tmp_path: Path) -> None:
    Graph.open(store).save(tmp_path / "again")
    assert names_of(tmp_path / "again") == names_of(store)
    assert "out.edge_weight" in names_of(store)
    assert Graph.open(tmp_path / "again", verify=True).num_edges == 4


@pytest.mark.parametrize("ids", ["map", "strings"])
def test_a_graph_saved_again_keeps_its_original_ids(ids: str, tmp_path: Path) -> None:
    names = ["70", "11", "900"] if ids == "map" else ["ant", "bee", "wasp"]
    (tmp_path / "edges.tsv").write_text(f"{names[0]}\t{names[1]}\n{names[1]}\t{names[2]}\n")
    Graph.ingest(tmp_path / "edges.tsv", tmp_path / "store", ids=ids)
    Graph.open(tmp_path / "store").save(tmp_path / "again")
    assert names_of(tmp_path / "again") == names_of(tmp_path / "store")
    assert ("ids" if ids == "map" else "ids.bytes") in names_of(tmp_path / "again")
    assert open_ids(tmp_path / "again") is not None


def test_a_store_may_be_written_over_by_its_own_graph(store: Path) -> None:
    before = names_of(store)
    Graph.open(store).save(store, overwrite=True)
    assert names_of(store) == before


def test_out_edges_of_another_graph_in_the_same_place_are_not_taken(store: Path, tmp_path: Path) -> None:
    graph = Graph.open(store)
    Graph.ingest(([0, 1, 2, 3], [3, 3, 3, 0]), store, undirected=False, overwrite=True)
    graph.save(tmp_path / "again")
    assert open_out_edges(tmp_path / "again") is None
    assert names_of(tmp_path / "again")["version"] == 1


def test_a_graph_whose_store_is_gone_is_saved_as_it_is(store: Path, tmp_path: Path) -> None:
    graph = Graph.open(store)
    shutil.rmtree(store)
    graph.save(tmp_path / "again")
    assert Graph.open(tmp_path / "again").num_edges == 4
