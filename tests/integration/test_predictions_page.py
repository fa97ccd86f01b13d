"""The snippets of docs/predictions.md: predictions and scores of a run on its own graph and on another one."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv

from dorylus.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "predictions.md").read_text()


def snippet(language: str) -> str:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[0]


def test_a_run_from_python_is_used_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(snippet("python"), names)
    printed = []
    for command in snippet("console").splitlines():
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(command.split()[1:])
        printed.append(capsys.readouterr().out)
        assert end.value.code == 0, command
    assert csv.read_csv("predictions.csv")["class"].to_pylist() == names["classes"].tolist()
    np.testing.assert_array_equal(np.load("runs/mine/probabilities.npy"), names["shares"])
    assert "test, by predicted class" in printed[2]
    assert json.loads(printed[3])["splits"]["all"]["vertices"] == 5000
