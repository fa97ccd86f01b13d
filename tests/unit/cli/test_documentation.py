import inspect
from pathlib import Path

import pytest

from dorylus.cli.app import app
from dorylus.cli.flags import dashed
from dorylus.cli.ingest import ingest
from dorylus.config import RunConfig
from dorylus.ingest.readers.files import FORMATS
from dorylus.ingest.readers.input_file import DECOMPRESSORS
from dorylus.ingest.readers.options import IDS
from dorylus.runs.run_folder import read_run_toml

PAGE = Path(__file__).parents[3] / "docs" / "cli.md"


@pytest.mark.parametrize("name", RunConfig.names())
def test_every_setting_is_documented(name):
    assert f"`--{dashed(name)}" in PAGE.read_text()


def test_every_flag_and_suffix_of_an_ingest_is_documented():
    section = PAGE.read_text().split("\n## ingest\n")[1].split("\n## ")[0]
    flags = {f"--{dashed(name)}" for name in inspect.signature(ingest).parameters} - {"--edges", "--store"}
    flags = flags - {"--file-format"} | {"--format"}
    assert sorted(flag for flag in flags if f"`{flag}`" not in section) == []
    assert [name for name in (*FORMATS, *DECOMPRESSORS, *IDS) if f"`{name}`" not in section] == []


def test_every_command_is_documented():
    names = [each.callback.__name__ for each in app.registered_commands if each.callback]
    assert "train" in names
    assert [name for name in names if f"| `dorylus {dashed(name)}" not in PAGE.read_text()] == []


def test_the_example_file_is_one_that_can_be_run(tmp_path):
    text = PAGE.read_text().split("```toml\n")[1].split("```")[0]
    (tmp_path / "run.toml").write_text(text)
    spec, settings = read_run_toml(tmp_path / "run.toml")
    assert RunConfig.of(**settings).weight_decay == 5e-4
    assert spec.build_model().name == "gcn"
    assert spec.graph["source"] == "cora"
