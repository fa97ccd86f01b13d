"""Features stored as float16: what a store holds, what comes back, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import dorylus
from dorylus.errors import ConfigError, DataError, GraphError
from dorylus.graph import Graph, SparseFeatures
from dorylus.graph.features import to_float32
from dorylus.graph.interop.conversion import dense_features
from dorylus.graph.store import StoredSparseRows, open_vertices
from dorylus.partition import LocalShard, plain_partition_plan, whole_shard
from dorylus.saga import reference

N = 6
FEATURES = np.random.default_rng(0).standard_normal((N, 3)).astype(np.float32)
HALF = FEATURES.astype(np.float16)


def six(features: Any = FEATURES) -> Graph:
    return Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 5], N, features=features)


def saved(folder: Path, features: Any = FEATURES, **settings: Any) -> Graph:
    six(features).save(folder / "store", **settings)
    return Graph.open(folder / "store", verify=True)


def manifest_of(folder: Path) -> Any:
    return json.loads((folder / "store" / "manifest.json").read_text())


def test_a_store_holds_half_the_bytes_and_records_the_type(tmp_path: Path) -> None:
    graph = saved(tmp_path, feature_dtype="float16")
    assert (tmp_path / "store" / "features.bin").read_bytes() == HALF.tobytes()
    assert manifest_of(tmp_path)["version"] == 3
    assert (graph.features.dtype, graph.feature_dtype) == (np.float16, np.float16)
    np.testing.assert_array_equal(graph.features, HALF)
    assert "3 float16 features" in repr(graph)


def test_features_that_are_float16_stay_float16_by_default(tmp_path: Path) -> None:
    assert saved(tmp_path, HALF).feature_dtype == np.float16
    again = saved(tmp_path, HALF, feature_dtype="float32", overwrite=True)
    assert again.feature_dtype == np.float32
    np.testing.assert_array_equal(again.features, HALF.astype(np.float32))
    assert manifest_of(tmp_path)["version"] == 1


def test_sparse_values_are_stored_in_two_bytes_and_opened_as_float32(tmp_path: Path) -> None:
    graph = saved(tmp_path, SparseFeatures.from_dense(FEATURES), feature_dtype="float16")
    assert isinstance(graph.features, SparseFeatures)
    assert (tmp_path / "store" / "features.values.bin").stat().st_size == 2 * FEATURES.size
    np.testing.assert_array_equal(graph.features.to_dense(), HALF.astype(np.float32))
    stored = open_vertices(tmp_path / "store").features
    assert isinstance(stored, StoredSparseRows)
    rows = np.array([4, 1])
    np.testing.assert_array_equal(stored.to_dense(rows), HALF[rows].astype(np.float32))


def test_a_server_that_reads_rows_of_a_store_gets_the_same_values(tmp_path: Path) -> None:
    graph = saved(tmp_path, feature_dtype="float16")
    cut, stored = plain_partition_plan(graph.indptr, 2, 2), open_vertices(tmp_path / "store")
    shard = LocalShard(whole_shard(graph), cut, stored)
    assert shard.half_features
    np.testing.assert_array_equal(shard.wide_features(), HALF.astype(np.float32))
    some = shard.feature_columns(slice(1, 3))
    assert some.dtype == np.float32
    np.testing.assert_array_equal(some, HALF[:, 1:3].astype(np.float32))
    assert shard.wide_features() is shard.wide_features()
    shard.drop_features()
    np.testing.assert_array_equal(shard.wide_features(keep=False), HALF.astype(np.float32))


def test_exported_features_are_float32() -> None:
    graph = six(HALF)
    wide = HALF.astype(np.float32)
    exported = dense_features(graph)
    assert exported.flags.writeable
    for found in (to_float32(HALF), exported, graph.to_pyg().x.numpy()):
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, wide)
    np.testing.assert_array_equal(graph.row_normalised().features, six(wide).row_normalised().features)
    program = dorylus.sage(hidden=4).build(3, 2)
    assert reference.forward(program, graph).equal(reference.forward(program, six(wide)))


def test_float32_is_not_copied() -> None:
    assert np.shares_memory(to_float32(FEATURES), FEATURES)


@pytest.mark.parametrize("value", [65520.0, -1e6])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_value_that_is_too_large_is_named_and_nothing_is_written(value: float, sparse: bool, tmp_path: Path) -> None:
    features = FEATURES.copy()
    features[4, 2] = value
    given_ = SparseFeatures.from_dense(features) if sparse else features
    with pytest.raises(GraphError, match=rf"features\[4, 2\] is {value:.7g} \(vertex 4, column 2\).*65504.*Scale"):
        six(given_).save(tmp_path / "store", feature_dtype="float16")
    assert list(tmp_path.iterdir()) == []


def test_a_value_that_rounds_to_the_largest_fits(tmp_path: Path) -> None:
    features = np.full((N, 1), 65519.9, np.float32)
    assert float(saved(tmp_path, features, feature_dtype="float16").features.max()) == 65504


def test_an_unknown_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown feature_dtype 'bf16': the known ones are float16, float32"):
        six().save(tmp_path / "store", feature_dtype="bf16")


def test_two_bytes_in_an_older_version_or_in_another_array_are_damage(tmp_path: Path) -> None:
    saved(tmp_path, feature_dtype="float16")
    manifest = manifest_of(tmp_path)
    manifest["version"] = 2
    (tmp_path / "store" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match=r"damaged: features is <f2 in version 2"):
        Graph.open(tmp_path / "store")


def test_a_damaged_byte_is_found_by_its_checksum(tmp_path: Path) -> None:
    saved(tmp_path, feature_dtype="float16")
    path = tmp_path / "store" / "features.bin"
    damaged = bytearray(path.read_bytes())
    damaged[5] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(DataError, match="checksum of features differs"):
        Graph.open(tmp_path / "store", verify=True)


def numbers(dtype: str) -> st.SearchStrategy[Any]:
    bits: Any = 8 * np.dtype(dtype).itemsize
    elements: Any = st.integers(-60000, 60000) if dtype[0] == "i" else st.floats(-60000, 60000, width=bits)
    return arrays.arrays(dtype, (N, 2), elements=elements)


@settings(max_examples=20)
@given(features=st.sampled_from(["f2", "f4", "f8", "i4"]).flatmap(numbers))
def test_ingest_rounds_as_numpy_does(features: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("ingest")
    np.save(folder / "x.npy", features)
    graph = Graph.ingest(([0, 1], [1, 2]), folder / "store", features=folder / "x.npy", feature_dtype="float16")
    assert graph.features.tobytes() == features.astype(np.float16).tobytes()  # type: ignore[union-attr]
    assert manifest_of(folder)["version"] == 3
