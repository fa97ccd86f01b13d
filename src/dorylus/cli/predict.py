"""``dorylus predict``: what a trained model predicts for every vertex, as a file."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus.cli.flags import with_settings
from dorylus.cli.interrupt import say_nothing_written
from dorylus.cli.progress_bar import progress_bar
from dorylus.errors import ConfigError, unknown_name
from dorylus.runs import RunFolder
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from rich.console import Console

    from dorylus.inference import ReportRows


@contextmanager
def prediction_bar(
    what: str, console: "Console | None" = None, clock: Callable[[], float] = time.monotonic
) -> Iterator["ReportRows"]:
    """A spinner while the model computes, then a bar of the rows written, both on stderr where that is a terminal."""
    from rich.console import Console

    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with (
        console.status(f"computing {what} of every vertex") as status,
        # A terminal has room for one of them.
        progress_bar(f"writing {what}", "rows", console, clock, before_first=status.stop) as tell,
    ):
        yield tell


KINDS = ("table", "logits", "classes", "embeddings")


@partial(with_settings, only=("memory", "scratch_dir"))
def predict(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.", show_default=False)],
    what: Annotated[
        str | None,
        typer.Option(
            help="What to predict. [table for .parquet and .csv, else classes]",
            metavar="|".join(KINDS),
            rich_help_panel=SettingGroup.MODEL,
        ),
    ] = None,
    layer: Annotated[
        int,
        typer.Option(
            help="Layer of the embeddings; -1 is the last hidden one.", metavar="N", rich_help_panel=SettingGroup.MODEL
        ),
    ] = -1,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "--out",
            help="A .npy, .parquet or .csv file. [RUN_DIR/WHAT.npy]",
            metavar="FILE",
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = None,
    *,
    settings: dict[str, Any],
) -> None:
    """Write a table of ids, classes and probabilities, or logits, classes or embeddings, in the graph's own order.

    Where the run has a memory limit, or --memory gives one, rows are written as they come.
    """
    if what is None:
        what = "table" if output is not None and output.suffix in (".parquet", ".csv") else "classes"
    if what not in KINDS:
        raise ConfigError(f"--what {what}: " + unknown_name("prediction", what, KINDS))
    RunFolder.open(run_dir)
    target = output or run_dir / f"{what}.{'parquet' if what == 'table' else 'npy'}"

    from dorylus.inference import check_target

    check_target(target, what)
    with say_nothing_written(), prediction_bar(what) as tell:
        from dorylus.inference import predict_from

        written = predict_from(run_dir, what, layer, out=target, tell=tell, **settings)
    ids = "" if written.ids is None else f", their ids in {written.ids}"
    typer.echo(f"{what} of {written.num_vertices:,} vertices in {written.path}{ids}")
