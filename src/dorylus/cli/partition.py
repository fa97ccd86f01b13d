"""``dorylus partition``: the quality of dividing a graph among servers, by one method or all; saves shards."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dorylus import units
from dorylus.cli.console import say_nothing_written, stage_bars
from dorylus.cli.flags import GRAPH_HELP, Root, check_parent, graph_section
from dorylus.errors import ConfigError, DataError, unknown_value
from dorylus.runs import RunSpec
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from rich.table import Table

    from dorylus.graph import Graph
    from dorylus.partition import Partitioning, Quality
    from dorylus.progress import ReportStage

ALL = "all"
HEADINGS = ("method", "edge cut", "ghosts/vertex", "vertex balance", "edge balance", "seconds")
EVEN = 1.05


def partition(
    graph: Annotated[
        str, typer.Argument(metavar="GRAPH", help=f"{GRAPH_HELP} Or a folder of saved shards.", show_default=False)
    ],
    servers: Annotated[
        int, typer.Option(metavar="N", help="Servers to divide the vertices among.", rich_help_panel=SettingGroup.PLACE)
    ],
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="hash, metis, range or stream; all compares them.", rich_help_panel=SettingGroup.PLACE
        ),
    ] = "stream",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Save the shards in this new folder.",
            show_default=False,
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = None,
    passes: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Passes of stream at each level; 1 is the one-pass stream. [4]",
            rich_help_panel=SettingGroup.PLACE,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of metis and stream.", rich_help_panel=SettingGroup.PLACE)
    ] = 0,
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="What the process may take: 4GiB, 800MB. [as much as it needs]",
            rich_help_panel=SettingGroup.MEMORY,
        ),
    ] = None,
    root: Root = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Replace shards that are there already.", rich_help_panel=SettingGroup.OUTPUT),
    ] = False,
) -> None:
    """Divide a graph's vertices among servers, and show the quality."""
    from rich.console import Console

    if out is not None:
        check_parent(out, "folder of shards")
    methods = _methods(method, None if overwrite else out, saves=out is not None)
    console = Console(highlight=False)
    with say_nothing_written(), stage_bars() as tell:
        loaded = _loaded(graph, root, memory)
        request = PartitionRequest(loaded, servers, seed, passes, memory, out)
        if memory is not None:
            console.print(request.plan(methods), markup=False, soft_wrap=True)
        table, remarks, made = _compare(request, methods, tell)
        console.print(table)
        for remark in remarks:
            console.print(remark, markup=False, soft_wrap=True)
        if out is not None and made is not None:
            _save(out, loaded, made, overwrite, memory, tell)


def _methods(name: str, new: Path | None, *, saves: bool) -> Sequence[str]:
    from dorylus.partition import METHODS

    if name != ALL and name not in METHODS:
        raise ConfigError(unknown_value("method", name, (*METHODS, ALL)))
    if saves and name == ALL:
        raise ConfigError("--method all compares methods, and --out saves the shards of one: name that one.")
    if new is not None and new.exists():
        raise ConfigError(f"{new} exists already: give --overwrite to replace shards, or choose another folder.")
    return METHODS if name == ALL else (name,)


@dataclass(frozen=True)
class PartitionRequest:
    """The request of the flags."""

    graph: "Graph"
    servers: int
    seed: int
    passes: int | None
    memory: str | None
    out: Path | None

    def plan(self, methods: Sequence[str]) -> str:
        """A sentence on what it will take under the limit; a limit that cannot be kept is refused."""
        from dorylus.partition import partition_needs

        plans = [partition_needs(self.graph, self.servers, each, self.memory or 0, out=self.out) for each in methods]
        return "\n".join(map(str, plans))

    def make(self, method: str, passes: int | None, tell: "ReportStage") -> "tuple[Partitioning, float]":
        """The vertices divided by one method, and the seconds that took."""
        from dorylus.partition import make_partitioning, scratch_beside

        start = time.perf_counter()
        made = make_partitioning(
            self.graph,
            self.servers,
            method,
            self.seed,
            passes=passes,
            memory=self.memory,
            scratch_dir=scratch_beside(self.graph, self.out),
            tell=tell,
        )
        return made, time.perf_counter() - start


def _loaded(source: str, root: Path | None, memory: str | None) -> "Graph":
    """The graph; that of saved shards, its edges alone, where the source is a folder of such."""
    from dorylus.partition import SHARDS, check_joining, open_shards

    if (Path(source) / SHARDS.manifest).is_file():
        shards = open_shards(source)
        if memory is not None:
            check_joining(shards, memory)
        return shards.graph()
    return RunSpec(graph_section(source, root, None)).load_graph()


def _compare(
    request: PartitionRequest, methods: Sequence[str], tell: "ReportStage"
) -> "tuple[Table, list[str], Partitioning | None]":
    """The table with a row for each method, remarks on it, and the last partitioning made.

    Among several methods, one whose package is missing is left out with a remark, and only stream uses the passes.
    """
    table, remarks, made = _table(request.graph, request.servers), [], None
    for name in methods:
        alone = len(methods) == 1
        try:
            made, seconds = request.make(name, request.passes if alone or name == "stream" else None, tell)
        except DataError as error:
            if alone:
                raise
            remarks.append(f"without {name}: {error}")
            continue
        quality = made.quality(request.graph, memory=request.memory, tell=tell)
        table.add_row(*_cells(name, quality, seconds))
        remarks += _uneven(name, quality)
    return table, remarks, made


def _table(graph: "Graph", servers: int) -> "Table":
    from rich import box
    from rich.table import Table

    sizes = f"{graph.num_vertices:,} vertices, {graph.num_edges:,} directed edges"
    table = Table(title=f"{graph.name}, {sizes}, {servers} servers", title_justify="left", box=box.ROUNDED)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    return table


def _cells(name: str, quality: "Quality", seconds: float) -> tuple[str, ...]:
    figures = (quality.ghosts_per_vertex, quality.vertex_balance, quality.edge_balance)
    return (name, units.percent(quality.edge_cut), *(f"{figure:.3f}" for figure in figures), f"{seconds:.2f}")


def _uneven(name: str, quality: "Quality") -> list[str]:
    if name != "stream" or max(quality.edge_balance, quality.vertex_balance) <= EVEN:
        return []
    return ["stream: no division of this graph is within 5 %; this is as even as dealing by falling degree gets."]


def _save(
    folder: Path, graph: "Graph", made: "Partitioning", overwrite: bool, memory: str | None, tell: "ReportStage"
) -> None:
    from dorylus.partition import save_shards

    save_shards(folder, graph, made, overwrite=overwrite, memory=memory, tell=tell)
    typer.echo(f"{made.num_parts} shards in {folder}")
