"""Errors know the settings they are about; each interface spells them differently."""

import pickle

import pytest

from dorylus.cli.flags import spell_flag
from dorylus.errors import ConfigError, DataError, given, spelled, spelling, toml_key


@pytest.mark.parametrize(
    ("setting", "keyword", "flag", "key"),
    [
        (given("memory", "8GiB"), "memory='8GiB'", "--memory 8GiB", "memory = '8GiB'"),
        (given("memory"), "memory", "--memory", "memory"),
        (given("eval_every", 0), "eval_every=0", "--eval-every 0", "eval_every = 0"),
        (given("stream", True), "stream=True", "--stream", "stream = true"),
        (given("stream", False), "stream=False", "--no-stream", "stream = false"),
        (given("format", ...), "format=", "--format", "format = "),
        (given("columns", (0, 1)), "columns=(0, 1)", "--columns 0,1", "columns = (0, 1)"),
        (given("columns", ["a", "b", 3]), "columns=['a', 'b', 3]", "--columns a,b,3", "columns = ['a', 'b', 3]"),
        (given("delimiter", ","), "delimiter=','", "--delimiter ,", "delimiter = ','"),
        (
            given("partition", "my shards"),
            "partition='my shards'",
            "--partition 'my shards'",
            "partition = 'my shards'",
        ),
        (given("undirected", False), "undirected=False", "--directed", "undirected = false"),
        (given("drop_duplicates", False), "drop_duplicates=False", "--keep-duplicates", "drop_duplicates = false"),
        (
            given("weight_decay['conv1']", -1.0),
            "weight_decay['conv1']=-1.0",
            "--weight-decay conv1=-1.0",
            "weight_decay['conv1'] = -1.0",
        ),
    ],
    ids=lambda value: value if value.startswith("--") else "",
)
def test_each_interface_spells_a_setting_differently(setting, keyword, flag, key):
    message = f"use {setting}, or data/memory=1/x."
    assert spelled(message) == f"use {keyword}, or data/memory=1/x."
    assert spelled(message, spell_flag) == f"use {flag}, or data/memory=1/x."
    assert spelled(message, toml_key) == f"use {key}, or data/memory=1/x."


def test_a_value_that_is_too_long_to_print_is_spelled_too():
    assert spelled(given("partition", "x" * 999), spell_flag).startswith("--partition ")


def test_an_error_knows_the_setting_it_is_about():
    error = ConfigError(f"{given('mode', 'async')} with {given('memory', '1GiB')}")
    assert error.setting == "mode"
    assert str(error) == "mode='async' with memory='1GiB'"
    assert DataError("the file is damaged").setting is None


def test_the_innermost_interface_spells_the_settings_of_an_error():
    with pytest.raises(ConfigError) as caught, spelling(spell_flag), spelling(toml_key):
        raise ConfigError(given("epochs", 0))
    assert str(caught.value) == "epochs = 0"


def test_an_error_comes_whole_from_another_process():
    error = pickle.loads(pickle.dumps(ConfigError(given("epochs", 0))))
    assert (type(error), error.setting, str(error)) == (ConfigError, "epochs", "epochs=0")


def test_text_that_is_no_setting_stays_as_it_is():
    assert spelled("{braces}, memory=3 and 'quotes'", spell_flag) == "{braces}, memory=3 and 'quotes'"
