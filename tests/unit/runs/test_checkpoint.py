import copy
import json
import os
from pathlib import Path

import pytest
import torch
from torch.optim import lr_scheduler

from dorylus import files
from dorylus.errors import CheckpointError
from dorylus.runs.checkpoint import (
    FORMAT,
    Checkpoint,
    _state_file,
    at_epoch,
    fingerprint,
    latest,
    load,
    oldest,
    prune,
    prune_before,
    save,
)
from dorylus.servers.parameter.parameter_servers import ParameterServers, PSState

OPTIMIZERS = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.1, betas=(0.8, 0.95)),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1, centered=True, momentum=0.5),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.1),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.1),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.1),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.1),
    "adafactor": lambda p: torch.optim.Adafactor(p, lr=0.1),
}
SCHEDULES = {
    "step": lambda o: lr_scheduler.StepLR(o, 2, gamma=0.3),
    "multi_step": lambda o: lr_scheduler.MultiStepLR(o, [3, 5, 5], gamma=0.3),
    "cosine": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=7),
    "warm_restarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3),
    "plateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, patience=0),
    "one_cycle": lambda o: lr_scheduler.OneCycleLR(o, max_lr=0.5, total_steps=9),
    "cyclic": lambda o: lr_scheduler.CyclicLR(o, 0.01, 0.1, step_size_up=2, cycle_momentum=False),
    "polynomial": lambda o: lr_scheduler.PolynomialLR(o, total_iters=6),
}


def small_model():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))


def servers_of(model, num_servers, make_optimizer, make_schedule):
    def make(named):
        return make_optimizer([parameter for _, parameter in named])

    return ParameterServers(model, num_servers, make_optimizer=make, make_schedule=make_schedule)


def train(model, servers, epochs):
    for epoch in epochs:
        x = torch.randn(8, 3, generator=torch.Generator().manual_seed(epoch))
        loss = model(x).square().mean()
        parameters = dict(model.named_parameters())
        grads = torch.autograd.grad(loss, list(parameters.values()))
        servers.push(0, epoch, 0, dict(zip(parameters, grads, strict=True)))
        servers.finish(0, epoch)
        servers.end_epoch(loss.item())


def state_of(model, servers):
    state = servers.state()
    return Checkpoint(epoch=4, weights=model.state_dict(), optimizer=state.optimizer, lr_schedule=state.lr_schedule)


def bits(state):
    return {name: tensor.numpy().tobytes() for name, tensor in state.items()}


@pytest.mark.parametrize("schedule_name", [None, "step"])
@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
def test_a_run_continues_bit_for_bit_with_every_optimiser(tmp_path, optimizer_name, schedule_name):
    assert_resumes_exactly(tmp_path, OPTIMIZERS[optimizer_name], SCHEDULES.get(schedule_name, lambda o: None))


@pytest.mark.parametrize("schedule_name", SCHEDULES)
def test_a_run_continues_bit_for_bit_with_every_schedule(tmp_path, schedule_name):
    assert_resumes_exactly(tmp_path, OPTIMIZERS["sgd_momentum"], SCHEDULES[schedule_name])


def assert_resumes_exactly(folder, make_optimizer, make_schedule):
    model = small_model()
    servers = servers_of(model, 3, make_optimizer, make_schedule)
    train(model, servers, range(4))
    state = load(save(folder, state_of(model, servers)))
    train(model, servers, range(4, 8))

    again = small_model()
    servers_again = servers_of(again, 1, make_optimizer, make_schedule)
    again.load_state_dict(state.weights)
    weights = {name: state.weights[name] for name, _ in again.named_parameters()}
    servers_again.restore(PSState(weights, state.optimizer, state.lr_schedule))
    train(again, servers_again, range(4, 8))
    assert bits(again.state_dict()) == bits(model.state_dict())
    assert servers_again.state().optimizer["groups"] == servers.state().optimizer["groups"]


def test_every_kind_of_state_comes_back_equal(tmp_path):
    optimizer = {
        "state": {"w": {"step": torch.tensor(3.0), "exp_avg": torch.randn(2, 3), "none": None}, "b": {}},
        "groups": {"w": {"betas": (0.9, 0.1 + 0.2), "foreach": None, "nesterov": True, "lr": 1e-310}, "b": {7: 8}},
    }
    schedule = {"best": float("inf"), "worst": float("-inf"), "milestones": {3: 1}, "text": "é∇", "$tuple": 1}
    progress = {"losses": [1.5, 0.1], "best": {"score": None, "epoch": 3}, "nested": [[1, 2], []]}
    weights = {"w": torch.arange(6).reshape(2, 3).t(), "b": torch.tensor(2.0, dtype=torch.bfloat16), "e": torch.ones(0)}
    saved = Checkpoint(
        epoch=3, weights=weights, optimizer=optimizer, lr_schedule=schedule, progress=progress, spec="gcn"
    )
    loaded = load(save(tmp_path, saved))
    assert (loaded.epoch, loaded.spec, loaded.progress, loaded.lr_schedule) == (3, "gcn", progress, schedule)
    assert loaded.optimizer["groups"] == optimizer["groups"]
    assert loaded.optimizer["state"]["b"] == {}
    assert loaded.optimizer["state"]["w"]["none"] is None
    assert torch.equal(loaded.optimizer["state"]["w"]["exp_avg"], optimizer["state"]["w"]["exp_avg"])
    assert loaded.optimizer["state"]["w"]["step"].shape == ()
    assert list(loaded.weights) == ["w", "b", "e"]
    assert all(torch.equal(loaded.weights[name], weights[name]) for name in weights)
    assert all(loaded.weights[name].dtype == weights[name].dtype for name in weights)


def test_loaded_state_may_be_changed_in_place(tmp_path):
    state = load(save(tmp_path, plain(1)))
    state.weights["w"].add_(1)
    assert state.weights["w"].tolist() == [2.0, 2.0]


def test_parameters_that_share_memory_are_saved_each(tmp_path):
    shared = torch.ones(4)
    state = Checkpoint(epoch=1, weights={"a": shared, "b": shared, "c": shared[1:3]}, optimizer={})
    assert list(load(save(tmp_path, state)).weights) == ["a", "b", "c"]


def test_state_that_no_file_can_hold_is_refused_and_leaves_nothing(tmp_path):
    state = Checkpoint(epoch=1, weights={}, optimizer={}, lr_schedule={"f": lambda e: e})
    with pytest.raises(CheckpointError, match=r"lr_schedule\.f is a function"):
        save(tmp_path, state)
    assert list(tmp_path.iterdir()) == []


def plain(epoch, value=1.0, spec=""):
    weights = {"w": torch.full((2,), value), "b": torch.zeros(3)}
    return Checkpoint(epoch=epoch, weights=weights, optimizer={"state": {}, "groups": {}}, spec=spec)


def test_a_checkpoint_is_three_files_in_a_folder_named_for_its_epoch(tmp_path):
    path = save(tmp_path, plain(120))
    assert path == tmp_path / "epoch-000120"
    assert sorted(file.name for file in path.iterdir()) == [
        "optimizer.safetensors",
        "state.json",
        "weights.safetensors",
    ]


def test_no_json_reader_stumbles_over_the_state(tmp_path):
    state = Checkpoint(epoch=1, weights={}, optimizer={}, progress={"best": float("nan")})
    text = (save(tmp_path, state) / "state.json").read_text()
    read = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert read["content"]["epoch"] == 1


def test_the_latest_is_that_of_the_highest_epoch_even_past_a_million(tmp_path):
    for epoch in (9, 1_000_000, 10):
        save(tmp_path, plain(epoch))
    assert latest(tmp_path) == tmp_path / "epoch-1000000"


def test_there_is_no_latest_where_there_are_none(tmp_path):
    (tmp_path / "notes").mkdir()
    assert latest(tmp_path) is None
    assert latest(tmp_path / "nowhere") is None


def test_loading_a_folder_loads_the_latest(tmp_path):
    for epoch in (1, 2):
        save(tmp_path, plain(epoch))
    assert load(tmp_path).epoch == 2


def test_loading_a_folder_without_checkpoints_is_refused(tmp_path):
    with pytest.raises(CheckpointError, match=r"no checkpoint in .*train again from the beginning"):
        load(tmp_path)


def test_pruning_keeps_the_last_two(tmp_path):
    for epoch in (1, 2, 3, 4):
        save(tmp_path, plain(epoch))
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000003", "epoch-000004"]


def test_best_models_that_a_remaining_checkpoint_refers_to_are_kept(tmp_path):
    for epoch in (10, 30, 50, 60):
        save(tmp_path, plain(epoch))
    prune_before(tmp_path, 49)  # a run that goes on from epoch 49 had its best at 30
    assert sorted(path.name for path in tmp_path.iterdir()) == ["epoch-000030", "epoch-000050", "epoch-000060"]
    prune_before(tmp_path, 5)
    assert oldest(tmp_path) == at_epoch(tmp_path, 30)


def test_saving_an_epoch_again_replaces_it(tmp_path):
    save(tmp_path, plain(1, 1.0))
    save(tmp_path, plain(1, 2.0))
    assert load(tmp_path).weights["w"].tolist() == [2.0, 2.0]
    assert len(list(tmp_path.iterdir())) == 1


def test_incomplete_files_of_a_crash_are_never_loaded_and_removed_at_the_next_save(tmp_path):
    half = tmp_path / f"{files.PARTIAL}0123456789abcdef-epoch-000009"
    half.mkdir()
    (half / "weights.safetensors").write_bytes(b"half")
    assert latest(tmp_path) is None
    save(tmp_path, plain(1))
    assert [path.name for path in tmp_path.iterdir()] == ["epoch-000001"]


@pytest.mark.parametrize("calls", range(1, 6))
def test_a_failure_at_any_step_of_saving_leaves_the_checkpoint_before(tmp_path, monkeypatch, calls):
    save(tmp_path, plain(1))
    fail_at_call(monkeypatch, calls)
    with pytest.raises(CheckpointError, match=r"No space left.*resume from the checkpoint before") as failed:
        save(tmp_path, plain(2))
    assert failed.value.exit_code == 1, "the run failed: the request was valid"
    monkeypatch.undo()
    assert load(tmp_path).epoch == 1 or (calls == 5 and load(tmp_path).epoch == 2)
    assert not list(tmp_path.glob(f"{files.PARTIAL}*"))


def fail_at_call(monkeypatch, number):
    """Makes the disk full at the n-th fsync or rename."""
    left = [number]

    def failing(real):
        def call(*arguments):
            left[0] -= 1
            if left[0] == 0:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        return call

    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    monkeypatch.setattr(os, "replace", failing(os.replace))


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "empty"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_named(tmp_path, file, damage):
    save(tmp_path, plain(1))
    damaged = save(tmp_path, plain(2)) / file
    hurt(damaged, damage)
    with pytest.raises(
        CheckpointError, match=r"epoch-000002 is damaged: .*Remove that folder to continue from epoch-000001"
    ):
        load(tmp_path)


def hurt(file: Path, damage: str) -> None:
    content = bytearray(file.read_bytes())
    match damage:
        case "truncated":
            file.write_bytes(content[:-3])
        case "flipped":
            at = content.index(b"epoch") + 9 if file.name == "state.json" else len(content) - 1
            content[at] ^= 1
            file.write_bytes(content)
        case "missing":
            file.unlink()
        case "empty":
            file.write_bytes(b"")


def test_weights_of_another_shape_than_in_the_state_are_damaged_though_every_checksum_agrees(tmp_path):
    wide = save(tmp_path / "wide", Checkpoint(epoch=1, weights={"w": torch.ones(2, 3)}, optimizer={}))
    tall = save(tmp_path / "tall", Checkpoint(epoch=1, weights={"w": torch.ones(3, 2)}, optimizer={}))
    state = json.loads((wide / "state.json").read_bytes())
    (wide / "weights.safetensors").write_bytes((tall / "weights.safetensors").read_bytes())
    content = state["content"]
    content["checksums"] = json.loads((tall / "state.json").read_bytes())["content"]["checksums"]
    (wide / "state.json").write_bytes(_state_file(content))
    with pytest.raises(CheckpointError, match=r"weights\.safetensors is not what state\.json says.*\[3, 2\]"):
        load(wide)


@pytest.mark.parametrize("file", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_file_of_zeros_is_refused_before_it_is_in_memory(tmp_path, monkeypatch, file, fill_with_zeros, little_memory):
    monkeypatch.setattr("dorylus.runs.checkpoint.MOST_STATE_BYTES", 1 << 20)
    fill_with_zeros(save(tmp_path, plain(1)) / file)
    with little_memory(), pytest.raises(CheckpointError, match=f"is damaged: {file} has "):
        load(tmp_path)


def test_tensors_of_another_checkpoint_are_refused_before_they_are_in_memory(tmp_path, little_memory):
    """Their header is valid: the checksum reveals it."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [200 << 20], "data_offsets": [0, 200 << 20]}}).encode()
    with open(save(tmp_path, plain(1)) / "optimizer.safetensors", "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + (200 << 20))
    with little_memory(), pytest.raises(CheckpointError, match=r"optimizer\.safetensors does not have the checksum"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has 0 bytes and says that 0 of them are its header"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "has 10 bytes and says that 1,099,511,627,776 of them are"),
        ((99).to_bytes(8, "little") + b"{}", "has 10 bytes and says that 99 of them are"),
        ((2).to_bytes(8, "little") + b"\0\0", "the header of weights.safetensors is damaged"),
        ((2).to_bytes(8, "little") + b"[]", "the header of weights.safetensors is damaged"),
        ((7).to_bytes(8, "little") + b'{"w":1}', "the header of weights.safetensors is damaged"),
        ((2).to_bytes(8, "little") + b"{}" + b"\0" * 9, "has 9 bytes of tensors, and its header says 0"),
    ],
)
def test_a_header_that_cannot_be_right_is_named(tmp_path, content, message):
    (save(tmp_path, plain(1)) / "weights.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=f"is damaged: .*{message}"):
        load(tmp_path)


def test_a_state_of_endless_depth_is_damaged(tmp_path):
    (save(tmp_path, plain(1)) / "state.json").write_text("[" * 100_000)
    with pytest.raises(CheckpointError, match=r"is damaged: state\.json is not whole"):
        load(tmp_path)


def test_the_error_for_a_damaged_only_checkpoint_reports_that_there_is_no_other(tmp_path):
    hurt(save(tmp_path, plain(2)) / "weights.safetensors", "truncated")
    with pytest.raises(CheckpointError, match="no older one"):
        load(tmp_path)


@pytest.mark.parametrize("other", [FORMAT - 1, FORMAT + 1])
def test_a_checkpoint_of_an_older_or_newer_format_is_refused_with_the_cure(tmp_path, other):
    file = save(tmp_path, plain(1)) / "state.json"
    file.write_text(file.read_text().replace(f'"format": {FORMAT}', f'"format": {other}'))
    with pytest.raises(
        CheckpointError, match=f"has format {other}, and .* reads {FORMAT}: continue with the version that"
    ):
        load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"w": torch.ones(3)}, r"its parameter w is float32 \[2\], and this model's is float32 \[3\]"),
        ({"w": torch.ones(2, dtype=torch.float64)}, r"and this model's is float64 \[2\]"),
        ({"extra": torch.ones(1)}, r"it lacks the parameter extra \(float32 \[1\]\)"),
        ({"w": None}, r"it has the parameter w \(float32 \[2\]\), which this model has not"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused_with_the_parameter_that_differs(tmp_path, change, message):
    save(tmp_path, plain(1))
    weights = {name: tensor for name, tensor in {**plain(1).weights, **change}.items() if tensor is not None}
    with pytest.raises(CheckpointError, match=f"another model: .*{message}"):
        load(tmp_path, fingerprint(weights, ""))


def test_a_checkpoint_of_a_model_described_otherwise_is_refused(tmp_path):
    save(tmp_path, plain(1, spec="GCN(a) > GCN(b, slope=1, c)"))
    with pytest.raises(CheckpointError, match="its layer 1 has slope=1, and this model's has slope=2"):
        load(tmp_path, fingerprint(plain(1).weights, "GCN(a) > GCN(b, slope=2, c)"))
    with pytest.raises(CheckpointError, match="another number of layers"):
        load(tmp_path, fingerprint(plain(1).weights, "GCN(a)"))


def test_the_same_parameters_in_another_order_are_another_model(tmp_path):
    save(tmp_path, plain(1))
    with pytest.raises(CheckpointError, match="in another order"):
        load(tmp_path, fingerprint(dict(reversed(plain(1).weights.items())), ""))


def test_the_same_model_is_accepted(tmp_path):
    state = plain(1, spec="gcn")
    save(tmp_path, state)
    assert load(tmp_path, copy.deepcopy(state).fingerprint).epoch == 1
