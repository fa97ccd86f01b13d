"""Tables of predictions: ids, class names and probabilities, in memory and in files, whatever the memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pyarrow import csv, parquet

import dorylus
from dorylus.errors import ConfigError
from dorylus.graph import Graph, TextIds
from dorylus.inference import predict_from
from dorylus.runs import RunSpec

NUM_VERTICES = 300


def texts(names: list[str]) -> TextIds:
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)], dtype=np.int64)
    return TextIds(offsets, np.frombuffer(b"".join(encoded), np.uint8))


IDS = [f'v "{number}", ü' for number in range(NUM_VERTICES)]


def trained(graph: Graph, **settings: Any) -> Any:
    return dorylus.train(graph, dorylus.gcn(hidden=4), epochs=2, threads=1, **settings)


@pytest.fixture(scope="module")
def named() -> Any:
    graph = dorylus.communities(num_vertices=NUM_VERTICES, average_degree=6, num_classes=3, seed=1)
    return trained(replace(graph, ids=texts(IDS), class_names=("art", "bio, new", "chem"), trust="everything"))


def test_rows_are_ids_the_likeliest_class_and_its_softmax(named: Any) -> None:
    table = named.predict_table()
    shares = torch.softmax(torch.as_tensor(named.predict("logits")), dim=1).numpy()
    assert table["id"].to_pylist() == IDS
    assert table["class"].to_pylist() == [named.graph.class_names[k] for k in shares.argmax(axis=1)]
    np.testing.assert_allclose(table["probability"].to_numpy(), shares.max(axis=1), rtol=1e-5)


@pytest.mark.parametrize("memory", [None, "1GiB"])
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_files_hold_the_same_table(named: Any, tmp_path: Path, suffix: str, memory: str | None) -> None:
    path = tmp_path / f"x.{suffix}"
    written = named.predict("table", out=path, memory=memory)
    assert (written.num_vertices, written.ids) == (NUM_VERTICES, None)
    table = parquet.read_table(path) if suffix == "parquet" else csv.read_csv(path)
    expected = named.predict_table()
    assert table["id"].to_pylist() == IDS
    assert table["class"].to_pylist() == expected["class"].to_pylist()
    np.testing.assert_allclose(table["probability"].to_numpy(), expected["probability"].to_numpy(), rtol=1e-5)
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_without_names_ids_and_classes_are_numbers() -> None:
    graph = dorylus.communities(num_vertices=NUM_VERTICES, average_degree=6, num_classes=3, seed=1)
    result = trained(graph)
    table = result.predict_table()
    assert table["id"].to_pylist() == list(range(NUM_VERTICES))
    assert table["class"].to_pylist() == result.predict("classes").tolist()


def test_several_labels_have_a_probability_each() -> None:
    graph = dorylus.communities(num_vertices=NUM_VERTICES, average_degree=6, num_classes=3, seed=1, multilabel=True)
    result = trained(replace(graph, class_names=("x", "y", "z"), trust="everything"))
    table = result.predict_table()
    assert table.column_names == ["id", "x", "y", "z"]
    expected = torch.sigmoid(torch.as_tensor(result.predict("logits"))).numpy()
    np.testing.assert_allclose(np.stack([table[name].to_numpy() for name in "xyz"], axis=1), expected, rtol=1e-5)


def test_names_survive_training_resuming_and_prediction_of_a_store(named: Any, tmp_path: Path) -> None:
    named.graph.save(tmp_path / "store")
    spec = RunSpec({"source": str(tmp_path / "store"), "row_normalise": True}, {"name": "gcn", "hidden": 4})
    run_dir = tmp_path / "run"
    with dorylus.Trainer(spec.load_graph(), spec.build_model(), spec=spec, run_dir=run_dir, epochs=2, threads=1) as run:
        run.run(1)
    resumed = dorylus.resume(tmp_path / "run")
    assert resumed.predict_table()["id"].to_pylist() == IDS
    predict_from(tmp_path / "run", "table", out=tmp_path / "x.parquet")
    table = parquet.read_table(tmp_path / "x.parquet")
    assert table["id"].to_pylist() == IDS
    assert set(table["class"].to_pylist()) <= set(named.graph.class_names)


@pytest.mark.parametrize(
    ("what", "path", "message"),
    [
        ("table", "x.npy", r"table cannot be written to .*x\.npy: name a file that ends in \.parquet or \.csv"),
        ("classes", "x.csv", r"x\.csv: name a file that ends in \.npy or \.parquet, or predict a table for \.csv"),
    ],
)
def test_a_file_of_another_form_is_refused(named: Any, tmp_path: Path, what: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        named.predict(what, out=tmp_path / path)
