"""``dorylus timeline``: the traced epochs of a run as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from dorylus.errors import ConfigError
from dorylus.runs import RunFolder
from dorylus.settings import Group


def timeline(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.", show_default=False)],
    epoch: Annotated[
        list[int] | None,
        typer.Option(
            help="An epoch to draw, as often as needed. [all that were traced]", metavar="N", rich_help_panel=Group.DATA
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="An .svg file. [RUN_DIR/timeline.svg]", metavar="FILE", rich_help_panel=Group.OUTPUT),
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
