"""``dorylus info``: sizes, degrees, classes, masks and memory of a graph."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dorylus import units
from dorylus.cli.console import progress_bar
from dorylus.cli.flags import GRAPH_HELP, Root, graph_section
from dorylus.errors import DataError
from dorylus.runs import RunSpec
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from dorylus.graph import Graph

MOST_NAMES = 5


def info(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help=GRAPH_HELP, show_default=False)],
    root: Root = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Read all of a store and compare its checksums.", rich_help_panel=SettingGroup.DATA
        ),
    ] = False,
) -> None:
    """Show sizes, degrees, classes, masks and memory of a graph."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    section = graph_section(graph, root, None)
    compared = [("checksums", _checksums(section["source"]))] if verify else []
    loaded = RunSpec(section).load_graph()
    table = Table(title=loaded.name, title_justify="left", box=box.ROUNDED, show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in [*rows(loaded), *compared]:
        table.add_row(name, value)
    Console().print(table)


def rows(graph: "Graph") -> list[tuple[str, str]]:
    """The rows of the table."""
    facts = [
        ("vertices", f"{graph.num_vertices:,}"),
        ("edges", _edges(graph)),
        ("in-degree", _degrees(graph)),
        ("features", _features(graph)),
        ("labels", _labels(graph)),
        ("split", _split(graph)),
        ("memory", _memory(graph)),
    ]
    return facts if graph.store is None else [*facts, ("store", _store(graph.store))]


def _edges(graph: "Graph") -> str:
    kind = "directed" if graph.directed else "stored, both directions of each"
    weighted = ", weighted" if graph.edge_weight is not None else ""
    return f"{graph.num_edges:,} {kind}{weighted}"


def _degrees(graph: "Graph") -> str:
    import numpy as np

    degrees = graph.in_degrees()
    if not degrees.size:
        return "–"
    alone = int((degrees == 0).sum())
    return (
        f"{degrees.min():,} to {degrees.max():,}, median {np.median(degrees):g}, mean {degrees.mean():.1f}; "
        f"{alone:,} vertices without in-edges"
    )


def _features(graph: "Graph") -> str:
    from dorylus.graph import SparseFeatures

    if isinstance(graph.features, SparseFeatures):
        return f"{graph.num_features:,} columns, sparse, {units.percent(graph.features.density)} filled"
    return f"{graph.num_features:,} columns, dense, {graph.feature_dtype}"


def _labels(graph: "Graph") -> str:
    import numpy as np

    if graph.labels is None:
        return "none"
    if graph.multilabel:
        return f"{graph.num_classes} labels, {graph.labels.sum() / max(1, graph.num_vertices):.2f} a vertex"
    counts = np.bincount(graph.labels[graph.labels >= 0], minlength=graph.num_classes)
    if not counts.size:
        return "none"
    names = "" if graph.class_names is None else f" ({_first(graph.class_names)})"
    return (
        f"{graph.num_classes} classes{names} of {counts.min():,} to {counts.max():,} vertices; "
        f"{graph.num_vertices - int(counts.sum()):,} vertices without label"
    )


def _first(names: tuple[str, ...]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")


def _split(graph: "Graph") -> str:
    masks = {"train": graph.train_mask, "validation": graph.val_mask, "test": graph.test_mask}
    return ", ".join(f"{int(mask.sum()):,} {name}" for name, mask in masks.items())


def _store(address: str) -> str:
    """What a store holds besides the graph."""
    from dorylus.graph import open_ids, open_out_edges

    ids = open_ids(address)
    kept = "vertices have the input's numbers"
    if ids is not None:
        kept = f"vertices keep {'names' if isinstance(ids, tuple) else 'numbers'} that the input gave them"
    return f"{kept}; out-edges {'are not' if open_out_edges(address) is None else 'are'} listed"


def _checksums(source: str) -> str:
    """The outcome of comparing the checksums of a store; a bar shows the progress."""
    from dorylus.graph import has_block_sums, is_remote, is_store, verify_store

    is_path = is_remote(source) or Path(source).is_absolute()  # otherwise it is a name, or nothing
    if not is_path or not is_store(source):
        raise DataError(f"{source} is not a store, and only stores have checksums: give a store, or no --verify.")
    with progress_bar("comparing checksums", "bytes") as tell:
        outcome = f"all {verify_store(source, tell)} arrays are as written"
    if has_block_sums(source):
        return outcome
    return f"{outcome}; the store has no checksums of blocks, so that reads of a run cannot be compared with them"


def _memory(graph: "Graph") -> str:
    edges = graph.indptr.nbytes + graph.indices.nbytes + (0 if graph.edge_weight is None else graph.edge_weight.nbytes)
    return f"{units.size(edges)} edges, {units.size(graph.features.nbytes)} features"
