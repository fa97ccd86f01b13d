"""``dorylus predict`` and ``dorylus evaluate``: what a trained model predicts, as a file, and how well.

The graph is that of the run, or another one.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus.cli.console import progress_bar, say_nothing_written
from dorylus.cli.flags import OtherGraph, Root, load_other, with_settings
from dorylus.errors import ConfigError, unknown_name
from dorylus.runs import RunFolder
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from dorylus.inference import ReportRows
    from dorylus.training import Evaluation


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


KINDS = ("table", "classes", "probabilities", "logits", "embeddings")


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
    graph: OtherGraph = None,
    root: Root = None,
    *,
    settings: dict[str, Any],
) -> None:
    """Write ids with classes and probabilities as a table, or one kind of prediction, in the graph's own order.

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

        other: dict[str, Any] = {} if graph is None else {"graph": load_other(graph, root)}
        written = predict_from(run_dir, what, layer, out=target, tell=tell, **other, **settings)
    ids = "" if written.ids is None else f", their ids in {written.ids}"
    typer.echo(f"{what} of {written.num_vertices:,} vertices in {written.path}{ids}")


SPLITS = ("test", "val", "train", "all")


@partial(with_settings, only=("memory", "scratch_dir"))
def evaluate(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.", show_default=False)],
    graph: OtherGraph = None,
    root: Root = None,
    split: Annotated[
        str | None,
        typer.Option(
            help="The split to show by class. [test, or the first of the others]",
            metavar="|".join(SPLITS),
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all splits as JSON.", rich_help_panel=SettingGroup.OUTPUT)
    ] = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Show accuracy and F1 of every split, and precision, recall, F1 and confusions of the classes of one.

    The split "all" has every vertex with a label.
    """
    if split is not None and split not in SPLITS:
        raise ConfigError(f"--split {split}: " + unknown_name("split", split, SPLITS))
    RunFolder.open(run_dir)

    from dorylus.inference import evaluate_from

    other = None if graph is None else load_other(graph, root)
    found = evaluate_from(run_dir, graph=other, **settings)
    if split is not None and split not in found.splits:
        raise ConfigError(f"--split {split}: no vertex is in that split. There are {', '.join(found.splits)}.")
    if as_json:
        typer.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console()
    for table in tables(found, split or found.shown_split):
        console.print(table)


def tables(found: "Evaluation", split: str) -> list["Table"]:
    """The tables of an evaluation, for a terminal."""
    from rich import box
    from rich.table import Table
    from rich.text import Text  # a name in brackets is no markup

    drawn = []
    for each in found.tables(split):
        table = Table(title=Text(each.title) if each.title else None, title_justify="left", box=box.ROUNDED)
        for position, name in enumerate(each.columns):
            table.add_column(Text(name), justify="right" if position >= each.num_names else "left")
        for row in each.rows:
            table.add_row(*map(Text, row))
        drawn.append(table)
    return drawn
