"""The code that is killed: every writer of files, the state before it writes, and the state found afterwards."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from dorylus.config import RunConfig
from dorylus.functions.deploy import package
from dorylus.functions.program import ExportedProgram
from dorylus.functions.program_cache import ProgramCache
from dorylus.graph import Graph
from dorylus.inference.prediction_file import PredictionFile, StoredNumberIds
from dorylus.inference.prediction_pass import PredictionForm
from dorylus.ingest.entry_point import ingest_edges
from dorylus.partition import make_partitioning, open_shards, save_shards
from dorylus.runs import JsonlSink, checkpoint, read_log
from dorylus.runs.checkpoint import Checkpoint, CheckpointStore
from dorylus.runs.ledger import UsageLedger
from dorylus.runs.run_folder import RunFolder, RunSpec, make_folder
from dorylus.runs.run_lock import RunLock


class Writer(Protocol):
    """Writes something once; ``found`` is "old" or "new", anything else is an invalid state."""

    def prepare(self, place: Path) -> None: ...

    def write(self, place: Path) -> None: ...

    def found(self, place: Path) -> str: ...


def _state(epoch: int, value: float) -> Checkpoint:
    weights = {"w": torch.full((64,), value)}
    return Checkpoint(epoch=epoch, weights=weights, optimizer={"state": {}, "groups": {}}, progress={"value": value})


class NewCheckpoint:
    """A checkpoint of a later epoch next to two others; the first of them is then removed."""

    def prepare(self, place: Path) -> None:
        for epoch in (10, 20):
            checkpoint.save(place / "checkpoints", _state(epoch, 1.0))

    def write(self, place: Path) -> None:
        CheckpointStore(_run(place)).save(_state(30, 2.0))

    def found(self, place: Path) -> str:
        state = checkpoint.load(place / "checkpoints")
        return {20: "old", 30: "new"}[state.epoch]


class SameCheckpoint:
    """A checkpoint in the place of one of the same epoch, the only one there is."""

    def prepare(self, place: Path) -> None:
        checkpoint.save(place / "checkpoints", _state(10, 1.0))

    def write(self, place: Path) -> None:
        checkpoint.save(place / "checkpoints", _state(10, 2.0))

    def found(self, place: Path) -> str:
        state = checkpoint.load(place / "checkpoints")
        assert state.weights["w"].unique().tolist() == [state.progress["value"]]
        return {1.0: "old", 2.0: "new"}[state.progress["value"]]


class SameBest:
    """The best model, saved once more for the same epoch: a resumed run trains it again."""

    def prepare(self, place: Path) -> None:
        CheckpointStore(_run(place)).save_best(_state(7, 1.0))

    def write(self, place: Path) -> None:
        CheckpointStore(_run(place)).save_best(_state(7, 2.0))

    def found(self, place: Path) -> str:
        (value,) = CheckpointStore(_run(place)).best_weights(7)["w"].unique().tolist()
        return {1.0: "old", 2.0: "new"}[value]


def _run(place: Path) -> RunFolder:
    return RunFolder(place, RunSpec(), RunConfig())


@contextmanager
def _held(run: RunFolder) -> Iterator[RunFolder]:
    """A run folder as a trainer takes it: locked, then swept."""
    lock = RunLock(run.path)
    run.sweep()
    yield run
    lock.release()


class NewRun:
    """The folder of a run that begins."""

    def prepare(self, place: Path) -> None:
        pass

    def write(self, place: Path) -> None:
        if (place / "run" / "run.toml").exists():
            with _held(RunFolder.open(place / "run")):
                return
        make_folder(place / "run")
        with _held(RunFolder(place / "run", RunSpec(), RunConfig())):
            RunFolder.create(place / "run", None, RunConfig(epochs=2))

    def found(self, place: Path) -> str:
        if not (place / "run" / "run.toml").exists():
            return "old"
        return {2: "new"}[RunFolder.open(place / "run").config.epochs]


class RunToml:
    """The settings of a run that goes on with others."""

    def prepare(self, place: Path) -> None:
        RunFolder(place / "run", RunSpec(), RunConfig(epochs=1)).write()

    def write(self, place: Path) -> None:
        with _held(RunFolder.open(place / "run")) as run:
            run.with_config(RunConfig(epochs=2)).write()

    def found(self, place: Path) -> str:
        return {1: "old", 2: "new"}[RunFolder.open(place / "run").config.epochs]


class Metrics:
    """The result of a run that was finished before."""

    def prepare(self, place: Path) -> None:
        _run(place).write_metrics({"value": "old"})

    def write(self, place: Path) -> None:
        with _held(_run(place)) as run:
            run.write_metrics({"value": "new"})

    def found(self, place: Path) -> str:
        return str((_run(place).read_metrics() or {})["value"])


class Used:
    """What a run has used, written during the run and with a checkpoint."""

    def prepare(self, place: Path) -> None:
        self._note(place, 1)
        _run(place).write_used(_used(1))

    def write(self, place: Path) -> None:
        with _held(_run(place)) as run:
            for amount in (2, 3):
                self._note(place, amount)
            run.write_used(_used(3))

    def found(self, place: Path) -> str:
        used = (_run(place).read_used() or {})["server_ns"]["graph"]["training"]
        return {1: "old", 2: "old", 3: "new"}[used]

    def _note(self, place: Path, amount: int) -> None:
        ledger = UsageLedger(_run(place).ledger, lambda ahead_s: _used(amount))
        ledger.write()
        ledger.close()


def _used(amount: int) -> dict[str, Any]:
    return {"server_ns": {"graph": {"training": amount}}, "functions": {}, "moved_bytes": {}, "service": None}


class Log:
    """A record at the end of a log."""

    def prepare(self, place: Path) -> None:
        self._write(place, "old", append=False)

    def write(self, place: Path) -> None:
        self._write(place, "new", append=True)

    def found(self, place: Path) -> str:
        values = [record["value"] for record in read_log(place / "log.jsonl")]
        assert values[0] == "old"
        return str(values[-1])

    def _write(self, place: Path, value: str, *, append: bool) -> None:
        sink = JsonlSink(place / "log.jsonl", append=append)
        sink.write({"kind": "x", "value": value})
        sink.close()


def _graph(name: str, size: int) -> Graph:
    return Graph.from_edges(np.arange(size), np.roll(np.arange(size), 1), name=name)


class Store:
    """A graph's store in the place of another."""

    def prepare(self, place: Path) -> None:
        _graph("old", 20).save(place / "store")

    def write(self, place: Path) -> None:
        _graph("new", 30).save(place / "store", overwrite=True)

    def found(self, place: Path) -> str:
        graph = Graph.open(place / "store", verify=True)
        assert graph.num_vertices == {"old": 20, "new": 30}[graph.name]
        return graph.name


class NewStore(Store):
    """A graph's store where there was none."""

    def prepare(self, place: Path) -> None:
        pass

    def found(self, place: Path) -> str:
        return super().found(place) if (place / "store").exists() else "old"


class Ingest(Store):
    """An ingested store in the place of another."""

    def write(self, place: Path) -> None:
        ends = np.arange(30), np.roll(np.arange(30), 1)
        ingest_edges(ends, place / "store", undirected=True, overwrite=True, name="new")


class Shards:
    """Shards in the place of others."""

    def prepare(self, place: Path) -> None:
        self._save(place, 2)

    def write(self, place: Path) -> None:
        self._save(place, 3)

    def found(self, place: Path) -> str:
        return {2: "old", 3: "new"}[open_shards(place / "shards", verify=True).num_servers]

    def _save(self, place: Path, servers: int) -> None:
        graph = _graph("ring", 30)
        partitioning = make_partitioning(graph, servers, "range")
        save_shards(place / "shards", graph, partitioning, overwrite=True)


class Predictions:
    """Predictions with their vertices' ids, in the place of others."""

    def prepare(self, place: Path) -> None:
        self._save(place, 1)

    def write(self, place: Path) -> None:
        self._save(place, 2)

    def found(self, place: Path) -> str:
        (value,) = np.unique(np.load(place / "classes.npy"))
        assert np.array_equal(np.load(place / "classes.ids.npy"), np.arange(50) + 7)
        return {1: "old", 2: "new"}[int(value)]

    def _save(self, place: Path, value: int) -> None:
        ids = StoredNumberIds(np.arange(50) + 7)
        file = PredictionFile(place / "classes.npy", PredictionForm(50, None, np.dtype(np.int64)), "class", ids)
        try:
            file.write([np.full(50, value)])
        finally:
            file.close()


class Programs:
    """An exported program in the user's cache; one that is damaged counts as none."""

    key = "k" * 16

    def prepare(self, place: Path) -> None:
        pass

    def write(self, place: Path) -> None:
        ProgramCache(place).put(self.key, ExportedProgram.of(b"content", ("rows.0",), ("output.0",)))

    def found(self, place: Path) -> str:
        found = ProgramCache(place).get(self.key)
        return "old" if found is None else {b"content": "new"}[found.content]


class FunctionPackage:
    """The zip of a function in the user's cache."""

    def prepare(self, place: Path) -> None:
        pass

    def write(self, place: Path) -> None:
        package._kept(place, "key") or package._built(place, "key", {"handler.py": b"pass" * 100})

    def found(self, place: Path) -> str:
        kept = package._kept(place, "key")
        return "old" if kept is None else "new"


WRITERS: dict[str, type[Writer]] = {
    "checkpoint": NewCheckpoint,
    "checkpoint of the same epoch": SameCheckpoint,
    "best model of the same epoch": SameBest,
    "new run": NewRun,
    "run.toml": RunToml,
    "used.ledger and used.json": Used,
    "metrics.json": Metrics,
    "log.jsonl": Log,
    "store": NewStore,
    "store, replaced": Store,
    "ingested store, replaced": Ingest,
    "shards, replaced": Shards,
    "predictions": Predictions,
    "exported program": Programs,
    "function package": FunctionPackage,
}
