"""``dorylus runs``: the runs under a folder, a row each. ``dorylus compare``: some of them side by side."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dorylus.settings import Group

Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=Group.OUTPUT)]


def runs(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="Where to look for runs. [runs]", show_default=False)
    ] = Path("runs"),
    as_json: Json = False,
) -> None:
    """List the runs under a folder, the newest first."""
    from dorylus.report import find_runs, list_rows

    entries = find_runs(folder)
    if as_json:
        typer.echo(json.dumps([each.to_dict() for each in entries], indent=2))
    elif not entries:
        typer.echo(f"there are no runs in {folder}: dorylus train writes one for each run.")
    else:
        rows = list_rows(entries)
        _show(
            list(rows[0]), [list(row.values()) for row in rows], right=("epochs", "validation", "test", "time", "cost")
        )


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Run folders.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Set runs side by side: settings that differ, scores, time, memory, dollars."""
    from dorylus.report import compare_runs

    compared = compare_runs(folders)
    if as_json:
        typer.echo(json.dumps(compared.to_dict(), indent=2))
        return
    parts = [compared.figures(), compared.differing()]
    tables = [[[name, *values] for name, values in part.items()] for part in parts]
    _show(["", *(each.name for each in compared.runs)], *tables)
    for sentence in compared.words:
        typer.echo(printable(sentence))


WIDEST = 10_000  # columns of text


def _show(columns: Sequence[str], *parts: Sequence[Sequence[str]], right: Sequence[str] = ()) -> None:
    """A table with a line between its parts; into a file or a pipe with all of its columns, however wide."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(Text(printable(name)), justify="right" if name in right else "left", overflow="fold")
    for rows in parts:
        table.add_section()
        for row in rows:
            table.add_row(*(Text(printable(value)) for value in row))
    Console(width=None if Console().is_terminal else WIDEST).print(table)


def printable(text: str) -> str:
    """A text of a run, which may hold anything, without what would control a terminal."""
    return "".join(each if each.isprintable() else "�" for each in text)
