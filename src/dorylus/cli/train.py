"""``dorylus train``: trains a model on a graph, shows its progress, and leaves a run folder."""

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from dorylus.cli import flags
from dorylus.cli.flags import (
    GRAPH_HELP,
    Root,
    RowNormalise,
    graph_options,
    graph_section,
    model_section,
    short_name,
    with_settings,
)
from dorylus.cli.flags import widths as widths_of
from dorylus.cli.interrupt import resume_hint
from dorylus.config import RunConfig
from dorylus.errors import ConfigError, settings_of_file
from dorylus.runs import RunSpec, check_free, read_run_toml

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
    config: Annotated[Path | None, typer.Option(help="A run.toml; flags override it.", metavar="FILE")] = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Folder for the run. [runs/GRAPH-MODEL-TIME]", metavar="FOLDER")
    ] = None,
    no_download: Annotated[
        bool, typer.Option("--no-download", help="Refuse a data set whose files are not there, rather than fetch them.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show the closing table only.")] = False,
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
        run(spec, checked, download=not no_download, quiet=quiet)


def run(spec: RunSpec, config: RunConfig, *, download: bool, quiet: bool) -> None:
    """Makes graph and model, and trains; nothing is written before both are known to be good."""
    recipe = spec.build_model()

    import dorylus
    from dorylus.report import TerminalProgress

    with closing(TerminalProgress(progress=not quiet)) as progress, resume_hint(config.run_dir):
        progress.wait(f"loading {spec.graph['source']}")
        graph = spec.load_graph(download=download)
        progress.wait("laying out the graph")
        dorylus.train(graph, recipe, sinks=[progress], spec=spec, progress=False, **config.to_dict())


def default_run_dir(spec: RunSpec, now: datetime) -> Path:
    """A folder named for graph, model and time that is not there yet."""
    name = f"{short_name(str(spec.graph['source']))}-{spec.model['name']}-{now:%Y%m%d-%H%M%S}"
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
    if "source" not in spec.graph:
        raise ConfigError(
            "no graph is given: name one (dorylus train cora), or write source = ... into the section [graph] of the "
            "file given by --config."
        )
    return {**spec.graph, **given}


def _model_of(spec: RunSpec, given: dict[str, Any]) -> dict[str, Any]:
    """The file's model with the flags' options; those of the file are for the model it names, not for another."""
    other = "name" in given and given["name"] != spec.model.get("name", DEFAULT_MODEL)
    return given if other else {**spec.model, **given}
