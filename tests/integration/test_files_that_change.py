"""Files of a store, or of the run itself, that change while a run reads them: it stops with one sentence."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import dorylus
from dorylus.errors import DataError
from dorylus.graph.store import open_vertices
from dorylus.partition import make_partitioning, save_shards
from dorylus.pools import ThreadsPool
from dorylus.runs.checkpoint import latest
from dorylus.runtime import LocalRuntime
from dorylus.training.trainer import Trainer
from in_process_servers import remote_runtime

MODELS = {
    "gcn": dorylus.gcn(hidden=8, dropout=0.0),
    "sage": dorylus.sage(hidden=8, dropout=0.0),
    "gin": dorylus.gin(hidden=8, dropout=0.0),
    "gat": dorylus.gat(hidden=4, heads=2, dropout=0.0),
}
LIMITED = {"memory": "256MiB", "threads": 2, "epochs": 6}


@pytest.fixture(scope="module")
def whole_store(tmp_path_factory):
    """A directed store with out-edges, every file of it several pages long."""
    graph = dorylus.communities(num_vertices=6000, num_classes=4, num_features=12, average_degree=8)
    source, destination = graph.edge_list()
    kept = np.random.default_rng(0).random(source.size) < 0.7
    folder = tmp_path_factory.mktemp("whole")
    np.save(folder / "x.npy", graph.features)
    np.save(folder / "y.npy", graph.labels)
    np.save(folder / "train.npy", graph.train_mask)
    dorylus.Graph.ingest(
        (source[kept], destination[kept]),
        folder / "graph",
        undirected=False,
        features=folder / "x.npy",
        labels=folder / "y.npy",
        train=folder / "train.npy",
        num_vertices=6000,
    )
    return folder / "graph"


@pytest.fixture
def store(whole_store, tmp_path):
    """A copy that a test may damage."""
    copy = tmp_path / "graph"
    copy.mkdir()
    for file in whole_store.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 3)


def flip_a_bit_unseen(path: Path) -> None:
    """Change a file as a failing disk does: size and times stay."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(before.st_size // 2)
        byte = file.read(1)[0]
        file.seek(before.st_size // 2)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def run_and_damage(store, model, damage, **settings):
    """Two epochs, then a file changes, then two more."""
    with Trainer(dorylus.Graph.open(store), MODELS[model], **settings) as trainer:
        trainer.run(2)
        damage()
        trainer.run(2)
        return trainer.epoch


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("sage", "indices"),
        ("sage", "out.indices"),
        ("sage", "features"),
        ("gin", "indices"),
        ("gin", "features"),
        ("gcn", "indices"),
        ("gat", "features"),
        ("gcn", "labels"),
        ("gat", "indices"),
    ],
)
def test_a_file_cut_short_between_epochs_stops_a_run_under_a_limit(model, name, store):
    with pytest.raises(DataError, match=rf"{name}\.bin .* while it was in use"):
        run_and_damage(store, model, lambda: cut_short(store / f"{name}.bin"), **LIMITED)


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("name", ["indices", "out.indices", "features"])
def test_a_file_whose_bytes_change_unseen_between_epochs_stops_a_run_under_a_limit(name, store):
    with pytest.raises(DataError, match=rf"{name}\.bin gave other bytes from [\d,]+ to [\d,]+ than before while"):
        run_and_damage(store, "sage", lambda: flip_a_bit_unseen(store / f"{name}.bin"), **LIMITED)


@pytest.mark.parametrize("settings", [LIMITED, {}], ids=["under a limit", "in memory"])
@pytest.mark.parametrize("name", ["labels", "train_mask", "test_mask", "indptr"])
def test_a_mapped_file_whose_bytes_change_and_whose_times_are_set_back_stops_a_run(
    name, settings, store, request: pytest.FixtureRequest
):
    if settings:
        request.getfixturevalue("nothing_fits")
    with pytest.raises(DataError, match=rf"{name}\.bin was written to while it was in use"):
        run_and_damage(store, "gcn", lambda: flip_a_bit_unseen(store / f"{name}.bin"), **settings)


def test_a_mapped_file_that_only_gets_another_owner_does_not_stop_a_run(store):
    def touch_nothing() -> None:
        (store / "labels.bin").chmod(0o640)

    assert run_and_damage(store, "gcn", touch_nothing) == 4


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("name", ["indices", "features"])
def test_a_file_that_is_written_to_between_epochs_stops_a_run_under_a_limit(name, store):
    def write_the_same() -> None:
        path = store / f"{name}.bin"
        path.write_bytes(path.read_bytes())

    with pytest.raises(DataError, match=rf"{name}\.bin was written to while it was in use"):
        run_and_damage(store, "gin", write_the_same, **LIMITED)


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("name", ["indices", "out.indices", "features"])
def test_a_block_that_was_damaged_before_the_run_is_found_when_it_is_first_read(name, store):
    graph = dorylus.Graph.open(store)
    flip_a_bit_unseen(store / f"{name}.bin")
    with (
        pytest.raises(DataError, match=rf"{name}\.bin is damaged: its bytes from [\d,]+ to [\d,]+ are not those"),
        Trainer(graph, MODELS["sage"], **LIMITED) as trainer,
    ):
        trainer.run(1)


def without_block_sums(store):
    """The same store, as an older Dorylus wrote it."""
    (store / "blocks.crc32").unlink()
    manifest = json.loads((store / "manifest.json").read_text())
    del manifest["blocks"]
    (store / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.usefixtures("nothing_fits")
def test_a_store_without_block_checksums_is_compared_with_what_was_first_read_of_it(store):
    without_block_sums(store)
    with pytest.raises(DataError, match=r"indices\.bin gave other bytes"):
        run_and_damage(store, "sage", lambda: flip_a_bit_unseen(store / "indices.bin"), **LIMITED)


@pytest.mark.usefixtures("nothing_fits")
def test_a_store_gives_the_same_bits_with_and_without_block_checksums(whole_store, store):
    without_block_sums(store)
    first, second = (
        dorylus.train(dorylus.Graph.open(each), MODELS["sage"], **LIMITED) for each in (whole_store, store)
    )
    assert first.losses == second.losses


@pytest.mark.usefixtures("nothing_fits")
def test_a_store_that_is_replaced_before_its_edges_are_read_is_refused(store):
    graph = dorylus.Graph.open(store)
    other = dorylus.Graph.open(store)
    other.save(store, overwrite=True)
    with (
        pytest.raises(DataError, match=r"indices\.bin was replaced by another file while it was in use"),
        Trainer(graph, MODELS["gcn"], **LIMITED) as trainer,
    ):
        trainer.run(1)


@pytest.mark.usefixtures("nothing_fits")
def test_a_store_that_is_replaced_during_a_run_leaves_the_run_with_the_old_one(whole_store, store, tmp_path):
    expected = dorylus.train(dorylus.Graph.open(whole_store), MODELS["sage"], **LIMITED).losses

    def replace() -> None:
        dorylus.communities(num_vertices=6000, num_classes=4, num_features=12, seed=9).save(store, overwrite=True)

    with Trainer(dorylus.Graph.open(store), MODELS["sage"], **LIMITED) as trainer:
        trainer.run(2)
        replace()
        assert trainer.run().result().losses == expected


@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_a_file_cut_short_between_epochs_stops_a_run_in_memory_too(model, store):
    with pytest.raises(DataError, match=r"labels\.bin was cut short from [\d,]+ to [\d,]+ bytes while it was in use"):
        run_and_damage(store, model, lambda: cut_short(store / "labels.bin"), threads=2, epochs=6)


def test_nothing_of_a_damaged_epoch_is_saved(store, tmp_path):
    run = tmp_path / "run"
    settings = {"run_dir": str(run), "checkpoint_every": 1, "epochs": 6, "threads": 2}
    with pytest.raises(DataError, match="while it was in use"):
        run_and_damage(store, "gcn", lambda: cut_short(store / "labels.bin"), **settings)
    assert latest(run / "checkpoints").name.endswith("2")


@pytest.mark.usefixtures("nothing_fits")
@pytest.mark.parametrize("name", ["indices", "features"])
def test_predictions_under_a_limit_refuse_a_file_that_is_cut_short_before_the_pass(name, store, monkeypatch):
    graph = dorylus.Graph.open(store)
    model = dorylus.train(graph, MODELS["sage"], epochs=1, threads=1).model
    really = LocalRuntime.outputs

    def damaged_outputs(cluster):
        cut_short(store / f"{name}.bin")
        return really(cluster)

    monkeypatch.setattr(LocalRuntime, "outputs", damaged_outputs)
    with pytest.raises(DataError, match=rf"{name}\.bin was cut short"):
        dorylus.predict(graph, model, memory="256MiB")


@pytest.mark.parametrize("name", ["indices", "out.indices"])
def test_shards_are_not_cut_from_a_file_that_was_cut_short(name, store, tmp_path):
    graph = dorylus.Graph.open(store)
    parts = make_partitioning(graph, 2, "range")
    cut_short(store / f"{name}.bin")
    with pytest.raises(DataError, match=rf"{name}\.bin (was cut short|has [\d,]+ bytes instead)"):
        save_shards(tmp_path / "shards", graph, parts, memory="1GiB")
    assert not (tmp_path / "shards").exists()


def test_a_damaged_block_of_a_feature_row_is_found_by_the_server_that_reads_it(store):
    vertices = open_vertices(store)
    flip_a_bit_unseen(store / "features.bin")
    with pytest.raises(DataError, match=r"features\.bin is damaged: its bytes from"):
        vertices.features[np.arange(6000)]


def test_a_store_that_is_replaced_is_refused_by_a_server_that_reads_rows_of_it(store):
    vertices = open_vertices(store)
    dorylus.Graph.open(store).save(store, overwrite=True)
    with pytest.raises(DataError, match=r"features\.bin was replaced by another file"):
        vertices.features[np.arange(10)]


def test_a_shard_that_is_cut_short_stops_a_run_over_shards(store, tmp_path):
    graph = dorylus.Graph.open(store)
    save_shards(tmp_path / "shards", graph, make_partitioning(graph, 2, "range"))
    with pytest.raises(DataError, match=r"shard1\.in_loops\.bin was cut short"):
        run_and_damage(
            store,
            "gcn",
            lambda: cut_short(tmp_path / "shards" / "shard1.in_loops.bin"),
            servers=2,
            partition=str(tmp_path / "shards"),
            epochs=6,
            threads=2,
        )


ENDS_WITH_A_SENTENCE = """
import os, sys
from dorylus.graph import Graph
graph = Graph.open(sys.argv[1])
path = os.path.join(sys.argv[1], sys.argv[2])
os.truncate(path, 0)
print(graph.indptr.sum(), graph.indices.sum())
"""


@pytest.mark.parametrize("name", ["indptr.bin", "indices.bin"])
def test_a_mapped_file_that_is_cut_short_ends_the_process_with_a_sentence(name, store):
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_WITH_A_SENTENCE, store, name], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 1
    assert ended.stderr.startswith(f"error: {store}/{name} was cut short while it was in use. ")
    assert ended.stderr.count("\n") == 1
    assert not ended.stdout


def test_a_bus_error_of_another_mapping_is_not_handled(store, tmp_path):
    (tmp_path / "other").write_bytes(b"x" * 8192)
    other = (
        "import mmap; file = open(sys.argv[2], 'r+b'); seen = mmap.mmap(file.fileno(), 8192); file.truncate(0); seen[0]"
    )
    script = f"import sys; from dorylus.graph import Graph; graph = Graph.open(sys.argv[1]); {other}"
    ended = subprocess.run([sys.executable, "-c", script, store, tmp_path / "other"], capture_output=True, timeout=60)
    assert ended.returncode == -signal.SIGBUS
    assert not ended.stderr


def test_a_shard_that_is_cut_short_stops_a_run_on_remote_servers(store, tmp_path, monkeypatch):
    monkeypatch.setattr("dorylus.training.trainer.make_runtime", lambda job, *_: remote_runtime(job, ThreadsPool()))
    monkeypatch.setattr("dorylus.training.trainer.check_cluster", lambda config, pool: config)
    graph = dorylus.Graph.open(store)
    save_shards(tmp_path / "shards", graph, make_partitioning(graph, 2, "range"))
    settings = {"servers": 2, "cluster": "ray", "partition": str(tmp_path / "shards"), "threads": 1, "epochs": 6}
    with pytest.raises(DataError, match=r"shard1\.in_loops\.bin was cut short"):
        run_and_damage(store, "gcn", lambda: cut_short(tmp_path / "shards" / "shard1.in_loops.bin"), **settings)
