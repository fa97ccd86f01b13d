"""``dorylus plan-memory``: predicts what a training run takes, by kind, before it begins."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus.cli import flags
from dorylus.cli.flags import GRAPH_HELP, Root, RowNormalise, graph_section, model_section, spell_flag, with_settings
from dorylus.cli.flags import widths as widths_of
from dorylus.cli.train import DEFAULT_MODEL
from dorylus.errors import spelled
from dorylus.report import units
from dorylus.runs import RunSpec

if TYPE_CHECKING:
    from dorylus.memory import MemoryPlan, Scratch


def plan_memory(
    graph: Annotated[str, typer.Argument(metavar="GRAPH", help=GRAPH_HELP, show_default=False)],
    root: Root = None,
    row_normalise: RowNormalise = None,
    model: flags.ModelName = None,
    hidden: flags.Hidden = None,
    num_layers: flags.NumLayers = None,
    dropout: flags.Dropout = None,
    heads: flags.Heads = None,
    model_option: flags.ModelOption = None,
    *,
    settings: dict[str, Any],
) -> None:
    """Predict what training takes, in memory and in files, and whether that fits."""
    named = model_section(
        model, model_option or [], hidden=widths_of(hidden), num_layers=num_layers, dropout=dropout, heads=heads
    )
    spec = RunSpec(graph_section(graph, root, row_normalise), {"name": DEFAULT_MODEL, **named})
    recipe = spec.build_model()

    import dorylus

    plan = dorylus.plan_memory(spec.load_graph(), recipe, **settings)
    _show(plan)
    if plan.refusal:
        typer.echo(spelled(plan.refusal, spell_flag))
        raise typer.Exit(1)


plan_memory = with_settings(plan_memory, only=("memory", "scratch_dir", "intervals", "threads", "precision"))


def _show(plan: "MemoryPlan") -> None:
    from rich.console import Console
    from rich.table import Table

    limits = plan.reported
    table = Table(box=None, pad_edge=False)
    for name in ("kind", "in memory", "in files"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    known = limits.peak - limits.figures.peak
    table.add_row("the process as it is", units.size(known), "")
    for kind in sorted(limits.figures.resident | limits.figures.on_disk):
        table.add_row(kind, units.size(limits.figures.resident[kind]), units.size(limits.figures.on_disk[kind]))
    table.add_row("together", units.size(limits.peak), units.size(limits.figures.on_disk.total()))
    console = Console()
    console.print(table)
    if plan.scratch is not None:
        console.print(_disk(plan.scratch), markup=False, highlight=False, soft_wrap=True)
    moved = (
        f"each epoch reads {units.size(limits.figures.read)} of files and writes {units.size(limits.figures.written)}"
    )
    console.print(f"{plan.verdict}: limit {units.size(plan.limit)}, {moved}", highlight=False, soft_wrap=True)


def _disk(scratch: "Scratch") -> str:
    free = "which is not there" if scratch.free is None else f"where {units.size(scratch.free)} are free"
    short = " (too little)" if scratch.free is not None and scratch.free < scratch.needed else ""
    return f"scratch: {units.size(scratch.needed)} in {scratch.folder}, {free}{short}"
