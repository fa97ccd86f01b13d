"""However a run is cut over servers, intervals and parameter servers, it is the run of one plain PyTorch process."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from agreement import assert_same_run
from cut_runs import (
    ADAM_AMPLIFIES_ROUNDING,
    MODELS,
    NUM_CLASSES,
    NUM_FEATURES,
    Problem,
    assert_same_bits,
    assert_trained_alike,
    cut_by_hand,
    make_program,
)
from hypothesis import Phase, given
from hypothesis import strategies as st
from programs import program
from pyg_oracle import ACTIVATION, Stack, train_pyg
from small_graphs import sample

import dorylus
from dorylus.saga.reference import train_reference
from dorylus.saga.stages import ApplyEdge, Gather, Scatter
from dorylus.servers.graph.ghosts import GhostExchange
from draws import draws

SWITCH = st.booleans()
DRAWN = (Phase.explicit, Phase.reuse, Phase.generate)  # a draw is readable as it is, and shrinking takes minutes


def problems(model: str) -> st.SearchStrategy[Problem]:
    """Everything that may be learned by a model."""
    return st.builds(
        Problem,
        model=st.just(model),
        directed=SWITCH,
        weighted=SWITCH,
        few=SWITCH,
        sparse=SWITCH,
        dropout=st.sampled_from([0.0, 0.4]),
        num_layers=st.sampled_from([2, 3]),
        residual=SWITCH,
        optimizer=st.sampled_from(["sgd"] if model in ADAM_AMPLIFIES_ROUNDING else ["sgd", "adam"]),
        epochs=st.just(3),
    )


CUTS = st.fixed_dictionaries(
    {
        "servers": st.sampled_from([2, 4, 7, 1]),
        "intervals": st.sampled_from([5, 32, 1]),
        "parameter_servers": st.sampled_from([1, 3]),
        "partition": st.sampled_from(["range", "hash", "metis", "stream"]),
        "mode": st.sampled_from(["pipe", "no_pipe"]),
        "reorder": st.sampled_from(["none", "rcm"]),
        "rematerialize": SWITCH,
    }
)


@pytest.mark.parametrize("model", MODELS)
@draws(1, phases=DRAWN)
@given(data=st.data())
def test_any_cut_of_any_run_ends_with_the_losses_and_weights_of_the_reference(model: str, data: st.DataObject) -> None:
    problem, cut = data.draw(problems(model), label="problem"), data.draw(CUTS, label="cut")
    assert_trained_alike(problem.train(**cut), problem.reference())


FOUR = {"servers": 4, "parameter_servers": 3, "intervals": 5, "partition": "stream"}


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_four_servers_come_to_the_losses_and_logits_of_pyg(model: str) -> None:
    made, on, rates = program(model, 2), sample(directed=True), {"lr": 0.01, "weight_decay": 5e-4}
    expected = train_pyg(Stack(made.to_pyg(), ACTIVATION[model]), on, epochs=10, **rates)
    result = dorylus.train(on.graph, made, epochs=10, eval_every=0, threads=2, **rates, **FOUR)
    assert_same_run(result.losses, result.predict("logits"), expected)


@pytest.mark.parametrize("model", ["gcn", "sage max", "edges softmax", "mixed"])
def test_neither_threads_nor_a_second_time_change_a_bit_of_a_run_on_four_servers(model: str) -> None:
    problem = Problem(model, dropout=0.4, num_layers=3, residual=True, few=True, optimizer="adam", epochs=3)
    first = problem.train(**FOUR, threads=2)
    for threads in (2, 1, 3):
        assert_same_bits(problem.train(**FOUR, threads=threads), first)


@pytest.mark.parametrize("mode", ["pipe", "no_pipe"])
def test_parameter_servers_and_the_schedule_change_no_bit(mode: str) -> None:
    problem = Problem("gat", dropout=0.4, optimizer="adam")
    assert_same_bits(problem.train(**FOUR | {"parameter_servers": 1, "mode": mode}), problem.train(**FOUR))


# Edges of twelve vertices, four to a server, and the trained vertices.
ODD = {
    "no edge at all": ([], range(12)),
    "no edge crosses": ([(0, 1), (1, 2), (4, 5), (5, 6), (8, 9)], range(12)),
    "one server has all that is trained on": ([(v, v + 1) for v in range(11)], [1, 2]),
    "only a vertex without in-edges is trained on": ([(11, v) for v in range(6)], [11]),
    "everyone reads everyone": ([(u, v) for u in range(12) for v in range(12)], range(12)),
}


@pytest.mark.parametrize("model", ["gcn", "gat", "sage max", "gin", "two-sided"])
@pytest.mark.parametrize("odd", ODD)
def test_odd_graphs_are_trained_as_by_the_reference(model: str, odd: str, tmp_path: Path) -> None:
    edges, trained = ODD[odd]
    source, destination = np.array(edges, np.int64).reshape(-1, 2).T
    features = np.random.default_rng(0).standard_normal((12, NUM_FEATURES), dtype=np.float32)
    labels, mask = np.arange(12) % NUM_CLASSES, np.isin(np.arange(12), trained)
    graph = dorylus.Graph.from_edges(
        source, destination, 12, undirected=False, features=features, labels=labels, train_mask=mask
    )
    cut = cut_by_hand(tmp_path / "shards", graph, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    settings = {"epochs": 3, "optimizer": torch.optim.SGD, "lr": 0.1}
    expected = train_reference(graph, make_program(model, dropout=0.4), **settings)
    result = dorylus.train(graph, make_program(model, dropout=0.4), intervals=2, threads=2, **cut, **settings)
    assert_trained_alike(result, expected)


class LateOnce:
    """A ghost exchange that once, in the third epoch, receives the rows of the epoch before."""

    def __init__(self, kind: type) -> None:
        self.kind, self.before, self.done = kind, {}, 0
        self.receive = GhostExchange.receive

    def __call__(self, exchange: GhostExchange, message: Any, stage: object) -> None:
        if isinstance(stage, self.kind) and sum(part.size for part in message.parts):
            place = id(exchange), message.task.step, message.task.interval
            if message.task.epoch == 2 and not self.done:
                self.done += 1
                message = message._replace(parts=self.before[place])
            self.before[place] = message.parts
        self.receive(exchange, message, stage)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("gcn", Scatter),
        ("gcn", Gather),
        ("gat", Scatter),
        ("gat", Gather),
        ("sage max", Gather),
        ("edges sum", ApplyEdge),
    ],
    ids=lambda part: part if isinstance(part, str) else part.__name__,
)
def test_one_message_with_old_rows_is_noticed(model: str, kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(model, few=True, optimizer="sgd")
    assert_trained_alike(problem.train(**FOUR, threads=1), problem.reference())
    late = LateOnce(kind)
    monkeypatch.setattr(GhostExchange, "receive", lambda *arguments: late(*arguments))
    result = problem.train(**FOUR, threads=1)
    assert late.done == 1
    with pytest.raises(AssertionError):
        assert_trained_alike(result, problem.reference())


def test_another_weight_is_noticed() -> None:
    problem = Problem("gcn")
    result, expected = problem.train(**FOUR), problem.reference()
    with pytest.raises(AssertionError):
        assert_trained_alike(result, replace(problem, seed=12, dropout=0.1).reference())
    next(result.model.parameters()).data.view(-1)[0] += 3e-4
    with pytest.raises(AssertionError, match="is off by"):
        assert_trained_alike(result, expected)
