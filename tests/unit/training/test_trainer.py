import dataclasses
import json
import math
import os
import threading

import numpy as np
import pytest
import torch

import dorylus
from dorylus.errors import CheckpointError, ConfigError, DataError, GraphError, Terminated, TrainingError
from dorylus.pools.pool import PoolHandle, ThreadsPool
from dorylus.runs import MemorySink, checkpoint
from dorylus.runs.run_folder import RunFolder, RunSpec
from dorylus.runtime.runtime import EpochDroppedError
from dorylus.training.run_records import SAMPLED_TASKS, RunRecords, is_traced
from small_runs import ctrl_c, same, scores, state


def test_a_run_can_be_taken_in_parts(trainer):
    whole, parts = trainer(), trainer()
    whole.run()
    parts.run(5)
    assert parts.epoch == 5
    parts.run(4).run(100)
    assert parts.epoch == 12
    assert parts.result().losses == whole.result().losses
    assert same(state(parts.result()), state(whole.result()))


def test_a_second_thread_that_runs_a_trainer_is_refused_and_the_first_goes_on(trainer, monkeypatch):
    run, left_alone = trainer(eval_every=4), trainer(eval_every=4).run()
    refusals = []

    def from_another_thread():
        with pytest.raises(TrainingError, match="is training already, and one thread at a time trains a run: wait"):
            run.run()
        refusals.append(run.epoch)

    def evaluate(graph, logits):
        other = threading.Thread(target=from_another_thread)
        other.start()
        other.join()
        return {}

    with monkeypatch.context() as patch:
        patch.setattr("dorylus.training.trainer.evaluate", evaluate)
        run.run()
    assert refusals == [4, 8, 12]
    assert run.result().losses == left_alone.result().losses
    assert same(state(run.result()), state(left_alone.result()))


def test_a_trainer_whose_run_was_interrupted_can_be_run_again(trainer, monkeypatch):
    run = trainer()
    ctrl_c(monkeypatch, at=5)
    with pytest.raises(KeyboardInterrupt):
        run.run()
    assert run.run().result().stopped == "interrupted"


def test_a_result_in_the_middle_does_not_touch_the_run(trainer):
    with_result, left_alone = (trainer(keep="best", eval_every=1) for _ in range(2))
    early = with_result.run(5).result()
    before = state(early)
    with_result.run()
    left_alone.run()
    assert early.stopped == "not yet"
    assert len(early.losses) == 5
    assert same(state(early), before)
    assert with_result.result().losses == left_alone.result().losses


def test_the_seed_decides_everything(graph):
    settings = {"epochs": 5, "threads": 1}
    first, again, other = (dorylus.train(graph, dorylus.gcn(), seed=seed, **settings) for seed in (3, 3, 4))
    assert first.losses == again.losses
    assert same(state(first), state(again))
    assert first.losses != other.losses


@pytest.mark.parametrize(
    "optimizer", ["sgd", "adamw", torch.optim.RMSprop, lambda groups: torch.optim.SGD(groups, lr=0.5)]
)
def test_any_optimiser_of_torch_steps_the_weights(graph, optimizer):
    result = dorylus.train(graph, dorylus.gcn(dropout=0.0), optimizer=optimizer, epochs=10, lr=0.05, threads=1)
    assert result.losses[-1] < result.losses[0]


def test_a_learning_rate_schedule_is_stepped_once_an_epoch(graph):
    rates = []

    class Noted(torch.optim.SGD):
        def step(self, closure=None):
            rates.append(self.param_groups[0]["lr"])
            return super().step(closure)

    options = {"lr_schedule": "StepLR", "lr_schedule_options": {"step_size": 2, "gamma": 0.5}}
    dorylus.train(graph, dorylus.gcn(), optimizer=Noted, lr=1.0, epochs=6, threads=1, **options)
    assert rates == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_a_learning_rate_schedule_may_be_a_callable(graph):
    made = []

    def schedule(optimizer):
        made.append(torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.0))
        return made[-1]

    result = dorylus.train(graph, dorylus.gcn(dropout=0.0), lr_schedule=schedule, epochs=3, threads=1)
    assert len(set(result.losses)) == 1  # the rate is 0 from the start


def test_evaluations_come_as_often_as_asked(trainer):
    log = MemorySink()
    trainer(eval_every=5, sinks=[log]).run().result()
    assert [record["epoch"] for record in log.of_kind("evaluation")] == [5, 10]
    assert {"train_accuracy", "val_micro_f1", "test_macro_f1"} <= log.of_kind("evaluation")[0].keys()


def test_the_log_tells_the_run_from_beginning_to_end(trainer):
    log = MemorySink()
    run = trainer(epochs=3, trace_epochs=2, eval_every=0, sinks=[log])
    result = run.run().result()
    kinds = [record["kind"] for record in log.records]
    assert kinds == ["run", "epoch", "spans", "epoch", "spans", "epoch", "stop", "result"]
    assert [record["loss"] for record in log.of_kind("epoch")] == result.losses
    assert [record["epoch"] for record in log.of_kind("epoch")] == [1, 2, 3]
    assert log.of_kind("run")[0]["graph"]["vertices"] == 200
    assert log.of_kind("result")[0]["test_accuracy"] == round(result.test_accuracy, 6)
    run.close()
    assert log.closed


def test_later_epochs_are_sampled_ever_more_rarely(trainer):
    log = MemorySink()
    trainer(epochs=20, trace_epochs=3, sinks=[log]).run()
    assert [record["epoch"] for record in log.of_kind("spans")] == [1, 2, 3, 4, 8, 16]


def test_without_traced_epochs_none_is_sampled(trainer):
    log = MemorySink()
    trainer(epochs=4, trace_epochs=0, sinks=[log]).run()
    assert log.of_kind("spans") == []


def test_an_epoch_of_too_many_tasks_is_not_sampled():
    assert is_traced(4, SAMPLED_TASKS, 3)
    assert not is_traced(4, SAMPLED_TASKS + 1, 3)
    assert is_traced(3, SAMPLED_TASKS + 1, 3)


def test_patience_counts_evaluations_without_a_better_score(trainer, monkeypatch):
    scores(monkeypatch, [0.5, 0.6, 0.6, 0.4, 0.7])
    run = trainer(eval_every=1, patience=2).run()
    assert run.epoch == 4
    assert run.result().stopped == "patience"


def test_a_better_score_gives_new_patience(trainer, monkeypatch):
    scores(monkeypatch, [0.5, 0.4, 0.6, 0.5, 0.5])
    run = trainer(eval_every=2, patience=2, epochs=40).run()
    assert run.epoch == 10


def test_a_target_ends_the_run_when_it_is_reached(trainer, monkeypatch):
    scores(monkeypatch, [0.5, 0.75, 0.9])
    run = trainer(eval_every=2, target_accuracy=0.75).run()
    assert run.epoch == 4
    assert run.result().stopped == "target_accuracy"


def test_a_run_that_was_not_stopped_ended_with_its_epochs(trainer):
    assert trainer().run().result().stopped == "epochs"


def test_the_best_weights_are_those_of_the_best_evaluation(trainer, monkeypatch):
    scores(monkeypatch, [0.5, 0.9, 0.6])
    kept = trainer(eval_every=2, keep="best", epochs=8).run().result()
    until_then = trainer(epochs=4, eval_every=0).run().result()
    assert same(state(kept), state(until_then))


def test_the_last_weights_are_kept_unless_asked_otherwise(trainer, monkeypatch):
    scores(monkeypatch, [0.5, 0.9, 0.6])
    assert same(state(trainer(eval_every=2).run().result()), state(trainer(eval_every=0).run().result()))


@pytest.mark.parametrize("settings", [{"patience": 2}, {"target_accuracy": 0.99}])
def test_a_run_that_looks_at_validation_keeps_the_best_weights(trainer, tmp_path, monkeypatch, settings):
    scores(monkeypatch, [0.5, 0.9, 0.6, 0.6])
    kept = trainer(eval_every=2, epochs=8, run_dir=tmp_path / "run", **settings).run().result()
    until_then = trainer(epochs=4, eval_every=0).run().result()
    assert same(state(kept), state(until_then))
    assert (kept.config.keep, kept.best_epoch, kept.best_score) == ("best", 4, 0.9)
    metrics = RunFolder.open(tmp_path / "run").read_metrics()
    assert (metrics["keep"], metrics["best_epoch"], metrics["best_score"]) == ("best", 4, 0.9)
    assert RunFolder.open(tmp_path / "run").config.keep == "best"


def test_a_run_with_patience_keeps_the_last_weights_where_that_is_asked(trainer, monkeypatch):
    scores(monkeypatch, [0.5, 0.9, 0.6])
    last = trainer(eval_every=2, epochs=6, patience=5, keep="last").run().result()
    assert same(state(last), state(trainer(epochs=6, eval_every=0).run().result()))
    assert (last.config.keep, last.best_epoch, last.best_score) == ("last", 4, 0.9)


def test_a_run_without_evaluations_has_no_best_epoch(trainer):
    result = trainer(eval_every=0).run().result()
    assert (result.config.keep, result.best_epoch, result.best_score) == ("last", None, None)


def test_predictions_and_a_resumed_run_leave_aside_a_best_epoch_that_was_not_saved(
    trainer, resumed, tmp_path, graph, monkeypatch
):
    settings = {"eval_every": 1, "checkpoint_every": 4, "patience": 20, "epochs": 14}
    scores(monkeypatch, [0.5, 0.9, 0.6, 0.6, 0.6, 0.95])
    trainer(run_dir=tmp_path / "run", **settings).run(6).close()  # killed: nothing was saved after epoch 4
    expected = trainer(epochs=2, eval_every=0).run().result().predict()
    np.testing.assert_array_equal(dorylus.predict_from(tmp_path / "run", graph=graph, model=dorylus.gcn()), expected)
    scores(monkeypatch, [0.7])  # asynchronous epochs, or others' roundings, may go otherwise the second time
    result = resumed(tmp_path / "run").run().result()
    assert (result.best_epoch, result.best_score) == (2, 0.9)
    np.testing.assert_array_equal(result.predict(), expected)
    assert [path.name for path in (tmp_path / "run" / "best").iterdir()] == ["epoch-000002"]
    again = resumed(tmp_path / "run").run().result()
    np.testing.assert_array_equal(again.predict(), expected)


def test_a_run_without_a_folder_writes_nothing(trainer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    trainer().run().result()
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_holds_settings_log_checkpoints_and_metrics(trainer, tmp_path):
    result = trainer(run_dir=tmp_path / "run", checkpoint_every=4).run().result()
    names = {path.name for path in (tmp_path / "run").iterdir()}
    assert {"run.toml", "log.jsonl", "checkpoints", "metrics.json"} <= names
    folder = RunFolder.open(tmp_path / "run")
    assert folder.config.epochs == 12
    assert [path.name for path in sorted(folder.checkpoints.iterdir())] == ["epoch-000008", "epoch-000012"]
    assert folder.read_metrics()["final_loss"] == result.losses[-1]
    first, *_, last = [json.loads(line) for line in folder.log.read_text().splitlines()]
    assert (first["kind"], last["kind"]) == ("run", "result")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9}},
        {"lr_schedule": "CosineAnnealingLR", "lr_schedule_options": {"T_max": 12}},
    ],
)
def test_a_resumed_run_ends_as_an_uninterrupted_one_to_the_last_bit(trainer, resumed, tmp_path, settings):
    settings = {"checkpoint_every": 3, "intervals": 3, **settings}
    whole = trainer(**settings).run().result()
    trainer(run_dir=tmp_path / "run", **settings).run(7).close()  # nothing was saved after epoch 6
    again = resumed(tmp_path / "run")
    assert again.epoch == 6
    result = again.run().result()
    assert result.losses == whole.losses
    assert same(state(result), state(whole))
    assert len(result.epoch_seconds) == 12


def test_intervals_that_were_chosen_are_kept_when_a_run_is_resumed(trainer, tmp_path):
    trainer(run_dir=tmp_path / "run").run(1)
    assert RunFolder.open(tmp_path / "run").config.intervals is not None


@pytest.mark.parametrize("stop", [2, 7, 9])
def test_a_resumed_run_knows_the_best_weights_so_far(trainer, resumed, tmp_path, monkeypatch, stop):
    values = [0.5, 0.6, 0.9, 0.7, 0.6, 0.95, 0.2]
    settings = {"eval_every": 1, "checkpoint_every": 4, "keep": "best", "epochs": 10}
    scores(monkeypatch, values)
    whole = trainer(**settings).run().result()
    scores(monkeypatch, values)
    trainer(run_dir=tmp_path / "run", **settings).run(stop).close()
    scores(monkeypatch, values[stop // 4 * 4 :] or values[-1:])
    assert same(state(resumed(tmp_path / "run").run().result()), state(whole))


def test_patience_is_remembered_over_a_pause(trainer, resumed, tmp_path, monkeypatch):
    scores(monkeypatch, [0.5, 0.4])
    trainer(run_dir=tmp_path / "run", eval_every=1, patience=3, checkpoint_every=2).run(2).close()
    scores(monkeypatch, [0.4, 0.4, 0.4, 0.9])
    run = resumed(tmp_path / "run").run()
    assert run.epoch == 4
    assert run.result().stopped == "patience"


def test_a_run_stopped_by_patience_stays_stopped(trainer, resumed, tmp_path, monkeypatch):
    scores(monkeypatch, [0.5, 0.4, 0.4])
    trainer(run_dir=tmp_path / "run", eval_every=1, patience=2).run().close()
    run = resumed(tmp_path / "run").run()
    assert run.epoch == 3
    assert run.result().stopped == "patience"


def test_a_run_killed_before_its_first_checkpoint_begins_again(trainer, resumed, tmp_path):
    trainer(run_dir=tmp_path / "run", checkpoint_every=10).run(3).close()
    again = resumed(tmp_path / "run")
    assert again.epoch == 0
    assert again.run().result().losses == trainer().run().result().losses


def test_a_finished_run_gives_its_result_again(trainer, resumed, tmp_path):
    run = trainer(run_dir=tmp_path / "run")
    first = run.run().result()
    run.close()
    again = resumed(tmp_path / "run").run().result()
    assert again.losses == first.losses
    assert same(state(again), state(first))
    assert again.stopped == "epochs"


def test_a_checkpoint_of_another_model_is_refused(trainer, tmp_path, graph):
    trainer(run_dir=tmp_path / "run").run().close()
    with pytest.raises(CheckpointError, match="is of another model"):
        dorylus.resume(tmp_path / "run", graph, dorylus.gcn(hidden=5))


def test_a_run_is_resumed_with_its_own_program_or_refused_before_any_work(trainer, tmp_path, graph, monkeypatch):
    trainer(run_dir=tmp_path / "run").run().close()
    monkeypatch.setattr("dorylus.training.trainer.assemble", lambda *_: pytest.fail("the graph was cut"))
    with pytest.raises(CheckpointError, match=r"another model: its layer 0 has GCN\(activation='relu', and"):
        dorylus.resume(tmp_path / "run", graph, dorylus.gcn(activation="elu"))
    monkeypatch.setattr(RunFolder, "load_graph", lambda folder: pytest.fail("the graph was loaded"))
    with pytest.raises(CheckpointError, match=r"another model: its layer 0 has GCN\(activation='relu', and"):
        dorylus.resume(tmp_path / "run", model=dorylus.gcn(activation="elu").build(6, 3))


@pytest.mark.parametrize("more", [{"epochs": 3}, {"optimizer": "sgd"}, {"pool": ThreadsPool()}, {"spec": RunSpec()}])
def test_the_records_of_a_run_leave_nothing_to_set(trainer, graph, tmp_path, more):
    trainer(run_dir=tmp_path / "run").run().close()
    records = RunRecords.stopped(tmp_path / "run", {})
    with pytest.raises(TypeError, match="give none beside them"), records.undone_on_error():
        dorylus.Trainer(graph, dorylus.gcn(), records=records, **more)


def test_a_run_whose_graph_was_made_in_memory_asks_for_it(trainer, tmp_path, graph):
    made = dataclasses.replace(graph, name="mine", trust="everything")
    with dorylus.Trainer(made, dorylus.gcn(hidden=4), epochs=1, threads=1, run_dir=tmp_path / "run") as run:
        run.run()
    with pytest.raises(ConfigError, match=r"started from Python with a graph of its own"):
        dorylus.resume(tmp_path / "run")


def test_a_run_without_a_checkpoint_is_not_resumed_on_another_graph(trainer, tmp_path, graph):
    trainer(run_dir=tmp_path / "run").close()
    other = dataclasses.replace(graph, features=graph.features + 1, trust="everything")
    with pytest.raises(CheckpointError, match="was started on another graph"):
        dorylus.resume(tmp_path / "run", other)


def test_ctrl_c_finishes_the_epoch_and_saves(trainer, resumed, tmp_path, monkeypatch):
    run = trainer(run_dir=tmp_path / "run")
    with monkeypatch.context() as patch:
        ctrl_c(patch, at=5)
        with pytest.raises(KeyboardInterrupt):
            run.run()
    run.close()
    assert checkpoint.latest(tmp_path / "run" / "checkpoints").name == "epoch-000005"
    again = resumed(tmp_path / "run")
    assert again.epoch == 5
    assert again.run().result().losses == trainer().run().result().losses
    assert again.result().stopped == "epochs"


def test_ctrl_c_in_the_epoch_in_which_the_run_stops_does_not_undo_that(trainer, resumed, tmp_path, monkeypatch):
    scores(monkeypatch, [0.5, 0.8, 0.6])
    run = trainer(run_dir=tmp_path / "run", eval_every=1, target_accuracy=0.75)
    with monkeypatch.context() as patch:
        ctrl_c(patch, at=2)
        with pytest.raises(KeyboardInterrupt):
            run.run()
    run.close()
    again = resumed(tmp_path / "run").run()
    assert again.epoch == 2
    assert again.result().stopped == "target_accuracy"


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            {"train_mask": None},
            GraphError,
            "empty train_mask: mark at least one labelled vertex for training. Ingest .* STORE --train FILE, or give "
            "train_mask= to",
        ),
        (
            {"labels": None, "train_mask": None, "val_mask": None, "test_mask": None},
            GraphError,
            "has no labels: .* dorylus ingest EDGES STORE --labels FILE --train FILE, or give labels=, train_mask= to",
        ),
        ({"features": None}, GraphError, "has no features: .* dorylus ingest EDGES STORE --features FILE, or give"),
    ],
)
def test_a_graph_there_is_nothing_to_learn_from_is_refused(graph, tmp_path, change, error, says):
    fields = ("indptr", "indices", "features", "labels", "train_mask", "val_mask", "test_mask")
    poor = dorylus.Graph(**({name: getattr(graph, name) for name in fields} | change))
    with pytest.raises(error, match=says):
        dorylus.train(poor, dorylus.gcn(), epochs=1, run_dir=tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_table_without_a_training_split_is_refused_with_the_cure_of_tables(graph, tmp_path):
    names = tuple(f"class {number}" for number in range(graph.num_classes))
    poor = dorylus.Graph(graph.indptr, graph.indices, graph.features, graph.labels, class_names=names)
    with pytest.raises(
        GraphError, match=r"empty train_mask: .* split= of Graph.from_tables, .* --split train="
    ) as error:
        dorylus.train(poor, dorylus.gcn(), epochs=1, run_dir=tmp_path / "run")
    assert "--train FILE" not in str(error.value)
    assert "from_edges" not in str(error.value)


@pytest.mark.parametrize(
    ("model", "settings", "says"),
    [
        (dorylus.gcn().build(7, 3), {}, "made for 7 features, but graph 'communities' has 6"),
        (dorylus.gcn().build(6, 4), {}, "made for 4 classes, but graph 'communities' has 3"),
        (torch.nn.Linear(6, 3), {}, "model is a Linear: write what it does per vertex .* or use dorylus.gcn"),
        (dorylus.gcn().build(6, 3).double(), {}, "float32"),
        (dorylus.gcn(), {"intervals": 201}, "use at most 200"),
        (dorylus.gcn(), {"loss": "bce"}, "have one label each: use loss='auto'"),
        (dorylus.gcn(), {"optimizer": "adma"}, "optimizer='adma' is unknown"),
        (dorylus.gcn(), {"epoch": 3}, "unknown setting 'epoch': it is called epochs here"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(graph, tmp_path, model, settings, says):
    with pytest.raises(ConfigError, match=says):
        dorylus.train(graph, model, run_dir=tmp_path / "run", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("graph", ["cora", None])
def test_what_is_no_graph_is_refused_with_the_way_to_get_one(graph):
    with pytest.raises(ConfigError, match=r"dorylus\.load"):
        dorylus.train(graph, dorylus.gcn())


class Plain(dorylus.Layer):
    """A layer without weights."""

    def apply_vertex(self, own, gathered):
        return gathered[:, : self.out_columns]


def test_a_model_without_weights_is_refused_by_that_name(graph):
    with pytest.raises(ConfigError, match="no weights"):
        dorylus.train(graph, dorylus.Program([Plain(6, 3)]), epochs=1)


def test_many_labels_are_trained_and_scored(tmp_path):
    many = dorylus.communities(num_vertices=200, num_classes=4, num_features=6, multilabel=True, seed=0)
    result = dorylus.train(many, dorylus.gcn(dropout=0.0), epochs=30, lr=0.05, threads=1)
    assert result.losses[0] == pytest.approx(math.log(2), rel=0.5)
    assert result.losses[-1] < result.losses[0]
    assert result.predict("classes").shape == (200, 4)
    assert set(np.unique(result.predict("classes"))) <= {0, 1}
    assert result.config.loss == "auto"


@pytest.mark.parametrize("savings", [{"cache_first_gather": False}, {"narrow_gather": False}, {"prune_rows": False}])
def test_savings_change_the_work_and_not_the_losses(graph, savings):
    settings = {"epochs": 4, "threads": 1, "intervals": 2}
    saved = dorylus.train(graph, dorylus.gcn(hidden=4, dropout=0.0), **settings)
    plain = dorylus.train(graph, dorylus.gcn(hidden=4, dropout=0.0), **settings, **savings)
    assert saved.losses == pytest.approx(plain.losses, rel=1e-4)
    assert plain.work.done >= saved.work.done


def test_the_model_handed_in_is_left_as_it_was(graph):
    program = dorylus.gcn().build(6, 3, seed=1)
    before = {name: value.clone() for name, value in program.state_dict().items()}
    result = dorylus.train(graph, program, epochs=2, threads=1)
    assert same(before, program.state_dict())
    assert not same(state(result), before)


def test_a_run_is_not_resumed_on_another_graph(trainer, graph, tmp_path):
    trainer(run_dir=str(tmp_path / "run"), checkpoint_every=2).run(4).close()
    other = dorylus.communities(num_vertices=200, num_classes=3, num_features=6, average_degree=6, seed=1)
    with pytest.raises(CheckpointError, match=r"started on another graph .*Resume it with the graph it was started on"):
        dorylus.resume(tmp_path / "run", other, dorylus.gcn())


@pytest.mark.parametrize("settings", [{"patience": 3}, {"target_accuracy": 0.9}, {"keep": "best"}])
def test_what_looks_at_validation_is_refused_without_any(trainer, graph, settings):
    unvalidated = dataclasses.replace(graph, val_mask=np.zeros(200, np.bool_), trust="everything")
    with pytest.raises(ConfigError, match=f"{next(iter(settings))}=.* has an empty val_mask"):
        trainer(graph=unvalidated, **settings)


def test_an_error_in_a_body_names_the_layer_and_the_method(trainer):
    class Wrong(dorylus.Layer):
        def __init__(self):
            super().__init__(6, 3)
            self.lin = torch.nn.Linear(99, 3)

        def prepare(self, x):
            return self.lin(x)

    says = r"prepare of layer 0 \(Wrong\) fails on rows of shape \[2, 6\]: RuntimeError"
    with pytest.raises(ConfigError, match=says):
        trainer(dorylus.Program([Wrong()]))


def test_a_closed_trainer_refuses_to_go_on(trainer):
    closed = trainer(epochs=4)
    closed.run(2)
    closed.close()
    for go_on in (closed.run, closed.result):
        with pytest.raises(TrainingError, match="the trainer is closed"):
            go_on()


def test_resuming_a_finished_run_cut_in_another_way_leaves_its_settings_alone(trainer, resumed, tmp_path):
    trainer(epochs=3, run_dir=tmp_path / "run").run().close()
    before = (tmp_path / "run" / "run.toml").read_bytes()
    resumed(tmp_path / "run", servers=2).run()
    assert (tmp_path / "run" / "run.toml").read_bytes() == before


@pytest.mark.parametrize("partition", ["metsi", "nowhere/at/all"])
def test_a_partition_nobody_knows_is_refused_also_on_one_server(trainer, partition):
    with pytest.raises(ConfigError, match=r"partition='[^']*' is unknown: .* There is no folder of saved shards"):
        trainer(partition=partition)


def test_a_run_that_was_stopped_in_an_evaluation_makes_it_when_it_goes_on(trainer, resumed, tmp_path, monkeypatch):
    settings = {"epochs": 12, "eval_every": 3, "keep": "best", "checkpoint_every": 0}
    whole = trainer(**settings).run().result()
    run = trainer(run_dir=tmp_path / "run", **settings)
    evaluate = dorylus.Trainer._evaluate

    def stopped(self):
        if self.epoch == 6:
            raise EpochDroppedError("the epoch was given up.")
        evaluate(self)

    with monkeypatch.context() as patch:
        patch.setattr(dorylus.Trainer, "_evaluate", stopped)
        with pytest.raises(Terminated):
            run.run()
    run.close()
    again = resumed(tmp_path / "run")
    assert again.epoch == 6
    sink = MemorySink()
    again.log._sinks.append(sink)
    result = again.run().result()
    assert [record["epoch"] for record in sink.records if record["kind"] == "evaluation"] == [6, 9, 12]
    assert result.losses == whole.losses
    assert same(state(result), state(whole))


class Forgetful:
    """A pool that cannot be stopped."""

    def submit(self, call, done, failed):
        raise AssertionError("nothing is submitted to what is no pool")


@pytest.mark.parametrize(
    ("pool", "found"),
    [
        (3, "pool=3, which lacks submit, close"),
        (PoolHandle(3), "pool=3, which lacks submit, close"),
        (Forgetful(), "pool=.*Forgetful.*, which lacks close"),
        (ThreadsPool, "pool=.*ThreadsPool.*, which is a class"),
    ],
)
def test_what_is_no_pool_is_refused_with_the_cure(graph, tmp_path, pool, found):
    cure = r": give the name of a pool \(threads, .*\) or an object with the methods of dorylus.pools.TensorPool"
    with pytest.raises(ConfigError, match=found + cure):
        dorylus.train(graph, dorylus.gcn(hidden=4), pool=pool, epochs=1, run_dir=tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_a_trainer_that_is_closed_while_it_runs_says_so(graph):
    class Closing(ThreadsPool):
        calls = 0

        def submit(self, call, done, failed):
            self.calls += 1
            if self.calls == 5:
                trainer.close()
            super().submit(call, done, failed)

    trainer = dorylus.Trainer(graph, dorylus.gcn(hidden=4), pool=Closing(), epochs=20, threads=1)
    with pytest.raises(TrainingError, match="closed while an epoch was in progress"):
        trainer.run()


def test_a_run_whose_files_change_in_its_first_epoch_keeps_its_folder_and_its_bill(graph, tmp_path):
    """It is a failure, not a refusal: the epoch was paid for, and resume begins again."""
    graph.save(tmp_path / "store")

    class Touching(ThreadsPool):
        def submit(self, call, done, failed):
            os.utime(tmp_path / "store" / "features.bin")
            super().submit(call, done, failed)

    stored, settings = dorylus.Graph.open(tmp_path / "store"), {"run_dir": str(tmp_path / "run"), "epochs": 3}
    with (
        dorylus.Trainer(stored, dorylus.gcn(hidden=4), pool=Touching(), threads=1, **settings) as run,
        pytest.raises(DataError, match=r"features\.bin was written to"),
    ):
        run.run()
    left = {each.name for each in (tmp_path / "run").iterdir()}
    assert {"run.toml", "log.jsonl", "used.ledger"} <= left


def test_runs_whose_folders_name_few_or_all_options_of_a_model_compare_as_equal(graph, tmp_path):
    from dorylus.report import compare_runs

    few = RunSpec({"source": "cora"}, {"name": "gcn", "hidden": 4})
    everything = RunSpec({"source": "cora"})
    for name, spec in (("few", few), ("all", everything)):
        with dorylus.Trainer(
            graph, dorylus.gcn(hidden=4), epochs=1, threads=1, run_dir=tmp_path / name, spec=spec
        ) as run:
            run.run()
    assert compare_runs([tmp_path / "few", tmp_path / "all"]).settings == {}
