import json
import threading

import pytest

import dorylus
from dorylus.errors import ConfigError
from dorylus.runs import LoggerWarning
from dorylus.runs.loggers import EpochSteps, LoggerSink, closing_figures, flat_settings


def run_record(**config):
    return {
        "kind": "run",
        "config": {"lr": 0.5, "eval_every": 2, "patience": None, "log_to": ("wandb",), **config},
        "graph": {"name": "cora", "vertices": 10},
        "model": {"name": "gcn", "parameters": 3},
        "resumed_from": None,
    }


def epoch(number, **others):
    return {
        "kind": "epoch",
        "epoch": number,
        "loss": 1 / number,
        "seconds": 0.5,
        "usd": 0.25,
        "memory_bytes": 8,
    } | others


def evaluation(number, **scores):
    return {"kind": "evaluation", "t": 1.0, "epoch": number, **scores}


FIGURES = {"loss": 1.0, "seconds": 0.5, "usd": 0.25, "memory_bytes": 8.0}


class ListLogger:
    """Keeps what it is given."""

    run_id = "list"

    def __init__(self, last_step=0, fails_at=None):
        self.last_step, self.fails_at = last_step, fails_at
        self.steps, self.figures, self.finished = [], [], None

    def log(self, steps):
        for step, values in steps:
            if step == self.fails_at:
                raise OSError("the service is gone.\nand more")
            self.steps.append((step, values))

    def summarise(self, figures):
        self.figures.append(figures)

    def close(self, *, finished):
        self.finished = finished


def given(records, logger):
    sink = LoggerSink("wandb", logger)
    for record in records:
        sink.write(record)
    sink.close()
    return logger


def test_an_epoch_and_its_evaluation_are_one_step():
    logger = given([run_record(), epoch(1), epoch(2), evaluation(2, val_accuracy=0.5), epoch(3)], ListLogger())
    assert logger.steps == [
        (1, FIGURES),
        (2, FIGURES | {"loss": 0.5, "val_accuracy": 0.5}),
        (3, FIGURES | {"loss": 1 / 3}),
    ]
    assert logger.finished is False


def test_an_epoch_whose_evaluation_is_missing_waits_for_it():
    """A run that is stopped before the evaluation makes it when it is resumed."""
    assert [step for step, _ in given([run_record(), epoch(1), epoch(2)], ListLogger()).steps] == [1]
    steps = EpochSteps()
    seen = [step for record in (run_record(), epoch(2), {"kind": "result"}) for step in steps.add(record)]
    assert [step for step, _ in seen] == [2]


def test_what_is_no_finite_number_is_left_out():
    logger = given([run_record(), epoch(1, loss=float("nan"), usd=None)], ListLogger())
    assert logger.steps == [(1, {"seconds": 0.5, "memory_bytes": 8.0})]


def test_steps_that_a_logger_has_are_not_given_again():
    records = [run_record(), epoch(1), epoch(2), evaluation(2, val_accuracy=0.5), epoch(3)]
    assert [step for step, _ in given(records, ListLogger(last_step=2)).steps] == [3]


def test_the_result_comes_last_and_ends_the_run():
    result = {
        "kind": "result",
        "test_accuracy": 0.7,
        "seconds": 3.0,
        "stopped": "epochs",
        "best_epoch": None,
        "work": "x",
    }
    logger = given([run_record(), epoch(1), result], ListLogger())
    assert logger.figures == [{"test_accuracy": 0.7, "seconds": 3.0, "stopped": "epochs"}]
    assert logger.finished is True


def test_a_logger_that_fails_is_reported_once_and_the_run_goes_on():
    logger = ListLogger(fails_at=3)
    says = "the logger wandb has failed .the service is gone.: the run goes on without it"
    with pytest.warns(LoggerWarning, match=says) as warned:
        given([epoch(number) for number in range(1, 100)], logger)
    assert len(warned) == 1
    assert [step for step, _ in logger.steps] in ([1, 2], [])  # steps are given several at once
    assert logger.finished is False


def test_a_logger_that_hangs_does_not_hold_up_the_run():
    wake = threading.Event()

    class Hanging(ListLogger):
        def log(self, steps):
            wake.wait()

    sink = LoggerSink("mlflow", Hanging(), close_s=0.01)
    sink.write(epoch(1))
    with pytest.warns(LoggerWarning, match=r"it has not taken the last epochs within 0.01 s"):
        sink.close()
    wake.set()
    sink._thread.join()


def test_settings_are_one_flat_table():
    record = run_record(optimizer_options={"momentum": 0.9, "betas": [0.1, 0.2]})
    assert flat_settings(record) == {
        "lr": 0.5,
        "eval_every": 2,
        "log_to": "wandb",
        "optimizer_options.momentum": 0.9,
        "optimizer_options.betas": "0.1,0.2",
        "graph.name": "cora",
        "graph.vertices": 10,
        "model.name": "gcn",
        "model.parameters": 3,
    }


def test_the_closing_figures_have_the_dollars_of_the_bill(trainer):
    result = trainer(epochs=1).run().result()
    assert closing_figures(result.summary())["usd"] == result.bill.total_usd


@pytest.mark.parametrize(
    ("value", "names"),
    [("wandb", ("wandb",)), (["mlflow", "wandb,mlflow"], ("mlflow", "wandb")), ((), ()), ("", ())],
)
def test_several_loggers_may_be_named(value, names):
    assert dorylus.RunConfig.of(log_to=value).log_to == names


@pytest.mark.parametrize(
    ("value", "says"), [("wandbb", "Did you mean 'wandb'"), (3, "takes names"), ([3], "takes names")]
)
def test_another_logger_is_refused(value, says):
    with pytest.raises(ConfigError, match=says):
        dorylus.RunConfig.of(log_to=value)


def test_a_logger_that_is_not_installed_is_refused_before_anything_is_written(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr("dorylus.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r'log_to=\'wandb\' needs wandb, .* pip install "dorylus\[wandb\]"'):
        trainer(run_dir=tmp_path / "run", log_to="wandb")
    assert list(tmp_path.iterdir()) == []


def test_a_logger_that_cannot_begin_is_refused_and_leaves_nothing(trainer, tmp_path, monkeypatch):
    def refuse(run):
        raise RuntimeError("no key is configured.\nsee the manual")

    monkeypatch.setattr("dorylus.runs.wandb.open_wandb", refuse)
    with pytest.raises(ConfigError, match=r"log_to='wandb': it cannot begin a run \(no key is configured\)\. Mend"):
        trainer(run_dir=tmp_path / "run", log_to="wandb")
    assert list(tmp_path.iterdir()) == []


def killed_and_resumed(trainer, resumed, folder, monkeypatch, vendor, make):
    """The loggers of a run that was killed after epoch 5, saved after epoch 3, and of its resumption."""
    opened = []

    def open_list(run):
        opened.append((run, make(run)))
        return opened[-1][1]

    monkeypatch.setattr(f"dorylus.runs.{vendor}.open_{vendor}", open_list)
    trainer(run_dir=folder, log_to=vendor, checkpoint_every=3, eval_every=2, epochs=7).run(5).close()
    resumed(folder).run().result()
    return opened


def test_after_a_resume_a_logger_gets_what_it_lacks(trainer, resumed, tmp_path, monkeypatch):
    opened = killed_and_resumed(
        trainer, resumed, tmp_path / "run", monkeypatch, "mlflow", lambda run: ListLogger(2 if run.run_id else 0)
    )
    (first, its), (second, later) = opened
    assert (first.run_id, second.run_id, first.resumed_from, second.resumed_from) == (None, "list", None, 3)
    assert [step for step, _ in its.steps] == [1, 2, 3, 4, 5]
    assert [step for step, _ in later.steps] == [3, 4, 5, 6, 7]  # the third out of the run log
    assert dict(its.steps)[3]["loss"] == dict(later.steps)[3]["loss"]
    assert "val_accuracy" in dict(later.steps)[4]
    assert second.logged_until == 5
    assert json.loads((tmp_path / "run" / "loggers.json").read_text()) == {"mlflow": "list"}


def test_a_logger_that_is_added_when_a_run_is_resumed_gets_all_epochs(trainer, resumed, tmp_path, monkeypatch):
    trainer(run_dir=tmp_path / "run", checkpoint_every=3, epochs=7).run(5).close()
    logger = ListLogger()
    monkeypatch.setattr("dorylus.runs.wandb.open_wandb", lambda run: logger)
    resumed(tmp_path / "run", log_to=["wandb"]).run().result()
    assert [step for step, _ in logger.steps] == [1, 2, 3, 4, 5, 6, 7]


def test_a_logger_does_not_change_a_run(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr("dorylus.runs.wandb.open_wandb", lambda run: ListLogger())
    logged, plain = trainer(log_to="wandb").run().result(), trainer().run().result()
    assert logged.losses == plain.losses


def test_tensorboard_needs_a_folder(trainer):
    with pytest.raises(ConfigError, match=r"log_to='tensorboard' without run_dir: its files lie in the run's folder"):
        trainer(log_to="tensorboard")
