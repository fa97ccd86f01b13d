"""``dorylus convert``: any graph Dorylus can load, as a store folder that opens at once.

Where a command may write a store: known before any work.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from dorylus.cli.flags import GRAPH_HELP, Root, RowNormalise, graph_section
from dorylus.cli.interrupt import tell_nothing_written
from dorylus.errors import ConfigError
from dorylus.runs import RunSpec

LONGEST_NAME = 230  # of the 255 that file systems have


def check_new_store(store: Path, *, overwrite: bool) -> None:
    """Refuses a place in a folder that is not there, and a store that is not to be replaced."""
    from dorylus.graph import is_store

    check_parent(store, "store")
    if is_store(store) and not overwrite:
        raise ConfigError(
            f"the store {store} exists already: give --overwrite to replace it, or choose another folder."
        )


def check_parent(target: Path, noun: str) -> None:
    """Refuses a place in a folder that is not there, more likely a slip than a wish, and a name that is too long."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            target.absolute().stat()  # exists() hides what is wrong, from Python 3.14 on
    except OSError as error:
        raise ConfigError(
            f"the {noun} {target} cannot be written: {error.strerror}. Choose another name or folder."
        ) from error
    if (size := len(os.fsencode(target.name))) > LONGEST_NAME:
        raise ConfigError(
            f"the {noun} {target} cannot be written: its name has {size} bytes, and at most {LONGEST_NAME} leave room "
            "for what is added to it meanwhile. Choose a shorter one."
        )
    if not target.absolute().parent.is_dir():
        raise ConfigError(
            f"the {noun} {target} cannot be written: the folder {target.parent} does not exist. Make it, or choose "
            "another."
        )


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
            metavar="TYPE", help="float16: features in half the bytes, rounded; or float32.", show_default=False
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there already.")] = False,
) -> None:
    """Write a graph as a store folder."""
    check_new_store(store, overwrite=overwrite)
    with tell_nothing_written():
        graph = RunSpec(graph_section(source, root, row_normalise)).load_graph()
        graph.save(store, overwrite=overwrite, feature_dtype=feature_dtype)
    typer.echo(f"{graph.num_vertices:,} vertices and {graph.num_edges:,} directed edges of {graph.name} in {store}")
