"""What a command was asked to work on, as the ``[graph]`` and ``[model]`` sections of ``run.toml`` have it.

Paths become absolute here: a run may be resumed from another folder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from dorylus.cli.flags import table, value_of

GRAPH_HELP = "A data set's name (cora), a file, a store folder, or a generator (communities:num_vertices=10000)."

Root = Annotated[Path | None, typer.Option(help="Folder with the data set's files; downloads go there too.")]
RowNormalise = Annotated[
    bool | None,
    typer.Option("--row-normalise/--no-row-normalise", help="Divide each feature row by its sum.", show_default=False),
]
ModelName = Annotated[str | None, typer.Option(help="gcn, gat, sage or gin. [gcn]", metavar="NAME")]
Hidden = Annotated[str | None, typer.Option(help="Width of hidden layers, or several: 64,32.", metavar="N")]
NumLayers = Annotated[int | None, typer.Option(help="Layers of the model.", metavar="N")]
Dropout = Annotated[float | None, typer.Option(help="Share of inputs dropped in training.", metavar="X")]
Heads = Annotated[int | None, typer.Option(help="Attention heads, of models that have them.", metavar="N")]
ModelOption = Annotated[list[str] | None, typer.Option(help="A further option of the model.", metavar="KEY=VALUE")]


def graph_section(source: str, root: Path | None, row_normalise: bool | None) -> dict[str, Any]:
    """How to load a graph, leaving out what was not given."""
    return {"source": _absolute(source), **graph_options(root, row_normalise)}


def graph_options(root: Path | None, row_normalise: bool | None) -> dict[str, Any]:
    """The options of a graph that were given."""
    options: dict[str, Any] = {}
    if root is not None:
        options["root"] = str(root.absolute())
    if row_normalise is not None:
        options["row_normalise"] = row_normalise
    return options


def model_section(name: str | None, options: Sequence[str], **given: Any) -> dict[str, Any]:
    """How to build a model, leaving out what was not given."""
    section = {"name": name, **given} | table("model-option", options)
    return {key: value for key, value in section.items() if value is not None}


def widths(text: str | None) -> Any:
    """One width, or a list where several are given with commas between."""
    if text is None or "," not in text:
        return None if text is None else value_of(text)
    return [value_of(part) for part in text.split(",")]


def short_name(source: str) -> str:
    """A graph's source as part of a folder's name."""
    return Path(source.partition(":")[0]).stem or "graph"


def _absolute(source: str) -> str:
    """A path as an absolute one; a known name is never a path, as ``dorylus.load`` has it."""
    from dorylus.graph.datasets.catalogue import known_names

    path = Path(source).expanduser()
    name = source.partition(":")[0].lower().replace("_", "-")
    is_path = path.exists() and name not in (known.lower() for known in known_names())
    return str(path.absolute()) if is_path else source
