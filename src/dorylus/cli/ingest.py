"""``dorylus ingest``: edge lists of any size as a store folder, within a limit of memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus.cli.ingest_bars import bars
from dorylus.errors import ConfigError

if TYPE_CHECKING:
    from dorylus.graph.ingest import Ingested


def _rows(help_text: str) -> Any:
    return typer.Option(metavar="FILE", help=help_text, show_default=False)


def ingest(
    edges: Annotated[
        list[Path], typer.Argument(metavar="EDGES...", help="Files or folders with the edges.", show_default=False)
    ],
    store: Annotated[
        Path, typer.Argument(metavar="STORE_FOLDER", help="The store folder to write.", show_default=False)
    ],
    directed: Annotated[bool, typer.Option("--directed/--undirected", help="Whether edges have a direction.")] = False,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="What the process may take: 4GiB, 800MB.")] = "2GiB",
    num_vertices: Annotated[
        int | None, typer.Option(metavar="N", help="Vertices; else those of the files.", show_default=False)
    ] = None,
    features: Annotated[Path | None, _rows("Features, a row a vertex: .npy or .parquet.")] = None,
    labels: Annotated[Path | None, _rows("Labels, one a vertex or a row of zeros and ones: .npy or .parquet.")] = None,
    train: Annotated[Path | None, _rows("Who is trained on: vertex numbers, or a bool a vertex (.npy).")] = None,
    val: Annotated[Path | None, _rows("Who is validated on.")] = None,
    test: Annotated[Path | None, _rows("Who is tested on.")] = None,
    feature_dtype: Annotated[
        str, typer.Option(metavar="TYPE", help="float32, or float16: features in half the bytes, rounded.")
    ] = "float32",
    drop_self_loops: Annotated[bool, typer.Option("--drop-self-loops", help="Leave out edges to oneself.")] = False,
    keep_duplicates: Annotated[bool, typer.Option("--keep-duplicates", help="Keep edges that are repeated.")] = False,
    file_format: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="The files' format, if names do not say it.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B[,C]", help="Columns of source, destination and weight.")
    ] = None,
    delimiter: Annotated[str | None, typer.Option(metavar="TEXT", help="What is between columns of text.")] = None,
    header: Annotated[bool | None, typer.Option("--header/--no-header", help="Whether text has a heading.")] = None,
    dtype: Annotated[str | None, typer.Option(metavar="TYPE", help="Of raw binary pairs: i4 or i8.")] = None,
    ids: Annotated[
        str | None, typer.Option(metavar="HOW", help="auto, dense, map or strings: how ids become numbers.")
    ] = None,
    vertices: Annotated[Path | None, _rows("All ids in the store's order: a file with one a line or row.")] = None,
    name: Annotated[str | None, typer.Option(metavar="TEXT", help="The graph's name; else the folder's.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there already.")] = False,
) -> None:
    """Write edge lists that need not fit into memory as a store folder."""
    from dorylus.graph.store import is_store

    if is_store(store) and not overwrite:
        raise ConfigError(
            f"the store {store} exists already: give --overwrite to replace it, or choose another folder."
        )
    options = {
        "memory": memory, "num_vertices": num_vertices, "features": features, "labels": labels, "train": train,
        "val": val, "test": test, "feature_dtype": feature_dtype, "name": name, "format": file_format,
        "columns": _listed(columns), "delimiter": delimiter, "header": header, "dtype": dtype, "ids": ids,
        "vertices": vertices,
    }  # fmt: skip
    _report(store, _run(edges, store, {
        **{key: value for key, value in options.items() if value is not None},
        "undirected": not directed, "drop_self_loops": drop_self_loops, "drop_duplicates": not keep_duplicates,
        "overwrite": overwrite,
    }))  # fmt: skip


def _run(edges: list[Path], store: Path, options: dict[str, Any]) -> "Ingested":
    from dorylus.graph.ingest import ingest_edges

    with bars() as tell:
        return ingest_edges(edges, store, tell=tell, **options)


def _report(store: Path, made: "Ingested") -> None:
    typer.echo(
        f"{made.num_vertices:,} vertices and {made.num_edges:,} directed edges, of {made.num_read:,} read, in {store}"
    )


def _listed(columns: str | None) -> list[str | int] | None:
    """Columns by position where they are numbers, else by name."""
    if columns is None:
        return None
    return [int(each) if each.isdecimal() else each for each in columns.split(",")]
