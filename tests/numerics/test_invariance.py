"""Settings for speed or memory change no number beyond rounding, and a repeated run is bit-identical."""

from functools import cache

import numpy as np
import pytest
from agreement import assert_same_run
from programs import program
from small_graphs import sample

import dorylus


class Run:
    """Losses and logits of one run of 12 epochs."""

    def __init__(self, model: str, *, dropout: float, directed: bool = True, **settings: object):
        made = program(model, dropout=dropout)
        chosen = {"intervals": 5, "threads": 2, "seed": 7} | settings
        result = dorylus.train(sample(directed=directed).graph, made, epochs=12, weight_decay=5e-4, **chosen)
        self.losses = list(result.losses)
        self.logits = np.asarray(result.predict("logits"))


@cache
def plain(model: str, dropout: float, directed: bool = True) -> Run:
    return Run(model, dropout=dropout, directed=directed)


def assert_unchanged(model: str, dropout: float, **settings: object) -> None:
    run = Run(model, dropout=dropout, **settings)
    assert_same_run(run.losses, run.logits, plain(model, dropout), relative=2e-5)


@pytest.mark.parametrize(
    "settings",
    [
        {"threads": 1},
        {"mode": "no_pipe"},
        {"rematerialize": True},
        {"reorder": "degree"},
        {"reorder": "bfs"},
        {"reorder": "rcm"},
        {"prune_rows": False},
        {"eval_every": 1},
    ],
    ids=lambda settings: "-".join(f"{name}={value}" for name, value in settings.items()),
)
@pytest.mark.parametrize("model", ["gcn", "gat", "sage"])
def test_the_way_of_working_changes_no_number(model: str, settings: dict[str, object]) -> None:
    assert_unchanged(model, 0.5, **settings)


@pytest.mark.parametrize("saving", ["cache_first_gather", "narrow_gather", "prune_rows"])
@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin"])
def test_a_saving_changes_no_number(model: str, saving: str) -> None:
    assert_unchanged(model, 0.0, **{saving: False})


def test_all_savings_off_and_reordered_on_a_symmetric_graph_changes_no_number() -> None:
    off = {"cache_first_gather": False, "narrow_gather": False, "prune_rows": False, "reorder": "degree"}
    run = Run("gcn", dropout=0.0, directed=False, **off)
    assert_same_run(run.losses, run.logits, plain("gcn", 0.0, False), relative=2e-5)


@pytest.mark.parametrize("model", ["gcn", "gat"])
def test_the_same_run_twice_gives_the_same_bits(model: str) -> None:
    again = Run(model, dropout=0.5)
    assert again.losses == plain(model, 0.5).losses
    assert np.array_equal(again.logits, plain(model, 0.5).logits)


def test_threads_do_not_change_a_bit() -> None:
    alone = Run("gcn", dropout=0.5, threads=1)
    assert alone.losses == plain("gcn", 0.5).losses
