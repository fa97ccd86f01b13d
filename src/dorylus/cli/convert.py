"""``dorylus convert``: any graph Dorylus can load, as a store folder that opens without reading it."""

from pathlib import Path
from typing import Annotated

import typer

from dorylus.cli.flags import GRAPH_HELP, Root, RowNormalise, check_new_store, graph_section
from dorylus.cli.interrupt import say_nothing_written
from dorylus.runs import RunSpec
from dorylus.settings import Group


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
            rich_help_panel=Group.DATA,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a store that is there already.", rich_help_panel=Group.OUTPUT)
    ] = False,
) -> None:
    """Write a graph as a store folder."""
    check_new_store(store, overwrite=overwrite)
    with say_nothing_written():
        graph = RunSpec(graph_section(source, root, row_normalise)).load_graph()
        graph.save(store, overwrite=overwrite, feature_dtype=feature_dtype)
    typer.echo(f"{graph.num_vertices:,} vertices and {graph.num_edges:,} directed edges of {graph.name} in {store}")
