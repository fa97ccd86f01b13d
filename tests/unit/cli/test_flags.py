import inspect

import pytest

from dorylus.cli.flags import settings_of, table, value_of, with_settings
from dorylus.config import RunConfig
from dorylus.errors import ConfigError


@pytest.mark.parametrize("name", RunConfig.names())
def test_every_setting_is_a_flag_of_train(dorylus_program, name):
    _, out, _ = dorylus_program("train", "--help")
    assert f"--{name.replace('_', '-')} " in out


def test_a_command_may_have_flags_for_some_settings_only():
    given = []

    def command(name, *, settings):
        given.append((name, settings))

    wrapped = with_settings(command, only=("servers", "lr"))
    assert list(inspect.signature(wrapped).parameters) == ["name", "lr", "servers"]  # as the settings are ordered
    wrapped(name="x", lr=None, servers=3)
    assert given == [("x", {"servers": 3})]


def test_flags_that_were_not_given_are_left_out():
    assert settings_of({"epochs": 3, "lr": None, "optimizer_options": [], "prune_rows": False}) == {
        "epochs": 3,
        "prune_rows": False,
    }


@pytest.mark.parametrize(
    ("texts", "decay"),
    [(["5e-4"], 5e-4), (["0"], 0.0), (["conv1.*=5e-4", "*.bias=0"], {"conv1.*": 5e-4, "*.bias": 0})],
)
def test_weight_decay_is_one_number_or_a_table_of_patterns(texts, decay):
    assert settings_of({"weight_decay": texts}) == {"weight_decay": decay}


@pytest.mark.parametrize("texts", [["much"], ["0.1", "0.2"], ["=0.1"], ["*.bias=0", "0.5"]])
def test_any_other_weight_decay_is_refused(texts):
    with pytest.raises(ConfigError, match=r"--weight-decay .*give"):
        settings_of({"weight_decay": texts})


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.9", 0.9), ("3", 3), ("True", True), ("false", False), ("[0.9, 0.99]", [0.9, 0.99]), ("cos", "cos"), ("", "")],
)
def test_values_are_parsed_by_their_form(text, value):
    assert value_of(text) == value
    assert type(value_of(text)) is type(value)


def test_a_table_splits_at_the_first_equals_sign():
    assert table("optimizer_options", ["a=b=c"]) == {"a": "b=c"}


def test_an_option_without_a_value_is_refused():
    with pytest.raises(ConfigError, match="--optimizer-options momentum: give it as KEY=VALUE"):
        table("optimizer_options", ["momentum"])


@pytest.mark.parametrize("command", ["train", "plan-memory", "predict"])
def test_memory_is_given_as_a_size(dorylus_program, command):
    _, out, _ = dorylus_program(command, "--help")
    assert "--memory SIZE" in " ".join(out.split())
