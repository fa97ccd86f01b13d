"""A graph knows how it is made again, so a run in Python can be used from its folder alone."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow.csv import read_csv

import dorylus
from dorylus.cli import main
from dorylus.errors import ConfigError, DataError
from dorylus.graph import Graph
from dorylus.inference import predict_from
from dorylus.runs import RunFolder


def write_tables(folder: Path) -> None:
    rows = [f"v{number},{'ab'[number % 2]},{number % 2 + number / 90},{1 + number % 3}" for number in range(60)]
    (folder / "v.csv").write_text("\n".join(["id,kind,x,y", *rows]))
    edges = [f"v{number},v{(number + step) % 60}" for number in range(60) for step in (2, 4)]
    (folder / "e.csv").write_text("\n".join(["source,target", *edges]))


def of_tables(folder: Path) -> Graph:
    write_tables(folder)
    return Graph.from_tables("e.csv", Path("v.csv"), label="kind", split={"train": 0.5, "val": 0.2}, seed=3)


def of_store(folder: Path) -> Graph:
    dorylus.ring(60, num_classes=2).save("store")
    return Graph.open("store")


def of_npz(folder: Path) -> Graph:
    graph = dorylus.ring(60, num_classes=2)
    adjacency = graph.to_scipy()
    parts = {f"adj_{name}": getattr(adjacency, name) for name in ("data", "indices", "indptr")}
    np.savez("g.npz", **parts, adj_shape=adjacency.shape, attr_matrix=graph.features, labels=graph.labels)
    return dorylus.load("g.npz", seed=4)


MAKERS = {
    "tables": of_tables,
    "store": of_store,
    "npz": of_npz,
    "generator": lambda _: dorylus.communities(np.int64(200), num_classes=3, split=(0.5, 0.2)),
    "text": lambda _: dorylus.load("ring:num_vertices=60", num_classes=2),
}


@pytest.mark.parametrize("normalise", [False, True], ids=["as it is", "row-normalised"])
@pytest.mark.parametrize("name", MAKERS)
def test_a_run_is_predicted_and_resumed_without_naming_its_graph_or_model(
    name: str, normalise: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = MAKERS[name](tmp_path)
    graph = graph.row_normalised() if normalise else graph
    with dorylus.Trainer(graph, dorylus.gat(hidden=4, heads=2), epochs=2, threads=1, run_dir="run") as trainer:
        trainer.run(1)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")  # paths are absolute
    result = dorylus.resume(tmp_path / "run")
    assert len(result.losses) == 2
    np.testing.assert_array_equal(predict_from(tmp_path / "run"), result.predict())
    assert RunFolder.open(tmp_path / "run").load_graph().is_row_normalised == normalise


def test_a_graph_that_was_changed_in_memory_is_asked_for(tmp_path: Path) -> None:
    ring = dorylus.ring(60, num_classes=2)
    graph = replace(ring, train_mask=~ring.test_mask)
    assert graph.origin is None
    dorylus.train(graph, dorylus.gcn(hidden=4), epochs=1, threads=1, run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match=r"a graph of its own, .*: give graph=, or continue in Python"):
        predict_from(tmp_path / "run")


def test_a_run_on_tables_is_repeated_by_its_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = dorylus.train(of_tables(tmp_path), dorylus.gcn(hidden=4), epochs=2, threads=1, run_dir="run")
    with pytest.raises(SystemExit) as end:
        main(["train", "--config", "run/run.toml", "--run-dir", "again", "--quiet"])
    assert not end.value.code
    np.testing.assert_array_equal(predict_from("again"), first.predict())


def test_what_a_file_cannot_hold_is_not_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(tmp_path)
    options = {"label": "kind", "split": {"train": [f"v{number}" for number in range(30)]}}
    assert Graph.from_tables("e.csv", "v.csv", **options).origin["tables"]["split"] == options["split"]
    assert Graph.from_tables("e.csv", "v.csv", label="kind", split={"train": np.arange(60) < 30}).origin is None
    assert Graph.from_tables(read_csv("e.csv"), "v.csv", **options).origin is None


def test_a_store_that_has_changed_since_training_is_refused(tmp_path: Path) -> None:
    graph = dorylus.ring(60, num_classes=2)
    graph.save(tmp_path / "store")
    dorylus.train(Graph.open(tmp_path / "store"), dorylus.gcn(hidden=4), epochs=1, threads=1, run_dir=tmp_path / "run")
    replace(graph, features=graph.features + 1, trust="everything").save(tmp_path / "store", overwrite=True)
    with pytest.raises(DataError, match=r"has changed since it was trained on .*give graph= to use the model on"):
        predict_from(tmp_path / "run")
    assert predict_from(tmp_path / "run", graph=Graph.open(tmp_path / "store")).shape == (60, 2)


def test_a_run_whose_graph_has_moved_keeps_the_new_place(tmp_path: Path) -> None:
    dorylus.ring(60, num_classes=2).save(tmp_path / "old")
    with dorylus.Trainer(
        Graph.open(tmp_path / "old"), dorylus.gcn(hidden=4), epochs=2, threads=1, run_dir=tmp_path / "run"
    ) as trainer:
        trainer.run(1)
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(DataError, match=r"/old, which is not there\. Put it back, give graph= "):
        dorylus.resume(tmp_path / "run")
    result = dorylus.resume(tmp_path / "run", Graph.open(tmp_path / "new"))
    assert RunFolder.open(tmp_path / "run").spec.graph == {"source": str(tmp_path / "new")}
    np.testing.assert_array_equal(predict_from(tmp_path / "run"), result.predict())
