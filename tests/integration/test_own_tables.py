"""The snippets of docs/tables.md: from two tables to a file of ids, class names and probabilities."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from planted_tables import write_planted_tables

PAGE = Path(__file__).parents[2] / "docs" / "tables.md"


def snippet(language: str) -> list[str]:
    lines = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)[0].splitlines()
    return [line for line in lines if line]


PYTHON, COMMANDS = snippet("python"), snippet("console")


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("tables")
    return folder, write_planted_tables(folder, 1500, 12_000)


def run(folder: Path, *command: str) -> None:
    (folder / "predictions.parquet").unlink(missing_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr


def check_predictions(folder: Path, classes: dict[str, str]) -> None:
    table = parquet.read_table(folder / "predictions.parquet")
    assert table.column_names == ["id", "class", "probability"]
    ids = parquet.read_table(folder / "vertices.parquet", columns=["paper"])["paper"].to_pylist()
    assert table["id"].to_pylist() == ids, "in the order of the table"
    right = sum(classes[vertex] == found for vertex, found in zip(ids, table["class"].to_pylist(), strict=True))
    assert right > 0.9 * len(ids)
    assert all(0.25 <= share <= 1 for share in table["probability"].to_pylist())


def test_five_lines_of_python_lead_from_tables_to_a_table(planted: tuple[Path, dict[str, str]]) -> None:
    assert len(PYTHON) == 5
    run(planted[0], sys.executable, "-c", "\n".join(PYTHON))
    check_predictions(*planted)


def test_two_commands_lead_from_tables_to_a_table(planted: tuple[Path, dict[str, str]]) -> None:
    assert len(COMMANDS) == 2
    for command in COMMANDS:
        program, *arguments = command.split()
        assert program == "dorylus"
        run(planted[0], sys.executable, "-m", "dorylus.cli", *arguments)
    check_predictions(*planted)
