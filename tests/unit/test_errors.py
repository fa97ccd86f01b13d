"""Errors know the settings they are about; each interface spells them differently."""

import pickle
from contextlib import suppress

import pytest

from dorylus.cli.flags import spell_flag
from dorylus.errors import ConfigError, DataError, given, settings_of_file, spelled, toml_key


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
        (given("slope", 0.2), "slope=0.2", "--model-option slope=0.2", "slope = 0.2"),
        (given("slope"), "slope", "--model-option slope", "slope"),
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


def refused(message, *files):
    """The error of this message, raised within the settings of each file, the innermost first."""
    error = ConfigError(message)
    for file, names in files:
        with suppress(ConfigError), settings_of_file(file, names):
            raise error
    return error


def test_settings_of_a_file_are_spelled_as_its_lines_and_the_others_as_the_command_line_has_them():
    error = refused(f"{given('elastic', True)} with {given('cluster', 'local')}", ("a/run.toml", {"elastic", "mode"}))
    assert str(error) == "a/run.toml: elastic = true with cluster='local'"
    assert spelled(error.message, spell_flag) == "a/run.toml: elastic = true with --cluster local"


def test_a_file_is_named_only_if_the_error_is_about_one_of_its_settings():
    error = refused(f"{given('servers', 9)}: use {given('partition', 'hash')}", ("run.toml", {"partition"}))
    assert str(error) == "servers=9: use partition = 'hash'"


def test_an_entry_of_a_table_belongs_to_the_file_of_the_table():
    assert str(refused(given("weight_decay['b']", -1.0), ("f", {"weight_decay"}))) == "f: weight_decay['b'] = -1.0"


def test_the_innermost_of_two_files_spells_a_setting_that_both_have():
    error = refused(given("epochs", 0), ("inner", {"epochs"}), ("outer", {"epochs"}))
    assert (str(error), error.setting) == ("inner: epochs = 0", "epochs")


@pytest.mark.parametrize("files", [[], [("run.toml", {"epochs"})]], ids=["keyword", "file"])
def test_an_error_comes_whole_from_another_process(files):
    error = refused(given("epochs", 0), *files)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.setting, str(again)) == (ConfigError, "epochs", str(error))


def test_text_that_is_no_setting_stays_as_it_is():
    assert spelled("{braces}, memory=3 and 'quotes'", spell_flag) == "{braces}, memory=3 and 'quotes'"
