"""Readers of runs: ``dorylus runs`` lists them, ``dorylus compare`` sets some side by side.

``dorylus timeline`` draws the traced epochs of one. None of them touches a run that goes on: they read its folder.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dorylus.errors import ConfigError
from dorylus.runs import RunFolder
from dorylus.settings import SettingGroup

Json = Annotated[bool, typer.Option("--json", help="Print JSON.", rich_help_panel=SettingGroup.OUTPUT)]


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


def timeline(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.", show_default=False)],
    epoch: Annotated[
        list[int] | None,
        typer.Option(
            help="An epoch to draw, as often as needed. [all that were traced]",
            metavar="N",
            rich_help_panel=SettingGroup.DATA,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="An .svg file. [RUN_DIR/timeline.svg]", metavar="FILE", rich_help_panel=SettingGroup.OUTPUT),
    ] = None,
) -> None:
    """Draw when each task of the traced epochs ran, for which server and on which thread."""
    from dorylus.report import timeline as drawn
    from dorylus.runs import current, read_log

    folder = RunFolder.open(run_dir)
    target = out or run_dir / "timeline.svg"
    if target.is_dir() or not target.parent.is_dir():
        what = "it is a folder" if target.is_dir() else f"the folder {target.parent} does not exist"
        raise ConfigError(f"the timeline cannot be written to {target}: {what}. Name an .svg file.")
    target.write_text(drawn(current(read_log(folder.log)), epoch), encoding="utf-8")
    typer.echo(f"timeline in {target}")
