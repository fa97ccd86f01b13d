"""Matrix memory that the memory model predicts, compared with what the servers of a run allocate."""

import re

import numpy as np
import pytest
import torch
from torch import nn

import dorylus
from dorylus import process_memory
from dorylus.backends import NativeBackend
from dorylus.config import RunConfig
from dorylus.errors import ConfigError
from dorylus.inference.prediction_pass import PredictionPass
from dorylus.runs import MemorySink
from dorylus.runtime import server_process
from dorylus.servers import BoundedArena

VERTICES = 3000


class Gate(dorylus.Layer):
    """A layer with messages of edges, and any way to combine them."""

    def __init__(self, in_columns, out_columns, reduce):
        super().__init__(in_columns, out_columns, dropout=0.5)
        self.reduce = reduce
        self.gate, self.score = nn.Linear(2 * in_columns, out_columns), nn.Linear(out_columns, 1)

    def apply_edge(self, source, destination, weight):
        message = torch.tanh(self.gate(torch.cat([source, destination], 1)))
        return (message, self.score(message)) if self.reduce == "softmax" else message


def gates(reduce):
    torch.manual_seed(0)
    return dorylus.Program([Gate(24, 12, reduce), Gate(12, 16, reduce)])


MODELS = {
    "gcn": dorylus.gcn(hidden=48),
    "gcn of narrow rows": dorylus.gcn(hidden=8),
    "gcn without dropout": dorylus.gcn(hidden=48, dropout=0.0),
    "sage": dorylus.sage(hidden=48, num_layers=3),
    "sage max": dorylus.sage(hidden=32, aggregator="max"),
    "gin": dorylus.gin(hidden=48),
    "gat": dorylus.gat(hidden=8, heads=4),
    "sums of messages": gates("sum"),
    "attention to messages": gates("softmax"),
}
LABELS = {"all": 1.0, "most": 0.6, "few": 0.02}


class Counting(BoundedArena):
    """Notes the most that its blocks took at once, those in use and all of them."""

    def __init__(self, backend, room):
        super().__init__(backend, room)
        self.room, self.in_use, self.together = room, 0, 0

    def take(self, size, share=1.0):
        block = super().take(size, share)
        used = sum(counted for counted, _ in self._in_use.values())
        self.in_use = max(self.in_use, used)
        self.together = max(self.together, used + sum(free.nbytes for free in self._free))
        return block


@pytest.fixture
def arenas(monkeypatch):
    made = []

    def make(backend, room):
        made.append(Counting(backend, room))
        return made[-1]

    monkeypatch.setattr(server_process, "BoundedArena", make)
    return made


def labelled(share):
    rng = np.random.default_rng(0)
    source, destination = np.unique(rng.integers(0, VERTICES, (2, 12_000)), axis=1)
    return dorylus.Graph.from_edges(
        source,
        destination,
        VERTICES,
        features=rng.standard_normal((VERTICES, 24), dtype=np.float32),
        labels=rng.integers(0, 16, VERTICES),
        train_mask=rng.random(VERTICES) < share,
        val_mask=np.ones(VERTICES, np.bool_),
    )


@pytest.mark.parametrize("share", LABELS.values(), ids=[f"{name} labels" for name in LABELS])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_matrices_take_the_memory_that_the_model_predicts(model, share, arenas):
    settings = {"epochs": 3, "eval_every": 1, "threads": 1, "intervals": 4, "seed": 1}
    dorylus.train(labelled(share), model, memory="8GiB", **settings)
    (arena,) = arenas
    assert arena.in_use == pytest.approx(arena.room, rel=0.02)
    assert arena.together <= arena.room * 1.02


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_limit_under_which_all_fits_changes_no_bit(model):
    graph, settings = labelled(0.6), {"epochs": 3, "eval_every": 1, "threads": 1, "intervals": 4}
    free, limited = (dorylus.train(graph, model, memory=each, **settings) for each in (None, "8GiB"))
    assert free.losses == limited.losses
    for one, other in zip(free.model.parameters(), limited.model.parameters(), strict=True):
        assert one.equal(other)


def test_a_run_that_fits_reports_its_predicted_memory():
    sink = MemorySink()
    with dorylus.Trainer(labelled(0.6), MODELS["gcn"], memory="8GiB", threads=1, sinks=[sink]) as trainer:
        (record,) = [record for record in sink.records if record["kind"] == "memory"]
        assert record["peak_bytes"] > process_memory.private_bytes()
        assert not record["on_disk"]
        assert trainer.epoch == 0


def test_a_prediction_that_fits_gives_its_matrices_back(arenas):
    graph, model = labelled(0.6), MODELS["sage"].build(24, 16)
    free = dorylus.predict(graph, model)
    assert (dorylus.predict(graph, model, memory="8GiB") == free).all()
    (arena,) = arenas
    assert arena.together <= arena.room * 1.02


def test_an_array_of_predictions_counts_in_addition_to_the_pass_that_fills_it(bare_process, wide):
    config = RunConfig(memory="16KiB", threads=1)
    program = dorylus.gcn(hidden=32).build(128, 40)
    making = PredictionPass(wide, program, "logits", -1, config, NativeBackend(), several=False)
    least = []
    for other_bytes in (0, making.form.num_bytes):
        with pytest.raises(ConfigError) as refused, making.blocks(other_bytes):
            pass
        least += re.findall(r"memory='(\d+)MiB'", str(refused.value))
    assert int(least[1]) - int(least[0]) == pytest.approx(making.form.num_bytes / (1 << 20), abs=1)
    with pytest.raises(ConfigError, match=f"memory='{least[1]}MiB'"):
        making.array()
