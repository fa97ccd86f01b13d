"""The table of commands. Each imports what it needs when it is called, so that ``dorylus --help`` is fast."""

from collections.abc import Callable, Mapping
from typing import Annotated

import typer

from dorylus.cli.doctor import doctor
from dorylus.cli.flags import HelpfulCommand, HelpfulGroup, examples
from dorylus.cli.functions import functions
from dorylus.cli.info import info
from dorylus.cli.ingest import convert, ingest
from dorylus.cli.partition import partition
from dorylus.cli.predict import predict
from dorylus.cli.report import compare, live, report, runs, timeline
from dorylus.cli.train import plan_memory, resume, train

COMMANDS: Mapping[
    str, Mapping[Callable[..., None], tuple[str, ...]]
] = {  # in the order of help, each with examples of its use
    "Train": {
        train: (
            "dorylus train cora --model gcn --hidden 16 --row-normalise",
            "dorylus train communities:num_vertices=200000 --model gat --heads 8 --epochs 50 --patience 5",
            "dorylus train my-graph --memory 8GiB --run-dir runs/mine --log-to tensorboard",
            "dorylus train --config runs/mine/run.toml --lr 0.005",
        ),
        resume: ("dorylus resume runs/mine", "dorylus resume runs/mine --servers 8 --budget-usd 5"),
        plan_memory: ("dorylus plan-memory my-graph --model gat --hidden 64 --memory 16GiB",),
    },
    "Use and compare runs": {
        predict: (
            "dorylus predict runs/mine --what classes --output classes.npy",
            "dorylus predict runs/mine --what embeddings --layer 0 --output rows.parquet",
        ),
        runs: ("dorylus runs", "dorylus runs /shared/runs --json"),
        compare: ("dorylus compare runs/cora-gcn runs/cora-gat",),
        report: ("dorylus report runs/mine", "dorylus report runs/cora-gcn runs/cora-gat --out both.html"),
        live: ("dorylus live runs/mine",),
        timeline: (
            "dorylus timeline runs/mine --epoch 2 --out epoch2.svg",
            "dorylus timeline runs/mine --format perfetto",
        ),
    },
    "Graphs": {
        info: ("dorylus info cora", "dorylus info my-graph --verify"),
        convert: ("dorylus convert cora my-graph --row-normalise",),
        ingest: (
            "dorylus ingest edges.tsv.gz my-graph",
            "dorylus ingest edges/ my-graph --memory 4GiB --features x.npy --labels y.npy --train train.npy",
        ),
        partition: (
            "dorylus partition my-graph --servers 8 --method all",
            "dorylus partition my-graph --servers 8 --out my-shards",
        ),
    },
    "Machines": {doctor: ("dorylus doctor", "dorylus doctor --cluster ray --store /shared/my-graph")},
}

app = typer.Typer(
    cls=HelpfulGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
    help="Train graph neural networks on the whole graph.",
    epilog=examples("dorylus train cora", "dorylus COMMAND --help"),
)
for panel, commands in COMMANDS.items():
    for command, uses in commands.items():
        app.command(cls=HelpfulCommand, rich_help_panel=panel, epilog=examples(*uses))(command)
app.add_typer(functions, name="functions", rich_help_panel="Machines")


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False) -> None:
    """Train graph neural networks on the whole graph."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(version_of("dorylus"))
        raise typer.Exit
