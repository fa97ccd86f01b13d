"""The flags of an ingest: how each is written, and what it says."""

from pathlib import Path
from typing import Annotated, Any

import typer


def _text(metavar: str, help_text: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_text, show_default=False)


def _rows(help_text: str) -> Any:
    return _text("FILE", help_text)


# Required by the command, which says more than typer where only one path is given.
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
Directed = Annotated[bool, typer.Option("--directed/--undirected", help="Whether edges have a direction.")]
Memory = Annotated[str, typer.Option(metavar="SIZE", help="What the process may take: 4GiB, 800MB.")]
Reorder = Annotated[str, typer.Option(metavar="HOW", help="none, or degree: vertices with most edges first.")]
NumVertices = Annotated[int | None, _text("N", "Vertices; else those of the files.")]
Features = Annotated[Path | None, _rows("Features, a row a vertex: .npy or .parquet.")]
Labels = Annotated[Path | None, _rows("Labels, one a vertex or a row of zeros and ones: .npy or .parquet.")]
Train = Annotated[Path | None, _rows("Who is trained on: vertex numbers, or a bool a vertex (.npy).")]
Val = Annotated[Path | None, _rows("Who is validated on.")]
Test = Annotated[Path | None, _rows("Who is tested on.")]
FeatureDtype = Annotated[
    str, typer.Option(metavar="TYPE", help="float32, or float16: features in half the bytes, rounded.")
]
DropSelfLoops = Annotated[bool, typer.Option("--drop-self-loops", help="Leave out edges to oneself.")]
KeepDuplicates = Annotated[bool, typer.Option("--keep-duplicates", help="Keep edges that are repeated.")]
Format = Annotated[str | None, _text("NAME", "The files' format, if names do not say it.", "--format")]
Columns = Annotated[str | None, _text("A,B[,C]", "Columns of source, destination and weight.")]
Delimiter = Annotated[str | None, _text("TEXT", "What is between columns of text.")]
Header = Annotated[bool | None, typer.Option("--header/--no-header", help="Whether text has a heading.")]
Dtype = Annotated[str | None, _text("TYPE", "Of raw binary pairs: i4 or i8.")]
Ids = Annotated[str | None, _text("HOW", "auto, dense, map or strings: how ids become numbers.")]
Vertices = Annotated[Path | None, _rows("All ids in the store's order: a file with one a line or row.")]
Name = Annotated[str | None, _text("TEXT", "The graph's name; else the folder's.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a store that is there already.")]
