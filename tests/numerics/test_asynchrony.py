"""Asynchronous runs keep to the staleness bound, evaluate exactly, and learn as synchronous ones do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from cut_runs import NUM_CLASSES, Problem, assert_same_bits, cut_graph, make_program
from late_pools import ShuffledPool, StragglerPool

import dorylus
from dorylus.errors import ConfigError
from dorylus.runs import MemorySink
from dorylus.saga import reference

GRAPH = {"directed": True, "weighted": False, "few": False}
ASYNC_MODELS = ["gcn", "gat", "sage", "gin", "edges mean", "edges softmax"]  # rows' maxima are refused
DROPOUT = {"gat": 0.0}  # and so is dropout under attention


def assert_within_the_bound(ages: Any, staleness: int) -> None:
    """Values are at most ``staleness`` + 1 epochs old, and at most ``staleness`` ahead of their reader."""
    assert ages, "no age was measured"
    assert max(ages) <= staleness + 1
    assert min(ages) >= -staleness


@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.soak), 3])
@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("staleness", [0, pytest.param(1, marks=pytest.mark.soak), 4])
def test_no_value_is_older_than_the_bound_however_late_answers_come(staleness: int, servers: int, threads: int) -> None:
    problem = Problem("gcn", dropout=0.4, optimizer="adam", epochs=8)
    result = problem.train(
        mode="async", staleness=staleness, servers=servers, intervals=4, threads=threads, pool=ShuffledPool(staleness)
    )
    assert len(result.losses) == 8
    assert_within_the_bound(result.ages, staleness)


@pytest.mark.parametrize("model", ASYNC_MODELS)
def test_no_value_is_older_than_the_bound_in_any_model(model: str) -> None:
    problem = Problem(model, dropout=DROPOUT.get(model, 0.4), few=True, optimizer="adam", epochs=6)
    cut = {"servers": 2, "intervals": 3, "parameter_servers": 2}
    result = problem.train(mode="async", staleness=1, threads=3, pool=ShuffledPool(), **cut)
    assert_within_the_bound(result.ages, 1)


@pytest.mark.parametrize("straggler", [0, 3])
@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("staleness", [0, pytest.param(1, marks=pytest.mark.soak), 4])
def test_a_straggler_lets_the_others_go_to_the_bound_and_no_further(
    staleness: int, servers: int, straggler: int
) -> None:
    epochs, num_intervals = staleness + 6, 4
    pool = StragglerPool(straggler, num_intervals, staleness, epochs - 1)
    problem = Problem("gcn", dropout=0.4, optimizer="adam", epochs=epochs)
    result = problem.train(
        mode="async", staleness=staleness, servers=servers, intervals=num_intervals // servers, pool=pool, threads=1
    )
    assert pool.times_held == epochs - 1 - staleness  # in each epoch in which the others can still get further ahead
    assert_within_the_bound(result.ages, staleness)
    assert max(result.ages) == staleness + 1  # the others read what the straggler wrote before it was held
    assert min(result.ages) == -staleness  # the straggler reads what they have written since


def test_a_wider_bound_is_noticed() -> None:
    pool = StragglerPool(0, 4, staleness=2, last_epoch=5)
    result = Problem("gcn", epochs=6).train(mode="async", staleness=2, intervals=4, pool=pool, threads=1)
    with pytest.raises(AssertionError):
        assert_within_the_bound(result.ages, 1)


def test_an_interval_that_stands_at_the_bound_is_counted_once_for_each_epoch(make_cluster: Callable[..., Any]) -> None:
    pool = StragglerPool(0, 4, staleness=0, last_epoch=5)
    settings = {"mode": "async", "staleness": 0, "intervals": 4, "threads": 1}
    cluster = make_cluster(cut_graph(**GRAPH), make_program("gcn"), pool=pool, **settings)
    # All but the slowest stand before each epoch but the first. Every one is permitted: the bound alone holds them.
    assert [cluster.train_epoch(5).waits for _ in range(6)] == [3, 3, 3, 3, 3, 0]


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_result_counts_how_often_intervals_stood_at_the_bound(staleness: int) -> None:
    pool = StragglerPool(0, 4, staleness, last_epoch=7)
    result = Problem("gcn", epochs=8).train(mode="async", staleness=staleness, intervals=4, pool=pool, threads=1)
    assert result.waits > 3  # as many wait for the first epoch to be over, exact as it is; the straggler adds to them


def test_synchronous_runs_have_no_ages_and_wait_at_no_bound() -> None:
    result = Problem("gcn", dropout=0.4).train(servers=2, intervals=3)
    assert (result.ages, result.waits) == ({}, 0)


def exact_logits(cluster: Any, program: dorylus.Program) -> tuple[Any, Any]:
    """(what the cluster evaluates with the weights it holds now, what the reference makes of the same weights)."""
    weights = cluster.state().weights
    program.load_state_dict({**program.state_dict(), **weights})
    with torch.no_grad():
        return cluster.outputs(weights=weights).whole(), reference.forward(program, cut_graph(**GRAPH)).numpy()


@pytest.mark.parametrize("model", ASYNC_MODELS)
def test_evaluation_is_exact_also_while_intervals_are_in_flight(make_cluster: Callable[..., Any], model: str) -> None:
    made = {"num_layers": 3, "dropout": DROPOUT.get(model, 0.4)}
    pool = StragglerPool(1, 6, staleness=1, last_epoch=4)
    settings = {"mode": "async", "staleness": 1, "servers": 2, "intervals": 3, "threads": 1}
    cluster = make_cluster(cut_graph(**GRAPH), make_program(model, **made), pool=pool, **settings)
    ahead = 0
    for epoch in range(5):
        report = cluster.train_epoch(min(4, epoch + 1))
        ahead += sum(span.task.epoch > epoch for span in report.spans)
        found, expected = exact_logits(cluster, make_program(model, **made))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert ahead > 0, "no interval was in flight at any evaluation"


def test_evaluation_is_exact_while_answers_of_a_pool_are_pending(make_cluster: Callable[..., Any]) -> None:
    settings = {"mode": "async", "staleness": 2, "servers": 2, "intervals": 4, "threads": 2}
    cluster = make_cluster(cut_graph(**GRAPH), make_program("gat"), pool=ShuffledPool(), **settings)
    for epoch in range(6):
        cluster.train_epoch(min(5, epoch + 2))
        found, expected = exact_logits(cluster, make_program("gat"))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_evaluations_leave_an_asynchronous_run_as_it_is() -> None:
    problem = Problem("gcn", dropout=0.4, optimizer="adam", epochs=6)
    cut = {"mode": "async", "staleness": 1, "servers": 2, "intervals": 3, "threads": 1}
    watched, alone = problem.train(**cut | {"eval_every": 1}), problem.train(**cut)
    assert_same_bits(watched, alone)
    assert watched.ages == alone.ages


FOUR = {"servers": 4, "intervals": 3, "parameter_servers": 2}


@pytest.mark.parametrize("model", ASYNC_MODELS)
def test_the_first_epoch_is_that_of_a_synchronous_run(model: str) -> None:
    problem = Problem(model, dropout=DROPOUT.get(model, 0.4), optimizer="adam", epochs=1)
    pipe = problem.train(**FOUR)
    assert_same_bits(problem.train(mode="async", staleness=1, weight_update="sync", **FOUR), pipe)
    assert problem.train(mode="async", staleness=1, **FOUR).losses == pipe.losses


@pytest.mark.parametrize("model", ASYNC_MODELS)
def test_one_interval_alone_has_nothing_stale_to_read(model: str) -> None:
    problem = Problem(model, dropout=DROPOUT.get(model, 0.4), optimizer="adam", epochs=6)
    alone = {"servers": 1, "intervals": 1, "threads": 1}
    result = problem.train(mode="async", weight_update="sync", **alone)
    assert_same_bits(result, problem.train(**alone))
    assert result.ages == {}


@pytest.mark.parametrize("update", ["sync", "async"])
def test_a_run_that_reads_stale_values_is_not_the_synchronous_one(update: str) -> None:
    problem = Problem("gcn", dropout=0.4, optimizer="adam", epochs=4)
    pool = StragglerPool(0, 12, staleness=1, last_epoch=3)
    late = problem.train(mode="async", staleness=1, weight_update=update, pool=pool, threads=1, **FOUR)
    pipe = problem.train(**FOUR)
    assert late.losses[0] == pipe.losses[0]
    assert all(ours != theirs for ours, theirs in zip(late.losses[1:], pipe.losses[1:], strict=True))


@pytest.mark.parametrize("model", ["gcn", "gat", "sage", "gin", "edges sum"])
def test_ghosts_in_bf16_are_close_to_float32_and_the_result_reports_it(model: str) -> None:
    problem = Problem(model, dropout=0.4, epochs=5)
    exact, rounded = problem.train(**FOUR), problem.train(ghost_precision="bf16", **FOUR)
    np.testing.assert_allclose(rounded.losses, exact.losses, rtol=1e-2)
    assert rounded.losses != exact.losses
    assert (exact.summary()["ghost_precision"], rounded.summary()["ghost_precision"]) == ("float32", "bf16")
    assert rounded.traffic["ghosts"] < exact.traffic["ghosts"]


@pytest.mark.parametrize("setting", [{"mode": "async"}, {"ghost_precision": "bf16", "servers": 2}], ids=str)
def test_a_maximum_of_rows_is_refused_where_its_gradient_would_be_lost(setting: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="layer 1 gathers a maximum"):
        Problem("sage max").train(**setting)


@pytest.fixture(scope="module")
def communities() -> dorylus.Graph:
    return dorylus.communities(
        num_vertices=700, num_classes=NUM_CLASSES, num_features=8, average_degree=10, split=(0.4, 0.1), seed=1
    )


def accuracies(graph: dorylus.Graph, made: dorylus.Program, **rates: Any) -> tuple[float, float]:
    """(of a synchronous run, of an asynchronous one that reads much that is stale), the same on every call."""
    cut = {"eval_every": 0, "servers": 2, "intervals": 2, "threads": 1} | rates
    pool = StragglerPool(3, 4, staleness=1, last_epoch=cut["epochs"] - 1)
    late = dorylus.train(graph, made, mode="async", staleness=1, pool=pool, **cut)
    assert late.ages[2] > 0.05 * sum(late.ages.values())
    return dorylus.train(graph, made, **cut).test_accuracy, late.test_accuracy


@pytest.mark.parametrize(
    "model",
    ["gcn", "gat", pytest.param("sage", marks=pytest.mark.soak), pytest.param("edges mean", marks=pytest.mark.soak)],
)  # sums that nothing scales (gin) suffer: docs/limits
def test_asynchronous_training_learns_as_much_as_synchronous_training(model: str, communities: dorylus.Graph) -> None:
    made = make_program(model, dropout=DROPOUT.get(model, 0.2), num_features=8)
    pipe, late = accuracies(communities, made, epochs=50, lr=0.01)
    assert pipe > 0.7  # a random guess has 0.25
    assert late > pipe - 0.05


@pytest.mark.parametrize(
    "options", [{"dropout": 0.3, "attention_dropout": 0.0}, {"dropout": 0.0, "attention_dropout": 0.5}]
)
def test_dropout_under_attention_is_refused_where_gradients_may_meet_other_rows(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"layer 0 weighs its neighbours by attention.* Use mode='pipe', or a model"):
        dorylus.train(cut_graph(**GRAPH), dorylus.gat(**options), mode="async")


def test_epochs_with_an_exact_permit_read_nothing_stale(make_cluster: Callable[..., Any]) -> None:
    settings = {"mode": "async", "staleness": 2, "servers": 2, "intervals": 3, "threads": 1}
    pool = StragglerPool(0, 6, staleness=2, last_epoch=3)
    cluster = make_cluster(cut_graph(**GRAPH), make_program("gcn", dropout=0.4), pool=pool, **settings)
    relaxed = [cluster.train_epoch(3).ages for _ in range(4)]
    exact = [cluster.train_epoch(exact_from=4).ages for _ in range(3)]
    assert {age for ages in relaxed for age in ages} == {-2, -1, 0, 1, 2, 3}
    assert all(ages.keys() == {0} for ages in exact)


def test_near_the_target_a_run_switches_to_synchronous_epochs(communities: dorylus.Graph) -> None:
    sink, made = MemorySink(), make_program("gcn", num_features=8)
    near = {"epochs": 9, "eval_every": 3, "target_accuracy": 1.0, "sync_margin": 1.0}  # at the first evaluation
    cut = {"mode": "async", "staleness": 1, "servers": 2, "intervals": 3, "threads": 1}
    pool = StragglerPool(0, 6, staleness=1, last_epoch=2)
    result = dorylus.train(communities, made, sinks=[sink], pool=pool, **near, **cut)
    (switch,) = sink.of_kind("synchronous")
    assert (switch["epoch"], len(result.losses)) == (3, 9)
    ages = [record["ages"].keys() for record in sink.of_kind("epoch")]
    assert any(found != {0} for found in ages[:3])
    assert all(found == {0} for found in ages[3:])
