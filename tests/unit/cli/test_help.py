import dataclasses
import re
import shlex

import pytest
import typer

from dorylus.cli.app import app
from dorylus.config import RunConfig
from dorylus.settings import SettingGroup


def commands(command, *path):
    """Every command, with the words that name it."""
    found = [(path, command)]
    for name, each in getattr(command, "commands", {}).items():
        found += commands(each, *path, name)
    return found


PROGRAM = typer.main.get_command(app)
COMMANDS = {" ".join(path): command for path, command in commands(PROGRAM)}
LEAVES = {name: command for name, command in COMMANDS.items() if not hasattr(command, "commands")}


def flags_of(command):
    return [each for each in command.params if each.param_type_name == "option"]


def examples_of(command):
    return command.epilog.removeprefix("Examples:").strip().splitlines()


@pytest.mark.parametrize("setting", dataclasses.fields(RunConfig), ids=lambda each: each.name)
def test_every_setting_has_a_group_and_a_line_of_help(setting):
    assert setting.metadata["group"] in list(SettingGroup)
    assert re.fullmatch(r"[^\n]{10,}\.", setting.metadata["help"])


@pytest.mark.parametrize("name", LEAVES)
def test_every_flag_of_every_command_has_a_group_and_help(name):
    assert {each.name for each in LEAVES[name].params if not each.help} == set()
    assert {each.name for each in flags_of(LEAVES[name]) if not each.rich_help_panel} == set()


@pytest.mark.parametrize(
    ("name", "example"), [(name, example.strip()) for name in LEAVES for example in examples_of(LEAVES[name])]
)
def test_every_example_can_be_parsed(name, example):
    words = shlex.split(example)
    assert words[: 1 + len(name.split())] == ["dorylus", *name.split()]
    command, rest = PROGRAM, words[1:]
    context = None
    while hasattr(command, "commands"):
        context = command.make_context(rest[0], [], parent=context, resilient_parsing=True)
        command, rest = command.commands[rest[0]], rest[1:]
    parsed = command.make_context(name, list(rest), parent=context)
    assert parsed.params
    with pytest.raises(Exception, match="--no-such-flag"):  # so that what is wrong would be found
        command.make_context(name, [*rest, "--no-such-flag"], parent=context)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_there_by_a_letter_too_and_shows_every_text_and_example(dorylus_program, name):
    code, out, _ = dorylus_program(*name.split(), "-h")
    assert (code, out) == dorylus_program(*name.split(), "--help")[:2]
    assert code == 0
    plain = " ".join(re.sub("[│╭╮╰╯─]", " ", out).split())
    texts = [each.help for each in COMMANDS[name].params] + (COMMANDS[name].epilog or "").splitlines()
    words = {word for text in texts for word in text.split()}
    assert {word for word in words if word not in plain} == set()


def test_the_groups_of_train_come_in_order_those_that_are_used_most_first(dorylus_program):
    _, out, _ = dorylus_program("train", "--help")
    assert re.findall("╭─ ([^─]+) ─", out) == ["Arguments", *SettingGroup]
    groups = {name.strip(): text for name, text in zip(SettingGroup, re.split("╭─ [^─]+ ─", out)[2:], strict=True)}
    assert "--no-download" in groups["Data"]
    assert "--hidden" in groups["Model"]
    assert "--epochs" in groups["Training"]
    assert "--patience" in groups["Stopping"]
    assert "--help" in groups["Output"]


def test_errors_stay_plain_after_help(dorylus_program):
    dorylus_program("train", "--help")
    code, _, err = dorylus_program("train", "--no-such-flag")
    assert code == 2
    assert "No such option: --no-such-flag" in err
    assert "╭" not in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("train", "ring", "--learning-rate", "0.1"), "--learning-rate: it is called --lr here, so use that name."),
        (("train", "ring", "--num-epochs=5"), "--num-epochs: it is called --epochs here"),
        (("train", "ring", "--device", "cuda"), "--device is no setting, because a run uses the processor's cores"),
        (("train", "ring", "--batch-size", "9"), "limit what a run holds by --memory 8GiB."),
        (("ingest", "edges.csv", "g", "--device", "cuda"), "No such option: --device"),
    ],
)
def test_a_flag_of_other_libraries_is_refused_with_ours(dorylus_program, words, sentence):
    code, out, err = dorylus_program(*words)
    assert (code, out) == (2, "")
    assert sentence in " ".join(err.split())


def test_a_word_after_two_dashes_is_no_flag(dorylus_program):
    code, _, err = dorylus_program("train", "--", "--learning-rate")
    assert code == 2
    assert "it is called" not in err
