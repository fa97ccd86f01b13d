"""``dorylus evaluate``: how well a trained model predicts the labels of its graph, or of another one."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus.cli.flags import OtherGraph, Root, load_other, with_settings
from dorylus.errors import ConfigError, unknown_name
from dorylus.runs import RunFolder

if TYPE_CHECKING:
    from rich.table import Table

    from dorylus.training import Evaluation

SPLITS = ("test", "val", "train", "all")  # the first that has vertices is shown by class
WIDEST_MATRIX = 12
MOST_CONFUSIONS = 10


@partial(with_settings, only=("memory", "scratch_dir"))
def evaluate(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of a run.", show_default=False)],
    graph: OtherGraph = None,
    root: Root = None,
    split: Annotated[
        str | None,
        typer.Option(help="The split to show by class. [test, or the first of the others]", metavar="|".join(SPLITS)),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all splits as JSON.")] = False,
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
    for table in tables(found, split or next(each for each in SPLITS if each in found.splits)):
        console.print(table)


def tables(found: "Evaluation", split: str) -> list["Table"]:
    """The scores of every split, those of every class in one split, and the confusions of its classes."""
    overview = _table("", ["split", "vertices", "accuracy", "macro F1", "micro F1"])
    for name, each in found.splits.items():
        overview.add_row(name, f"{each.num_vertices:,}", *_shares(each.accuracy, each.macro_f1, each.micro_f1))
    classes = _table(f"{split}, by class", ["class", "vertices", "precision", "recall", "F1"])
    by_class = found.splits[split].classes
    for position, name in enumerate(found.class_names):
        shares = (each[position] for each in (by_class.precision, by_class.recall, by_class.f1))
        classes.add_row(_text(name), f"{by_class.support[position]:,}", *_shares(*shares))
    return [overview, classes, *_confusions(found, split)]


def _confusions(found: "Evaluation", split: str) -> list["Table"]:
    """The matrix of true and predicted classes; of many classes, the pairs that are confused most often."""
    counts, names = found.splits[split].confusion, found.class_names
    if counts is None:
        return []
    if len(names) <= WIDEST_MATRIX:
        matrix = _table(f"{split}, by predicted class", ["true class", *names])
        for name, row in zip(names, counts, strict=True):
            matrix.add_row(_text(name), *(f"{count:,}" for count in row))
        return [matrix]
    pairs = [(int(counts[pair]), pair) for pair in zip(*counts.nonzero(), strict=True) if pair[0] != pair[1]]
    often = _table(f"{split}: most often confused", ["true class", "predicted class", "vertices"])
    for count, (true, predicted) in sorted(pairs, key=lambda each: (-each[0], each[1]))[:MOST_CONFUSIONS]:
        often.add_row(_text(names[true]), _text(names[predicted]), f"{count:,}")
    return [often]


def _table(title: str, columns: list[str]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(title=_text(title) if title else None, title_justify="left", box=box.ROUNDED)
    for position, name in enumerate(columns):
        table.add_column(_text(name), justify="left" if position == 0 else "right")
    return table


def _text(name: str) -> Any:
    from rich.text import Text

    return Text(name)  # a name in brackets is no markup


def _shares(*values: float) -> list[str]:
    return [f"{value:.4f}" for value in values]
