"""Readers of runs: ``dorylus runs`` lists them, ``dorylus compare`` sets some side by side.

``dorylus report`` and ``dorylus live`` make pages of runs, ``dorylus timeline`` draws the traced epochs of one.

None of them touches a run: they read its folder.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dorylus import files
from dorylus.cli.console import ended
from dorylus.cli.flags import check_parent, python_call, train_command
from dorylus.errors import ConfigError, DorylusError, Terminated, cannot_write
from dorylus.runs import RunFolder, current, is_locked, malformed_refused, read_log
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from rich.console import Console

    from dorylus.report import LiveRun, RunFigures

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


RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.", show_default=False)]


def report(
    run_dirs: Annotated[
        list[Path], typer.Argument(metavar="RUN_DIR...", help="Folders of runs, to compare them.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="An .html file. [RUN_DIR/report.html]", metavar="FILE", rich_help_panel=SettingGroup.OUTPUT),
    ] = None,
) -> None:
    """Write one page of a run, or of several beside each other: a file that loads nothing."""
    from dorylus.report import report_page

    target = out or run_dirs[0] / "report.html"
    folders = [RunFolder.open(run_dir) for run_dir in run_dirs]
    _check_target(target, "page", ".html")
    runs = []
    for folder, name in zip(folders, _names(run_dirs), strict=True):
        figures = _figures(folder, name)
        with malformed_refused(folder.log):
            for record in current(read_log(folder.log)):
                figures.add(record)
            figures.snapshot()  # what the page will show, computed here to name the log that prevents it
        runs.append(figures)
    _write(target, "page", report_page(runs))
    typer.echo(f"report in {target}")


def _names(run_dirs: list[Path]) -> list[str]:
    """The folders' names, with as much of their paths as tells them apart; numbers for a folder given twice."""
    paths = [Path(os.path.abspath(run_dir)) for run_dir in run_dirs]
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = [str(Path(*path.parts[-parts:])) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [f"{path.name} ({number})" for number, path in enumerate(paths, 1)]


def _figures(folder: RunFolder, name: str) -> "RunFigures":
    """The figures of a run before any record, with what repeats it."""
    from dorylus.report import RunFigures

    command = train_command(folder.spec, folder.config, folder.path)
    how = "shell" if command else "python"
    made = {"graph": folder.spec.graph, "model": folder.spec.model}
    return RunFigures(name, {"how": how, "text": command or python_call(folder.config)}, made)


def _check_target(target: Path, noun: str, suffix: str) -> None:
    if target.is_dir():
        raise ConfigError(f"the {noun} cannot be written to {target}: it is a folder. Name a file ({suffix}).")
    check_parent(target, noun)


def _write(target: Path, noun: str, content: bytes) -> None:
    try:
        files.write_file(target, content)
    except OSError as error:
        raise cannot_write(
            f"cannot write the {noun} {target}: {error.strerror or error}. Make room there, or choose another place.",
            error,
            refused=ConfigError,
        ) from error


class Format(StrEnum):
    """How a timeline is written."""

    SVG = "svg"
    PERFETTO = "perfetto"


def timeline(
    run_dir: RunDir,
    epoch: Annotated[
        list[int] | None,
        typer.Option(
            help="An epoch to draw, as often as needed. [the first traced ones]",
            metavar="N",
            rich_help_panel=SettingGroup.DATA,
        ),
    ] = None,
    file_format: Annotated[
        Format,
        typer.Option(
            "--format",
            help="svg, or perfetto: a trace for ui.perfetto.dev.",
            show_default=False,
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = Format.SVG,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file. [RUN_DIR/timeline.svg, or .json for perfetto]",
            metavar="FILE",
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = None,
) -> None:
    """Draw when each task of the traced epochs ran, for which server and on which thread."""
    from dorylus.report import perfetto_timeline, svg_timeline

    write, suffix = (svg_timeline, ".svg") if file_format is Format.SVG else (perfetto_timeline, ".json")
    folder = RunFolder.open(run_dir)
    target = out or run_dir / f"timeline{suffix}"
    _check_target(target, "timeline", suffix)
    with malformed_refused(folder.log):
        content = write(current(read_log(folder.log)), epoch)
    _write(target, "timeline", content.encode())
    typer.echo(f"timeline in {target}")


LOOK_EVERY_S = 2.0  # whether a process still holds a run whose log does not grow
STARTED_WITHIN_S = 30.0
ENDED_WITHIN_S = 10.0


def live(
    run_dir: RunDir,
    port: Annotated[
        int,
        typer.Option(
            help="The port on 127.0.0.1. [a free one]",
            metavar="N",
            min=0,
            max=65535,
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = 0,
    until_stdin_ends: Annotated[
        bool,
        typer.Option(
            "--until-stdin-ends",
            help="Serve until standard input ends, also before the run begins: for programs.",
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = False,
) -> None:
    """Serve a page of a run while it trains, on this machine, until the run or this command ends."""
    from dorylus.report import LiveRun, LiveServer, RunFigures

    if not until_stdin_ends and not is_locked(run_dir):
        RunFolder.open(run_dir)
        raise ConfigError(
            f"no process trains the run {run_dir}, so nothing in it will change: make a page of it by `dorylus report "
            f"{run_dir}`."
        )
    name = Path(os.path.abspath(run_dir)).name

    def new_figures() -> RunFigures:
        try:
            return _figures(RunFolder.open(run_dir), name)
        except DorylusError:  # its run.toml was changed, or its folder was moved
            return RunFigures(name)

    run = LiveRun(run_dir / "log.jsonl", new_figures)
    try:
        with malformed_refused(run_dir / "log.jsonl"), LiveServer(run, name, port) as server:
            typer.echo(f"live page: {server.address}")
            sys.stdout.flush()
            if until_stdin_ends:
                _follow_parent(run)
            else:
                _follow(run, run_dir)
    except (KeyboardInterrupt, Terminated) as end:
        raise ended(end, ": the page is closed, and the run continues") from None
    if not until_stdin_ends:
        typer.echo("the run has ended")


def _follow(run: "LiveRun", run_dir: Path) -> None:
    """Read the log as it grows, until it has a result or its process has ended."""
    from dorylus.report import pause_s

    began_s = looked_s = time.monotonic()
    while True:
        if run.poll():
            looked_s = time.monotonic()
        elif time.monotonic() - looked_s > LOOK_EVERY_S:
            looked_s = time.monotonic()
            if not is_locked(run_dir):
                run.poll()
                return
        if run.has_result and not is_locked(run_dir):
            return
        time.sleep(pause_s(time.monotonic() - began_s))


def _follow_parent(run: "LiveRun") -> None:
    """Read the log as it grows, until the process that trains closes our input, or has ended."""
    from dorylus.report import pause_s

    os.nice(10)  # training comes first
    began_s = time.monotonic()
    while not select.select([sys.stdin], [], [], pause_s(time.monotonic() - began_s))[0]:
        run.poll()
    run.poll()


@contextmanager
def live_page_of(run_dir: Path, console: "Console", *, enabled: bool) -> Iterator[None]:
    """Serve the page of a run while it trains here, where that is enabled, from a process of its own."""
    if not enabled:
        yield
        return
    command = [sys.executable, "-m", "dorylus.cli", "live", "--until-stdin-ends", "--", str(run_dir)]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        with closing(server.stdout):
            ready, _, _ = select.select([server.stdout], [], [], STARTED_WITHIN_S)
            line = server.stdout.readline().decode().strip() if ready else ""
        if not line:
            raise ConfigError("the live page could not be started: train without --live, or try `dorylus live` later.")
        console.print(line, markup=False, highlight=False, soft_wrap=True)
        yield
    finally:
        server.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            server.wait(ENDED_WITHIN_S)
        server.kill()
        server.wait()
