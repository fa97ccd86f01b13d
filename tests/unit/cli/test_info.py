import json

import numpy as np
import pytest

from dorylus.cli.info import rows
from dorylus.graph.features import SparseFeatures
from dorylus.graph.graph import Graph


def path_graph(**attributes):
    """0 - 1 - 2, and 3 alone."""
    return Graph.from_edges([0, 1], [1, 2], 4, **attributes)


def test_sizes_degrees_classes_split_and_memory_are_reported():
    graph = path_graph(
        features=np.ones((4, 3), np.float32),
        labels=np.array([0, 1, 1, -1]),
        train_mask=np.array([True, False, False, False]),
        test_mask=np.array([False, True, True, False]),
    )
    assert dict(rows(graph)) == {
        "vertices": "4",
        "edges": "4 stored, both directions of each",
        "in-degree": "0 to 2, median 1, mean 1.0; 1 vertices without in-edges",
        "features": "3 columns, dense, float32",
        "labels": "2 classes of 1 to 2 vertices; 1 vertices without label",
        "split": "1 train, 0 validation, 2 test",
        "memory": "56 bytes edges, 48 bytes features",
    }


@pytest.mark.parametrize(
    ("attributes", "name", "expected"),
    [
        ({"undirected": False}, "edges", "2 directed"),
        ({"edge_weight": np.ones(2, np.float32)}, "edges", "4 stored, both directions of each, weighted"),
        ({"labels": np.eye(4, dtype=np.uint8)}, "labels", "4 labels, 1.00 a vertex"),
        ({"labels": np.full(4, -1)}, "labels", "none"),
        ({}, "labels", "none"),
        ({"features": np.ones((4, 3), np.float16)}, "features", "3 columns, dense, float16"),
        ({"features": np.ones((4, 3), np.float16)}, "memory", "56 bytes edges, 24 bytes features"),
        (
            {"features": SparseFeatures.from_dense(np.eye(4, 5, dtype=np.float32))},
            "features",
            "5 columns, sparse, 20.0 % filled",
        ),
    ],
)
def test_every_kind_of_graph_is_described(attributes, name, expected):
    assert dict(rows(path_graph(**attributes)))[name] == expected


def test_the_extras_of_a_store_are_reported(tmp_path):
    (tmp_path / "names.txt").write_text("a b\nb c\n")
    cases = {
        "names": (
            tmp_path / "names.txt",
            {"undirected": False},
            "keep names that the input gave them; out-edges are l",
        ),
        "reordered": (
            ([0, 1], [1, 2]),
            {"reorder": "degree"},
            "keep numbers that the input gave them; out-edges are n",
        ),
        "plain": (([0, 1], [1, 2]), {}, "vertices have the input's numbers; out-edges are not listed"),
    }
    for name, (edges, options, sentence) in cases.items():
        assert sentence in dict(rows(Graph.ingest(edges, tmp_path / name, **options)))["store"]


def test_the_command_prints_the_table(dorylus_program):
    code, out, _ = dorylus_program("info", "ring:num_vertices=12")
    assert code == 0
    assert "24 stored" in out


def test_an_unknown_graph_is_refused_with_the_nearest(dorylus_program):
    code, _, err = dorylus_program("info", "coar")
    assert code == 2
    assert "'cora'" in err


@pytest.fixture
def stored(tmp_path):
    path_graph(features=np.ones((4, 3), np.float32)).save(tmp_path / "st")
    return tmp_path / "st"


def test_checksums_of_a_whole_store_are_as_written(dorylus_program, stored):
    code, out, err = dorylus_program("info", "st", "--verify")
    assert (code, err) == (0, "")
    assert "all 6 arrays are as written" in out
    assert "checksums" not in dorylus_program("info", "st")[1]


def test_a_store_without_checksums_of_blocks_is_reported(dorylus_program, stored):
    (stored / "blocks.crc32").unlink()
    manifest = json.loads((stored / "manifest.json").read_text())
    del manifest["blocks"]
    (stored / "manifest.json").write_text(json.dumps(manifest))
    code, out, err = dorylus_program("info", "st", "--verify")
    assert (code, err) == (0, "")
    assert "all 6 arrays are as written; the store has no checksums of blocks" in " ".join(out.split())


def test_a_damaged_store_is_reported_in_one_sentence(dorylus_program, stored):
    (stored / "features.bin").write_bytes(np.full(12, 2, "<f4").tobytes())
    assert dorylus_program("info", "st")[0] == 0, "its files are as long as they were"
    code, out, err = dorylus_program("info", "st", "--verify")
    assert (code, out) == (2, "")
    found = "the checksum of features differs between bytes 0 and 48 from the one in blocks.crc32"
    assert err == f"error: the store {stored} is damaged: {found}. Copy or ingest it again.\n"


@pytest.mark.parametrize("graph", ["ring:num_vertices=12", "cora", "nowhere/st", "."])
def test_only_stores_have_checksums(dorylus_program, graph, tmp_path):
    code, _, err = dorylus_program("info", graph, "--verify")
    name = str(tmp_path) if graph == "." else graph
    assert code == 2
    assert err == f"error: {name} is not a store, and only stores have checksums: give a store, or no --verify.\n"
