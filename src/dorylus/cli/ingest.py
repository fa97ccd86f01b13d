"""``dorylus ingest``: edge lists of any size as a store folder, within a limit of memory."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dorylus.cli import ingest_flags as flags
from dorylus.cli.in_flags import in_flags
from dorylus.cli.ingest_bars import bars
from dorylus.cli.interrupt import tell_nothing_written
from dorylus.cli.new_store import check_new_store
from dorylus.errors import ConfigError

if TYPE_CHECKING:
    from dorylus.graph.ingest import Ingested


def ingest(
    edges: flags.Edges,
    store: flags.Store,
    directed: flags.Directed = False,
    memory: flags.Memory = "2GiB",
    reorder: flags.Reorder = "none",
    num_vertices: flags.NumVertices = None,
    features: flags.Features = None,
    labels: flags.Labels = None,
    train: flags.Train = None,
    val: flags.Val = None,
    test: flags.Test = None,
    feature_dtype: flags.FeatureDtype = "float32",
    drop_self_loops: flags.DropSelfLoops = False,
    keep_duplicates: flags.KeepDuplicates = False,
    file_format: flags.Format = None,
    columns: flags.Columns = None,
    delimiter: flags.Delimiter = None,
    header: flags.Header = None,
    dtype: flags.Dtype = None,
    ids: flags.Ids = None,
    vertices: flags.Vertices = None,
    name: flags.Name = None,
    overwrite: flags.Overwrite = False,
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
        "vertices": vertices, "undirected": not directed, "drop_self_loops": drop_self_loops,
        "drop_duplicates": not keep_duplicates, "overwrite": overwrite,
    }  # fmt: skip
    _report(store, _run(edges, store, {key: value for key, value in options.items() if value is not None}))


def _run(edges: list[str], store: Path, options: dict[str, Any]) -> "Ingested":
    from dorylus.graph.ingest import ingest_edges

    with in_flags(), tell_nothing_written(), bars() as tell:
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
    if made.perhaps_heading is not None:
        source, destination = made.perhaps_heading
        typer.echo(
            f"The first line names {source!r} and {destination!r}, which have no other edge: pass --header if it is a "
            "heading."
        )
    if 2 * made.num_alone > made.num_vertices:
        typer.echo(
            f"At least {made.num_alone:,} of the vertices have no edge: the largest id is {made.num_vertices - 1:,}. "
            "Where ids are not numbers from 0 without gaps, --ids map numbers those that occur; where they are, an id "
            "of the input is wrong."
        )


def _files(count: int) -> str:
    return f"{count:,} file{'' if count == 1 else 's'}"


def _listed(columns: str | None) -> list[str | int] | None:
    """Columns by position where they are numbers, else by name."""
    if columns is None:
        return None
    return [int(each) if each.isdecimal() else each for each in columns.split(",")]
