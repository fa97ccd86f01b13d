import json
import re
from pathlib import Path

import pytest
import typer
from desired_states import every_call

from dorylus.cli.functions import functions
from dorylus.functions.deploy.config import PYTHONS

PAGE = (Path(__file__).parents[4] / "docs" / "functions.md").read_text()


def documents():
    """The policies on the page: one to deploy, one to train."""
    return [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


def actions(document):
    listed = [statement["Action"] for statement in document["Statement"]]
    return {action for each in listed for action in ([each] if isinstance(each, str) else each)}


def test_the_documented_rights_are_those_that_the_calls_of_plans_need():
    calls = [call for call in every_call() if not call.waits]
    needed = {f"{call.service}:{call.operation.title().replace('_', '')}" for call in calls}
    also = {"iam:PassRole", "iam:UpdateAssumeRolePolicy", "lambda:ListTags"}  # named by no call, or by a rare one
    rights = {action for action in actions(documents()[0]) if not action.startswith("ec2:")}
    assert rights == needed | also


def test_training_needs_the_right_to_invoke_and_no_other():
    assert actions(documents()[1]) == {"lambda:InvokeFunction"}


@pytest.mark.parametrize("name", ["deploy", "status", "destroy"])
def test_every_option_is_documented(name):
    command = typer.main.get_command(functions).commands[name]
    options = {option for each in command.params for option in each.opts} - {"--help"}
    assert [option for option in options if f"`{option}" not in PAGE and f"{option} " not in PAGE] == []


def test_every_supported_runtime_is_documented():
    assert all(f"`{python}`" in PAGE for python in PYTHONS)
