"""``dorylus train`` trains a model on a graph and leaves a run folder; ``dorylus resume`` continues it.

``dorylus plan-memory`` predicts what training takes, by kind, before it begins.
"""

from contextlib import closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dorylus import units
from dorylus.cli import flags
from dorylus.cli.console import resume_hint
from dorylus.cli.flags import (
    GRAPH_HELP,
    Root,
    RowNormalise,
    graph_options,
    graph_section,
    model_section,
    short_name,
    spell_flag,
    with_settings,
)
from dorylus.cli.flags import widths as widths_of
from dorylus.cli.report import live_page_of
from dorylus.config import RECUT, RunConfig
from dorylus.errors import ConfigError, settings_of_file, spelled
from dorylus.runs import RunFolder, RunLock, RunSpec, check_free, check_loggers, read_run_toml
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from dorylus.memory import MemoryPlan, Scratch

DEFAULT_MODEL = "gcn"


@with_settings
def train(
    graph: Annotated[str | None, typer.Argument(metavar="GRAPH", help=GRAPH_HELP, show_default=False)] = None,
    root: Root = None,
    row_normalise: RowNormalise = None,
    model: flags.ModelName = None,
    hidden: flags.Hidden = None,
    num_layers: flags.NumLayers = None,
    dropout: flags.Dropout = None,
    heads: flags.Heads = None,
    model_option: flags.ModelOption = None,
    config: Annotated[
        Path | None,
        typer.Option(help="A run.toml; flags override it.", metavar="FILE", rich_help_panel=SettingGroup.DATA),
    ] = None,
    run_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the run. [runs/GRAPH-MODEL-TIME]", metavar="FOLDER", rich_help_panel=SettingGroup.OUTPUT
        ),
    ] = None,
    no_download: Annotated[
        bool,
        typer.Option(
            "--no-download",
            help="Refuse a data set whose files are not there, rather than fetch them.",
            rich_help_panel=SettingGroup.DATA,
        ),
    ] = False,
    predict_out: Annotated[
        Path | None,
        typer.Option(
            help="Also write ids, classes and probabilities: .parquet or .csv.",
            metavar="FILE",
            rich_help_panel=SettingGroup.OUTPUT,
        ),
    ] = None,
    quiet: flags.Quiet = False,
    live: flags.Live = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Train a model on a graph."""
    spec, written = read_run_toml(config) if config else (RunSpec(), {})
    given_model = model_section(
        model, model_option or [], hidden=widths_of(hidden), num_layers=num_layers, dropout=dropout, heads=heads
    )
    given_graph = graph_options(root, row_normalise)
    in_file = spec.graph.keys() - given_graph.keys() | spec.model.keys() - given_model.keys()
    in_file |= written.keys() - settings.keys() - {"run_dir"}
    spec = RunSpec(_graph_of(spec, graph, given_graph), {"name": DEFAULT_MODEL, **_model_of(spec, given_model)})
    folder = run_dir or default_run_dir(spec, datetime.now())
    with settings_of_file(config or "", in_file):
        checked = RunConfig.of(**{**written, **settings, "run_dir": str(folder)})
        check_free(folder)
        check_loggers(checked.log_to)
        if predict_out is not None:
            from dorylus.inference import check_target

            check_target(predict_out, "table")
        run(spec, checked, download=not no_download, quiet=quiet, live=live, predict_out=predict_out)


def run(
    spec: RunSpec,
    config: RunConfig,
    *,
    download: bool,
    quiet: bool,
    live: bool = False,
    predict_out: Path | None = None,
) -> None:
    """Makes graph and model, and trains; nothing is written before both are known to be good."""
    recipe = spec.build_model()

    import dorylus
    from dorylus.report import TerminalProgress

    with closing(TerminalProgress(progress=not quiet)) as progress, resume_hint(config.run_dir):
        progress.wait(f"loading {spec.source}")
        graph = spec.load_graph(download=download)
        progress.wait("laying out the graph")
        settings = config.to_dict()
        with live_page_of(Path(str(config.run_dir)), progress.console, enabled=live):
            result = dorylus.train(graph, recipe, sinks=[progress], spec=spec, progress=False, **settings)
    if predict_out is not None:
        written = result.predict("table", out=predict_out)
        typer.echo(f"classes of {written.num_vertices:,} vertices in {written.path}")


@partial(with_settings, only=RECUT)
def resume(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of the run.", show_default=False)],
    graph: Annotated[
        str | None,
        typer.Option(
            help="Where the run's graph is now, if it has moved; run.toml keeps it.",
            metavar="GRAPH",
            show_default=False,
            rich_help_panel=SettingGroup.DATA,
        ),
    ] = None,
    root: Root = None,
    quiet: flags.Quiet = False,
    live: flags.Live = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Continue a run that was stopped, to the same result as if it had not been.

    The flags change how its work is divided and where it runs: the result stays the same to rounding.
    """
    folder = RunFolder.open(run_dir, settings)
    check_loggers(folder.config.log_to)
    RunLock(run_dir).release()  # a run that another process trains is refused before torch is loaded

    import dorylus
    from dorylus.report import TerminalProgress

    with closing(TerminalProgress(progress=not quiet)) as progress, resume_hint(str(run_dir)):
        progress.wait(f"loading the graph and the last checkpoint of {run_dir}")
        moved: dict[str, Any] = {}
        if graph is not None:
            spec = folder.spec.with_graph(graph_section(graph, root, None))
            moved["graph"] = spec.load_graph(download=False)
        with live_page_of(run_dir, progress.console, enabled=live):
            dorylus.resume(run_dir, sinks=[progress], progress=False, **moved, **settings)


def default_run_dir(spec: RunSpec, now: datetime) -> Path:
    """A folder named for graph, model and time that is not there yet."""
    name = f"{short_name(spec.source)}-{spec.model['name']}-{now:%Y%m%d-%H%M%S}"
    candidates = [Path("runs", name), *(Path("runs", f"{name}-{number}") for number in range(2, 100))]
    return next((path for path in candidates if not path.exists()), candidates[-1])


def _graph_of(spec: RunSpec, source: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """The file's graph with the flags' options; another graph leaves root and reader's options of the file's behind."""
    if source is not None:
        named = graph_section(source, None, None)
        other = named["source"] != spec.graph.get("source")
        # Row normalisation applies to any graph, so another graph keeps the file's.
        kept = {key: value for key, value in spec.graph.items() if key == "row_normalise" or not other}
        return {**named, **kept, **given}
    if spec.graph.keys().isdisjoint({"source", "tables"}):
        raise ConfigError(
            "no graph is given: name one (dorylus train cora), or write source = ... into the section [graph] of the "
            "file given by --config."
        )
    return {**spec.graph, **given}


def _model_of(spec: RunSpec, given: dict[str, Any]) -> dict[str, Any]:
    """The file's model with the flags' options; those of the file are for the model it names, not for another."""
    other = "name" in given and given["name"] != spec.model.get("name", DEFAULT_MODEL)
    return given if other else {**spec.model, **given}


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
    _show_plan(plan)
    if plan.refusal:
        typer.echo(spelled(plan.refusal, spell_flag))
        raise typer.Exit(1)


plan_memory = with_settings(plan_memory, only=("memory", "scratch_dir", "intervals", "threads", "precision"))


def _show_plan(plan: "MemoryPlan") -> None:
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
        console.print(_scratch_line(plan.scratch), markup=False, highlight=False, soft_wrap=True)
    moved = (
        f"each epoch reads {units.size(limits.figures.read)} of files and writes {units.size(limits.figures.written)}"
    )
    console.print(f"{plan.verdict}: limit {units.size(plan.limit)}, {moved}", highlight=False, soft_wrap=True)


def _scratch_line(scratch: "Scratch") -> str:
    free = "which is not there" if scratch.free is None else f"where {units.size(scratch.free)} are free"
    short = " (too little)" if scratch.free is not None and scratch.free < scratch.needed else ""
    return f"scratch: {units.size(scratch.needed)} in {scratch.folder}, {free}{short}"
