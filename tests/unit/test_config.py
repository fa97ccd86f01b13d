import dataclasses
import json
import math
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
import tomli_w

from dorylus.config import RECUT, RunConfig, recut
from dorylus.errors import ConfigError


def test_the_defaults_are_those_of_a_planetoid_run():
    config = RunConfig()
    assert (config.epochs, config.lr, config.optimizer, config.mode, config.seed) == (200, 0.01, "adam", "pipe", 0)
    assert config.intervals is None
    assert config.run_dir is None


@pytest.mark.parametrize(
    ("settings", "cure"),
    [
        ({"pool": ["threads"]}, r"^pool=\['threads'\] is unknown:"),
        ({"epochs": 0}, "epochs=0, but epochs is at least 1: use epochs=1 or more."),
        ({"epochs": 2.5}, "epochs=2.5, but epochs is a whole number"),
        ({"epochs": True}, "epochs is a whole number"),
        ({"seed": 2**64}, "at most 9223372036854775807"),
        ({"lr": 0}, "lr is a finite number above 0"),
        ({"lr": math.nan}, "lr is a finite number"),
        ({"lr": "fast"}, "lr='fast', but lr is a finite number"),
        ({"weight_decay": -1.0}, "weight_decay is a finite number at least 0"),
        ({"weight_decay": {"*.bias": -1.0}}, r"weight_decay\['\*.bias'\]"),
        ({"mode": "pipes"}, "^mode='pipes' is unknown: the known ones are async, no_pipe, pipe. Did you mean 'pipe'.$"),
        ({"precision": "fp8"}, "the known ones are bf16, float32"),
        ({"reorder": "metis"}, "bfs, degree, none, rcm"),
        ({"pool": "lamda"}, "^pool='lamda' is unknown: .* Did you mean 'lambda'. A pool of your own is registered"),
        ({"keep": "bset"}, "Did you mean 'best'"),
        ({"loss": "mse"}, "auto, bce, cross_entropy"),
        ({"rematerialize": 1}, "use true or false"),
        ({"optimizer": ""}, "give it as text"),
        ({"optimizer_options": {"betas": None}}, "leave it out"),
        ({"optimizer_options": [1]}, "table of option names"),
        ({"target_accuracy": 81.5}, "at most 1"),
        ({"patience": 0}, "patience=0, but patience is at least 1"),
        ({"deadline_s": 0}, "deadline_s is a finite number above 0"),
        ({"run_dir": 3}, "give its path"),
        ({"patience": 5, "eval_every": 0}, "Use eval_every=1 or more"),
        ({"target_accuracy": 0.8, "eval_every": 0}, "Use eval_every=1 or more"),
        ({"keep": "best", "eval_every": 0}, "or keep='last'"),
        ({"lr_schedule_options": {"gamma": 0.5}}, "name the schedule"),
        ({"servers": 0}, "servers=0, but servers is at least 1"),
        ({"parameter_servers": 0}, "parameter_servers=0, but parameter_servers is at least 1"),
        ({"partition": ""}, "give it as text"),
        ({"mode": "asynk"}, "Did you mean 'async'"),
        ({"staleness": -1, "mode": "async"}, "staleness=-1, but staleness is at least 0"),
        ({"weight_update": "never"}, "the known ones are async, sync"),
        ({"ghost_precision": "fp8"}, "the known ones are bf16, float32"),
        ({"sync_margin": 2.0, "mode": "async", "target_accuracy": 0.9}, "at most 1"),
        ({"sync_margin": 0.1, "mode": "async"}, "sync_margin=0.1 without target_accuracy: .* so give both"),
    ],
)
def test_a_bad_value_is_refused_with_the_cure(settings, cure):
    with pytest.raises(ConfigError, match=cure):
        RunConfig(**settings)


COUNTS = [each.name for each in dataclasses.fields(RunConfig) if "int" in str(each.type)]
AMOUNTS = [each.name for each in dataclasses.fields(RunConfig) if "float" in str(each.type)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1, 10**400], ids=lambda value: str(value)[:4])
@pytest.mark.parametrize("name", [*COUNTS, *AMOUNTS])
def test_an_invalid_number_is_refused_with_the_value_the_rule_and_the_cure(name, value):
    cure = f"use {name}=\\S+, for instance" if name in AMOUNTS else f"use {name}=\\d+ or (more|less)"
    with pytest.raises(ConfigError, match=rf"^{name}=\S+, but {name} is .*: {cure}\.$"):
        RunConfig(**{name: value})


@pytest.mark.parametrize("mode", ["pipe", "no_pipe"])
@pytest.mark.parametrize(
    ("name", "value"),
    [("staleness", 1), ("weight_update", "async"), ("sync_margin", 0.1)],
    ids=lambda value: str(value),
)
def test_settings_of_asynchronous_runs_are_refused_in_exact_ones(mode, name, value):
    settings = {name: value, "mode": mode, "target_accuracy": 0.9}
    message = f"{name}={value!r} with mode='{mode}', which is exact: leave {name} out, or use mode='async'"
    with pytest.raises(ConfigError, match=message):
        RunConfig(**settings)
    assert getattr(RunConfig(**(settings | {"mode": "async"})), name) == value


def test_nothing_asynchronous_is_on_by_default():
    config = RunConfig()
    assert (config.servers, config.parameter_servers, config.partition) == (1, 1, "stream")
    assert (config.staleness, config.weight_update, config.sync_margin, config.ghost_precision) == (
        0,
        "sync",
        None,
        "float32",
    )


A_RUN = RunConfig(epochs=7, servers=2, intervals=6, threads=2, mode="async", staleness=1, run_dir="runs/x")


def test_a_run_is_resumed_with_its_own_settings_by_default():
    assert recut(A_RUN.to_dict(), {}) == A_RUN


@pytest.mark.parametrize(
    "settings",
    [
        {"parameter_servers": 3},
        {"partition": "hash"},
        {"intervals": 9},
        {"threads": 1},
        {"pool": "threads"},
        {"deadline_s": 5.0},
        {"servers": 4, "intervals": 2},
    ],
    ids=str,
)
def test_only_the_partition_of_the_work_may_change(settings):
    found, before = recut(A_RUN.to_dict(), settings).to_dict(), A_RUN.to_dict()
    assert {name: found[name] for name in settings} == settings
    assert {name for name in before if found[name] != before[name]} <= set(settings)


def test_intervals_are_chosen_again_for_another_number_of_servers():
    assert recut(A_RUN.to_dict(), {"servers": 3}).intervals is None
    assert recut(A_RUN.to_dict(), {"servers": A_RUN.servers}) == A_RUN


@pytest.mark.parametrize("name", sorted(set(RunConfig.names()) - set(RECUT)))
def test_settings_that_change_the_result_cannot_change_when_a_run_is_resumed(name):
    message = (
        f"^{name} is part of what a run computes, so it cannot change when the run is resumed: what can is how its "
    )
    with pytest.raises(ConfigError, match=f"{message}work is cut and what it may cost, {', '.join(RECUT)}\\.$"):
        recut(A_RUN.to_dict(), {name: getattr(A_RUN, name)})


def test_an_unknown_setting_to_resume_with_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown setting 'server'.*Did you mean 'servers'"):
        recut(A_RUN.to_dict(), {"server": 3})


def test_a_pool_that_is_no_name_is_refused_when_a_run_is_resumed_too():
    with pytest.raises(ConfigError, match=r"^pool=\['threads'\] is unknown:"):
        recut({}, {"pool": ["threads"]})


def test_a_bad_partition_of_the_work_is_refused_with_the_cure():
    with pytest.raises(ConfigError, match="use servers=1 or more"):
        recut(A_RUN.to_dict(), {"servers": 0})


def test_an_unknown_setting_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"unknown setting 'epoch_s': did you mean 'epochs'"):
        RunConfig.of(epoch_s=3)


def test_names_of_other_libraries_mean_settings_or_have_a_sentence():
    known = {*RunConfig.names(), "sinks", "progress"}
    assert all(ours in known or " " in ours for ours in RunConfig.meant.values())
    assert not known & set(RunConfig.meant)


def test_settings_are_frozen():
    with pytest.raises(AttributeError):
        RunConfig().epochs = 3  # type: ignore[misc]


def test_numbers_of_numpy_become_plain_ones():
    config = RunConfig(epochs=np.int64(3), lr=np.float32(0.5), optimizer_options={"momentum": np.float64(0.9)})
    assert [type(value) for value in (config.epochs, config.lr, config.optimizer_options["momentum"])] == [
        int,
        float,
        float,
    ]


def test_a_path_becomes_text():
    assert RunConfig(run_dir=Path("runs") / "a").run_dir == "runs/a"  # type: ignore[arg-type]


def test_a_whole_learning_rate_is_a_number_too():
    assert RunConfig(lr=1).lr == 1.0


def test_the_options_of_one_run_do_not_change_with_the_callers_table():
    options = {"betas": (0.9, 0.99)}
    config = RunConfig(optimizer_options=options)
    options["betas"] = (0.0, 0.0)
    assert config.optimizer_options == {"betas": [0.9, 0.99]}


def full_config():
    return RunConfig(
        epochs=7,
        weight_decay={"conv1.*": 5e-4},
        optimizer="sgd",
        optimizer_options={"momentum": 0.9, "nesterov": True, "pair": (1, 2.5)},
        lr_schedule="StepLR",
        lr_schedule_options={"step_size": 3},
        patience=2,
        run_dir="runs/x",
    )


def test_settings_come_back_equal_from_json():
    assert RunConfig.from_dict(json.loads(json.dumps(full_config().to_dict()))) == full_config()


def test_settings_come_back_equal_from_toml_without_the_nones():
    given = {name: value for name, value in full_config().to_dict().items() if value is not None}
    assert RunConfig.from_dict(tomllib.loads(tomli_w.dumps(given))) == full_config()


def test_every_setting_that_may_be_none_is_none_by_default_so_that_toml_may_leave_it_out():
    for name, value in RunConfig(patience=1, intervals=1, threads=1).to_dict().items():
        if value is None:
            assert RunConfig().to_dict()[name] is None


def test_reading_settings_needs_no_torch():
    program = "import sys, dorylus.config; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_setting_like_no_other_is_refused_without_a_list_of_all():
    with pytest.raises(ConfigError, match=r"^unknown setting 'zzz'\. help\(dorylus\.train\) and .* list all\.$"):
        RunConfig.of(zzz=1)
