"""Runs over several servers, and asynchronous ones: how far they run ahead, where they stand still, how they end."""

from dataclasses import replace

import numpy as np
import pytest

import dorylus
from dorylus.errors import ConfigError
from dorylus.inference import predict_from
from dorylus.runs import MemorySink, checkpoint
from dorylus.runs.run_folder import RunFolder
from small_runs import ctrl_c, noted_epochs, same, scores, state

ASYNC = {"mode": "async", "staleness": 2, "servers": 2, "intervals": 2, "threads": 2}


def permits(noted):
    return [permit for permit, _ in noted]


def test_epochs_are_permitted_one_further_than_the_bound_lets_anyone_go(trainer, monkeypatch):
    noted = noted_epochs(monkeypatch)
    trainer(**ASYNC, epochs=7, eval_every=0).run()
    assert permits(noted) == [3, 4, 5, 6, 6, 6, 6]  # the last is the end of the run


def test_the_bound_holds_though_one_epoch_more_is_permitted(trainer):
    log = MemorySink()
    result = trainer(**ASYNC, epochs=8, eval_every=0, sinks=[log]).run().result()
    assert max(result.ages) <= ASYNC["staleness"] + 1
    assert min(result.ages) >= -ASYNC["staleness"]


def test_an_interval_that_stands_at_the_bound_is_counted_as_a_wait(trainer):
    """Two intervals on one thread: one is through with its epoch before the other, and may not begin the next."""
    settings = {"servers": 1, "intervals": 2, "threads": 1, "epochs": 6, "eval_every": 0}
    log = MemorySink()
    result = trainer(**settings, mode="async", staleness=0, sinks=[log]).run().result()
    assert result.waits > 0
    assert result.waits == sum(record["waits"] for record in log.of_kind("epoch"))
    assert trainer(**settings).run().result().waits == 0  # exact epochs have no bound to wait at


def test_where_epochs_are_exact_one_is_permitted_at_a_time(trainer, monkeypatch):
    noted = noted_epochs(monkeypatch)
    trainer(epochs=4, intervals=3).run()
    assert permits(noted) == [0, 1, 2, 3]


def test_where_no_interval_may_be_ahead_one_epoch_more_is_permitted_all_the_same(trainer, monkeypatch):
    noted = noted_epochs(monkeypatch)
    trainer(mode="async", epochs=4, intervals=3).run()
    assert permits(noted) == [1, 2, 3, 3]


def test_nothing_is_permitted_past_a_checkpoint(trainer, monkeypatch, tmp_path):
    noted = noted_epochs(monkeypatch)
    trainer(**ASYNC, epochs=11, eval_every=0, checkpoint_every=5, run_dir=tmp_path / "run").run()
    assert permits(noted) == [3, 4, 4, 4, 4, 8, 9, 9, 9, 9, 10]


def test_without_a_folder_there_is_no_checkpoint_to_stop_at(trainer, monkeypatch):
    noted = noted_epochs(monkeypatch)
    trainer(**ASYNC, epochs=6, eval_every=0, checkpoint_every=2).run()
    assert permits(noted) == [3, 4, 5, 5, 5, 5]


def test_nothing_is_permitted_past_the_epochs_of_a_part_of_a_run(trainer, monkeypatch):
    noted = noted_epochs(monkeypatch)
    run = trainer(**ASYNC, epochs=9, eval_every=0)
    run.run(2).run(1).run()
    assert permits(noted) == [1, 1, 2, 6, 7, 8, 8, 8, 8]


def test_evaluations_stop_nobody_unless_epochs_may_turn_exact_after_them(trainer, monkeypatch):
    noted = noted_epochs(monkeypatch)
    scores(monkeypatch, [0.1])
    trainer(**ASYNC, epochs=6, eval_every=2).run()
    assert permits(noted) == [3, 4, 5, 5, 5, 5]
    noted.clear()
    trainer(**ASYNC, epochs=6, eval_every=2, target_accuracy=0.9, sync_margin=0.1).run()
    assert permits(noted) == [1, 1, 3, 3, 5, 5]


def test_near_its_target_an_asynchronous_run_goes_on_in_exact_epochs(trainer, monkeypatch):
    noted, log = noted_epochs(monkeypatch), MemorySink()
    scores(monkeypatch, [0.5, 0.85, 0.7, 0.95])
    run = trainer(**ASYNC, eval_every=2, target_accuracy=0.9, sync_margin=0.1, sinks=[log]).run()
    assert noted == [(1, False), (1, False), (3, False), (3, False), (4, True), (5, True), (6, True), (7, True)]
    assert [(each["epoch"], each["score"]) for each in log.of_kind("synchronous")] == [(4, 0.85)]
    ages = [set(each["ages"]) for each in log.of_kind("epoch")]
    assert ages[4:] == [{0}] * 4
    assert run.result().stopped == "target_accuracy"


def test_a_score_at_the_edge_of_the_margin_is_near_enough(trainer, monkeypatch):
    noted = noted_epochs(monkeypatch)
    scores(monkeypatch, [0.25, 0.5])
    trainer(**ASYNC, epochs=3, eval_every=1, target_accuracy=0.75, sync_margin=0.25).run()
    assert [exact for _, exact in noted] == [False, False, True]


def test_a_run_that_turned_exact_is_exact_when_it_is_resumed(trainer, resumed, monkeypatch, tmp_path):
    noted = noted_epochs(monkeypatch)
    scores(monkeypatch, [0.85, 0.1])
    settings = ASYNC | {"target_accuracy": 0.9, "sync_margin": 0.1, "eval_every": 2, "checkpoint_every": 2}
    trainer(**settings, epochs=6, run_dir=tmp_path / "run").run(4).close()
    noted.clear()
    resumed(tmp_path / "run").run()
    assert noted == [(4, True), (5, True)]


@pytest.mark.parametrize("reason", ["target_accuracy", "patience"])
def test_a_run_stopped_by_its_score_ends_with_the_weights_that_were_scored(
    trainer, resumed, graph, monkeypatch, tmp_path, reason
):
    seen = []

    def evaluate(_, outputs):
        seen.append(outputs.whole())
        arrive_meanwhile(run._runtime)
        return {"val_accuracy": 0.9 if reason == "target_accuracy" and len(seen) == 3 else 0.1}

    monkeypatch.setattr("dorylus.training.trainer.evaluate", evaluate)
    ends = {"target_accuracy": 0.8} if reason == "target_accuracy" else {"patience": 2}
    settings = ASYNC | {"staleness": 0, "epochs": 40, "eval_every": 1, "run_dir": tmp_path / "run"}
    run = trainer(**settings, **ends, keep="last")
    result = run.run().result()
    assert (result.stopped, len(result.losses)) == (reason, 3)
    np.testing.assert_array_equal(seen[3], seen[2])  # the result is about the logits that ended the run
    np.testing.assert_allclose(result.predict(), seen[2], rtol=1e-4, atol=1e-6)
    again = predict_from(tmp_path / "run", graph=graph, model=dorylus.gcn())
    np.testing.assert_allclose(again, seen[2], rtol=1e-4, atol=1e-6)
    run.close()
    run = resumed(tmp_path / "run")
    assert same(state(run.run().result()), state(result))


def arrive_meanwhile(cluster):
    """Weight updates, as intervals that are ahead would make them during an evaluation."""
    now = cluster.state()
    cluster.restore(replace(now, weights={name: weight + 1 for name, weight in now.weights.items()}))


def test_ctrl_c_lets_what_was_begun_end_before_it_saves(trainer, resumed, monkeypatch, tmp_path):
    run = trainer(**ASYNC, eval_every=0, checkpoint_every=0, run_dir=tmp_path / "run")
    with monkeypatch.context() as patch:
        ctrl_c(patch, at=3)
        with pytest.raises(KeyboardInterrupt):
            run.run()
    run.close()
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").name == "epoch-000006"  # epochs 4 to 6 were permitted
    again = resumed(tmp_path / "run").run()
    assert again.epoch == 12
    assert again.result().stopped == "epochs"


@pytest.mark.parametrize("settings", [{"mode": "pipe", "staleness": 0}, {}], ids=["exact", "asynchronous"])
def test_what_was_sent_read_and_waited_for_is_counted_over_a_pause(trainer, resumed, tmp_path, settings):
    settings = ASYNC | {"eval_every": 0, "checkpoint_every": 3} | settings
    whole = trainer(**settings, epochs=7).run().result()
    trainer(**settings, epochs=7, run_dir=tmp_path / "run").run(5).close()  # nothing was saved after epoch 3
    result = resumed(tmp_path / "run").run().result()
    assert set(result.traffic) == {"ghosts", "ghost_gradients", "weights", "weight_gradients"}
    assert result.traffic == whole.traffic
    assert sum(result.ages.values()) == sum(whole.ages.values())
    assert bool(result.ages) is (settings["mode"] == "async")
    assert all(isinstance(age, int) for age in result.ages)


def test_shares_of_busy_time_are_shares_also_after_a_pause(trainer, resumed, tmp_path):
    settings = {"servers": 2, "intervals": 2, "checkpoint_every": 3, "threads": 1, "run_dir": tmp_path / "run"}
    trainer(**settings, epochs=6).run(3).close()
    busy = resumed(tmp_path / "run").run().result().busy
    assert busy.keys() == {"cores", "pool", "network"}
    assert all(0 < share <= 1 for share in busy.values())
    assert busy["cores"] + busy["pool"] <= 1.0 + 1e-6  # on one thread they take turns


def test_the_log_tells_of_every_epoch_what_moved(trainer):
    log = MemorySink()
    trainer(**ASYNC, epochs=3, trace_epochs=3, sinks=[log]).run()
    records = log.of_kind("epoch")
    assert all({"traffic", "ages", "busy", "waits", "tasks"} <= record.keys() for record in records)
    assert all(record["traffic"]["ghosts"] > 0 for record in records)
    spans, *_ = log.of_kind("spans")
    assert {len(row) for row in spans["spans"]} == {8}
    assert {row[6] for row in spans["spans"]} == {0, 1}  # servers
    assert {row[7] for row in spans["spans"]} >= {1}  # epochs: of those ahead, there may be more


@pytest.mark.parametrize("settings", [{"mode": "async"}, {"ghost_precision": "bf16"}], ids=str)
def test_a_maximum_whose_gradient_would_be_lost_is_refused_before_anything_is_written(graph, tmp_path, settings):
    with pytest.raises(ConfigError, match="gathers a maximum"):
        dorylus.train(graph, dorylus.sage(aggregator="max"), servers=2, run_dir=tmp_path / "run", **settings)
    assert list(tmp_path.iterdir()) == []


def test_a_result_tells_in_which_precision_rows_travelled(trainer, tmp_path):
    settings = {"servers": 2, "intervals": 2, "epochs": 3}
    whole = trainer(**settings).run().result()
    half = trainer(**settings, ghost_precision="bf16", run_dir=tmp_path / "run").run().result()
    assert (whole.summary()["ghost_precision"], half.summary()["ghost_precision"]) == ("float32", "bf16")
    assert RunFolder.open(tmp_path / "run").read_metrics()["ghost_precision"] == "bf16"
    for kind in ("ghosts", "ghost_gradients"):
        assert half.traffic[kind] * 2 == whole.traffic[kind]
    assert half.losses == pytest.approx(whole.losses, rel=0.03)


@pytest.mark.parametrize("cut", [{"servers": 3}, {"servers": 1}, {"intervals": 5}, {"parameter_servers": 3}], ids=str)
def test_a_run_that_goes_on_cut_in_another_way_ends_the_same_to_rounding(trainer, resumed, tmp_path, cut):
    settings = {"servers": 2, "intervals": 3, "checkpoint_every": 3}
    whole = trainer(**settings).run().result()
    trainer(**settings, run_dir=tmp_path / "run").run(6).close()
    again = resumed(tmp_path / "run", **cut)
    assert again.epoch == 6
    assert again.run().result().losses == pytest.approx(whole.losses, rel=1e-4)
    written = RunFolder.open(tmp_path / "run").config
    assert {name: getattr(written, name) for name in cut} == cut
    assert written.intervals is not None  # as it came out, so that the next pause cuts the same


def test_a_cut_that_is_refused_leaves_the_run_as_it_was(trainer, resumed, tmp_path):
    trainer(servers=2, intervals=3, run_dir=tmp_path / "run").run(1).close()
    before = (tmp_path / "run" / "run.toml").read_bytes()
    for settings, says in (
        ({"lr": 0.5}, "lr is part of what a run computes"),
        ({"intervals": 190}, "intervals=190, but shard"),
    ):
        with pytest.raises(ConfigError, match=says):
            resumed(tmp_path / "run", **settings)
    assert (tmp_path / "run" / "run.toml").read_bytes() == before


def test_asynchronous_runs_learn_as_well_as_exact_ones(graph):
    settings = {"epochs": 60, "lr": 0.02, "intervals": 4, "servers": 2, "threads": 2, "eval_every": 0}
    exact = dorylus.train(graph, dorylus.gcn(dropout=0.0), **settings)
    ahead = dorylus.train(graph, dorylus.gcn(dropout=0.0), **settings, mode="async", staleness=1)
    assert ahead.losses[-1] < 2 * exact.losses[-1] < 0.5 * exact.losses[0]
    assert ahead.train_accuracy > exact.train_accuracy - 0.05
    assert max(ahead.ages) <= 2
