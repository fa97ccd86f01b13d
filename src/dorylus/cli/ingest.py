"""``dorylus ingest``: edge lists of any size as a store folder, within a limit of memory.

``dorylus convert``: any graph that Dorylus can load, as a store folder.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus.cli.console import say_nothing_written, stage_bars
from dorylus.cli.flags import GRAPH_HELP, Root, RowNormalise, check_new_store, graph_section
from dorylus.errors import ConfigError, given
from dorylus.runs import RunSpec
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from dorylus.ingest import Ingested


EDGES, VERTICES = "Edges", "Vertices"


def _text(metavar: str, help_text: str, *names: str, group: str = EDGES) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_text, show_default=False, rich_help_panel=group)


def _rows(help_text: str) -> Any:
    return _text("FILE", help_text, group=VERTICES)


# Required by the command: its error says more than typer's where only one path is given.
Edges = Annotated[
    list[str],  # a path that is empty is not the working folder
    typer.Argument(
        default_factory=list,
        metavar="EDGES...",
        help="Files or folders with the edges.  [required]",
        show_default=False,
    ),
]
Store = Annotated[Path, typer.Argument(metavar="STORE_FOLDER", help="The store folder to write.", show_default=False)]
Directed = Annotated[
    bool, typer.Option("--directed/--undirected", help="Whether edges have a direction.", rich_help_panel=EDGES)
]
Memory = Annotated[
    str,
    typer.Option(metavar="SIZE", help="What the process may take: 4GiB, 800MB.", rich_help_panel=SettingGroup.MEMORY),
]
Reorder = Annotated[
    str,
    typer.Option(
        metavar="HOW", help="none, or degree: vertices with most edges first.", rich_help_panel=SettingGroup.OUTPUT
    ),
]
NumVertices = Annotated[int | None, _text("N", "Vertices; else those of the files.", group=VERTICES)]
Features = Annotated[
    str | None,
    _text(
        "FILE|NAMES",
        "Features, a row a vertex: .npy or .parquet; or columns of the table: f1,f2 or 'f*'.",
        group=VERTICES,
    ),
]
Labels = Annotated[Path | None, _rows("Labels, one a vertex or a row of zeros and ones: .npy or .parquet.")]
Train = Annotated[Path | None, _rows("Vertices to train on: vertex numbers, or a bool a vertex (.npy).")]
Val = Annotated[Path | None, _rows("Vertices to validate on.")]
Test = Annotated[Path | None, _rows("Vertices to test on.")]
FeatureDtype = Annotated[
    str,
    typer.Option(
        metavar="TYPE", help="float32, or float16: features in half the bytes, rounded.", rich_help_panel=VERTICES
    ),
]
DropSelfLoops = Annotated[
    bool, typer.Option("--drop-self-loops", help="Leave out edges to oneself.", rich_help_panel=EDGES)
]
KeepDuplicates = Annotated[
    bool, typer.Option("--keep-duplicates", help="Keep edges that are repeated.", rich_help_panel=EDGES)
]
Format = Annotated[str | None, _text("NAME", "The files' format, if names do not say it.", "--format")]
Columns = Annotated[str | None, _text("A,B[,C]", "Columns of source, destination and weight.")]
Delimiter = Annotated[str | None, _text("TEXT", "What is between columns of text.")]
Header = Annotated[
    bool | None, typer.Option("--header/--no-header", help="Whether text has a heading.", rich_help_panel=EDGES)
]
Dtype = Annotated[str | None, _text("TYPE", "Of raw binary pairs: i4 or i8.")]
Ids = Annotated[str | None, _text("HOW", "auto, dense, map or strings: how ids become numbers.", group=VERTICES)]
Vertices = Annotated[
    str | None, _rows("All ids in the store's order, one a line or row; or a table, CSV or Parquet, with columns:")
]
Id = Annotated[str | None, _text("COLUMN", "Table: ids.", "--id", group=VERTICES)]
Label = Annotated[str | None, _text("COLUMN", "Table: classes.", group=VERTICES)]
Categories = Annotated[
    str | None, _text("NAMES", "Table: features that are categories though numbers.", group=VERTICES)
]
Split = Annotated[
    str | None, _text("COLUMN|train=.6,val=.2", "Table: train, val and test, or shares of each class.", group=VERTICES)
]
Fill = Annotated[
    str | None, _text("VALUE|COLUMN=VALUE,...", "Table: what stands for missing features, or mean.", group=VERTICES)
]
SplitSeed = Annotated[int | None, _text("N", "Table: the seed of a split by shares.", group=VERTICES)]
DropUnknown = Annotated[
    bool, typer.Option("--drop-unknown", help="Leave out edges to ids that no vertex has.", rich_help_panel=EDGES)
]
Name = Annotated[str | None, _text("TEXT", "The graph's name; else the folder's.", group=SettingGroup.OUTPUT)]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace a store that is there already.", rich_help_panel=SettingGroup.OUTPUT),
]


def ingest(
    edges: Edges,
    store: Store,
    directed: Directed = False,
    memory: Memory = "2GiB",
    reorder: Reorder = "none",
    num_vertices: NumVertices = None,
    features: Features = None,
    labels: Labels = None,
    train: Train = None,
    val: Val = None,
    test: Test = None,
    feature_dtype: FeatureDtype = "float32",
    drop_self_loops: DropSelfLoops = False,
    keep_duplicates: KeepDuplicates = False,
    file_format: Format = None,
    columns: Columns = None,
    delimiter: Delimiter = None,
    header: Header = None,
    dtype: Dtype = None,
    ids: Ids = None,
    vertices: Vertices = None,
    id: Id = None,
    label: Label = None,
    categories: Categories = None,
    split: Split = None,
    fill: Fill = None,
    seed: SplitSeed = None,
    drop_unknown: DropUnknown = False,
    name: Name = None,
    overwrite: Overwrite = False,
) -> None:
    """Write edge lists that need not fit into memory as a store folder."""
    if not edges:
        raise ConfigError(
            f"only {store} is given. Name the files of edges first and then the folder of the store to write, as in "
            f"dorylus ingest {store} my-graph."
        )
    check_new_store(store, overwrite=overwrite)
    options = {
        "memory": memory, "reorder": reorder, "num_vertices": num_vertices, "features": features, "labels": labels,
        "train": train, "val": val, "test": test, "feature_dtype": feature_dtype, "name": name, "format": file_format,
        "columns": _listed(columns), "delimiter": delimiter, "header": header, "dtype": dtype, "ids": ids,
        "vertices": vertices, "id": id, "label": label, "categories": _names(categories),
        "split": _split(split), "fill": _fill(fill), "seed": seed,
        "drop_unknown": drop_unknown, "undirected": not directed, "drop_self_loops": drop_self_loops,
        "drop_duplicates": not keep_duplicates, "overwrite": overwrite,
    }  # fmt: skip
    if features is not None and any(
        options[name] is not None for name in ("id", "label", "split", "fill", "categories")
    ):
        options["features"] = _names(features)
    _report(store, _run(edges, store, {key: value for key, value in options.items() if value is not None}))


def _run(edges: list[str], store: Path, options: dict[str, Any]) -> "Ingested":
    from dorylus.ingest import ingest_edges

    with say_nothing_written(), stage_bars() as tell:
        return ingest_edges(edges, store, tell=tell, **options)


def _report(store: Path, made: "Ingested") -> None:
    edges = f"{made.num_edges:,} directed edges" + (" with weights" if made.weighted else "")
    files = "" if made.num_files is None else f" from {_files(made.num_files)}"
    typer.echo(f"{made.num_vertices:,} vertices and {edges}, of {made.num_read:,} read{files}, in {store}")
    if made.left_out:
        first = f"{', the first ' if len(made.left_out) > 1 else ': '}{made.left_out[0]}"
        typer.echo(f"{_files(len(made.left_out))} without an edge left out{first}")
    if made.unchecked:
        first = f"{', the first ' if len(made.unchecked) > 1 else ': '}{made.unchecked[0]}"
        typer.echo(
            f"{_files(len(made.unchecked))} of Parquet without checksums of pages{first}. Damage to such a file may "
            "pass unseen: pyarrow writes checksums with write_page_checksum=True."
        )
    if made.num_dropped:
        typer.echo(f"{made.num_dropped:,} edges left out, as one of their ends is not among the vertices")
    if 2 * made.num_alone > made.num_vertices:
        typer.echo(
            f"At least {made.num_alone:,} of the vertices have no edge: the largest id is {made.num_vertices - 1:,}. "
            "Where ids are not numbers from 0 without gaps, --ids map numbers those that occur; where they are, an id "
            "of the input is wrong."
        )


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _names(names: str | None) -> list[str] | None:
    return None if names is None else [name.strip() for name in names.split(",")]


def _split(split: str | None) -> str | dict[str, Any] | None:
    """A column; or shares, or columns, of train, val and test."""
    if split is None:
        return None
    if "=" not in split:
        if "," in split and all(isinstance(_number(each), float) for each in split.split(",")):
            raise ConfigError(
                f"{given('split', split)}: name the splits, as in {given('split', {'train': 0.6, 'val': 0.2})}."
            )
        return split
    return {name.strip(): _number(value) for name, value in _pairs("split", split)}


def _fill(fill: str | None) -> Any:
    if fill is None or "=" not in fill:
        return None if fill is None else _number(fill)
    return {name: _number(value) for name, value in _pairs("fill", fill)}


def _pairs(name: str, text: str) -> list[list[str]]:
    pairs = [each.split("=", 1) for each in text.split(",")]
    if any(len(pair) != 2 for pair in pairs):
        raise ConfigError(f"{given(name, text)}: give NAME=VALUE, separated by commas.")
    return pairs


def _number(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def _listed(columns: str | None) -> list[str | int] | None:
    """Columns by position where they are numbers, else by name."""
    if columns is None:
        return None
    return [int(each) if each.isdecimal() else each for each in columns.split(",")]


def convert(
    source: Annotated[str, typer.Argument(metavar="GRAPH", help=GRAPH_HELP, show_default=False)],
    store: Annotated[
        Path, typer.Argument(metavar="STORE_FOLDER", help="The store folder to write.", show_default=False)
    ],
    root: Root = None,
    row_normalise: RowNormalise = None,
    feature_dtype: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="float16: features in half the bytes, rounded; or float32.",
            show_default=False,
            rich_help_panel=SettingGroup.DATA,
        ),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace a store that is there already.", rich_help_panel=SettingGroup.OUTPUT),
    ] = False,
) -> None:
    """Write a graph as a store folder."""
    check_new_store(store, overwrite=overwrite)
    with say_nothing_written():
        graph = RunSpec(graph_section(source, root, row_normalise)).load_graph()
        graph.save(store, overwrite=overwrite, feature_dtype=feature_dtype)
    typer.echo(f"{graph.num_vertices:,} vertices and {graph.num_edges:,} directed edges of {graph.name} in {store}")
