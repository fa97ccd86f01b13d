"""A run whose numbers leave the range of float32 ends as a failure, and its last sound checkpoint stays."""

import pytest
import torch

import dorylus
from dorylus.cli import main
from dorylus.errors import DivergedError
from dorylus.runs import checkpoint
from small_runs import same, state

GROWING = {"lr": 0.01, "lr_schedule": "ExponentialLR", "lr_schedule_options": {"gamma": 100.0}}
STEP_BY_STEP = {"epochs": 40, "checkpoint_every": 1, "eval_every": 0, "threads": 1, "intervals": 2}


def saved(run_dir):
    """The checkpoints of a run, by epoch."""
    folder = run_dir / "checkpoints"
    return {checkpoint.epoch_of(path): checkpoint.load(path) for path in sorted(folder.glob("epoch-*"))}


def assert_finite(state):
    tensors = [*state.weights.values()]
    tensors += [each for its in state.optimizer["state"].values() for each in its.values()]
    assert all(torch.isfinite(each).all() for each in tensors)


@pytest.mark.parametrize("lr", [1e20, 1e30])
def test_weights_whose_squares_overflow_are_no_result(trainer, tmp_path, lr):
    run = trainer(lr=lr, epochs=1, run_dir=tmp_path / "run")
    with pytest.raises(
        DivergedError, match=r"after epoch 1, layers\.0\..* overflows\. There is no checkpoint.*lr well below"
    ):
        run.run()
    assert saved(tmp_path / "run") == {}


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"keep": "best", "eval_every": 1},
        {"servers": 2, "parameter_servers": 2},
        {"mode": "async", "staleness": 1},
        {"mode": "async", "weight_update": "async"},
        {"memory": "2GiB"},
        {"optimizer": "sgd"},
    ],
    ids=str,
)
def test_the_last_sound_checkpoint_is_named_and_kept(trainer, graph, tmp_path, settings):
    run_dir = tmp_path / "run"
    run = trainer(run_dir=run_dir, **(STEP_BY_STEP | GROWING | settings))
    with pytest.raises(DivergedError) as ended:
        run.run()
    run.close()
    left = saved(run_dir)
    newest = run_dir / "checkpoints" / f"epoch-{max(left):06d}"
    assert f"The checkpoint {newest} is from before, and is kept" in str(ended.value)
    for each in left.values():
        assert_finite(each)
    logits = dorylus.predict_from(run_dir, graph=graph, model=dorylus.gcn())
    assert torch.isfinite(torch.from_numpy(logits)).all()


def test_a_resumed_run_goes_on_from_the_checkpoint_that_was_kept(trainer, resumed, tmp_path):
    run_dir = tmp_path / "run"
    with pytest.raises(DivergedError) as first:
        trainer(run_dir=run_dir, **(STEP_BY_STEP | GROWING)).run()
    kept = max(saved(run_dir))
    again = resumed(run_dir)
    assert again.epoch == kept
    with pytest.raises(DivergedError) as second:
        again.run()
    for ended in (first, second):
        assert f"epoch-{kept:06d} is from before, and is kept" in str(ended.value)
    assert max(saved(run_dir)) == kept


def test_a_checkpoint_whose_weights_are_finite_but_not_their_outputs_is_dropped(trainer, resumed, tmp_path):
    run_dir = tmp_path / "run"
    deep = dorylus.gcn(num_layers=4, dropout=0.0)
    jump = {"lr": 1e-3, "lr_schedule": "ExponentialLR", "lr_schedule_options": {"gamma": 1e15}}
    with pytest.raises(DivergedError, match=r"the loss of epoch 3 is .*The checkpoint \S*epoch-000001 is from before"):
        trainer(deep, run_dir=run_dir, **(STEP_BY_STEP | jump)).run()
    assert list(saved(run_dir)) == [1]
    assert resumed(run_dir, deep).epoch == 1


def test_a_checkpoint_whose_outputs_are_found_bad_at_the_end_is_dropped(trainer, tmp_path):
    run_dir = tmp_path / "run"
    jump = {"lr": 1e-3, "lr_schedule": "ExponentialLR", "lr_schedule_options": {"gamma": 1e15}}
    deep = dorylus.gcn(num_layers=4, dropout=0.0)
    run = trainer(deep, run_dir=run_dir, **(STEP_BY_STEP | jump | {"epochs": 2}))
    with pytest.raises(DivergedError, match=r"outputs are not finite.*epoch-000001 is from before"):
        run.run().result()
    assert list(saved(run_dir)) == [1]
    assert not (run_dir / "metrics.json").exists()


class StuckAdam(torch.optim.Adam):
    """Its second moments overflow in the third step, which leaves every weight as it is: no loss ever shows it."""

    steps = 0

    def step(self, closure=None):
        super().step()
        self.steps += 1
        if self.steps == 3:
            for its in self.state.values():
                its["exp_avg_sq"].fill_(torch.inf)


def test_optimiser_state_that_is_not_finite_ends_the_run_although_the_weights_are(trainer, tmp_path):
    run = trainer(optimizer=StuckAdam, run_dir=tmp_path / "run", checkpoint_every=1)
    with pytest.raises(DivergedError, match=r"exp_avg_sq, which the optimiser keeps for .*epoch-000002"):
        run.run()
    assert list(saved(tmp_path / "run")) == [1, 2]


def test_a_run_that_does_not_diverge_is_none_the_wiser(trainer, tmp_path):
    """The look at weights and state leaves every bit as it is."""
    watched, plain = trainer(run_dir=tmp_path / "run", checkpoint_every=1), trainer()
    assert same(state(watched.run().result()), state(plain.run().result()))


def test_the_command_ends_with_one_sentence_and_exit_code_1(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["train", "ring:num_vertices=20", "--lr", "1e30", "--epochs", "1", "--run-dir", "run", "--threads", "1"])
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: training diverged: after epoch 1, ")
