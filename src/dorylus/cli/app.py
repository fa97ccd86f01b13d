"""The table of commands. Each imports what it needs when it is called, so that ``dorylus --help`` answers at once."""

from typing import Annotated

import typer

from dorylus.cli.convert import convert
from dorylus.cli.doctor import doctor
from dorylus.cli.functions import functions
from dorylus.cli.info import info
from dorylus.cli.ingest import ingest
from dorylus.cli.partition import partition
from dorylus.cli.plan_memory import plan_memory
from dorylus.cli.predict import predict
from dorylus.cli.resume import resume
from dorylus.cli.runs import compare, runs
from dorylus.cli.timeline import timeline
from dorylus.cli.train import train

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train graph neural networks on the whole graph.",
)
for command in (train, resume, predict, runs, compare, timeline, info, convert, ingest, partition, plan_memory, doctor):
    app.command()(command)
app.add_typer(functions, name="functions")


@app.callback(invoke_without_command=True)
def options(version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False) -> None:
    """Train graph neural networks on the whole graph."""
    if version:
        from importlib.metadata import version as version_of

        typer.echo(version_of("dorylus"))
        raise typer.Exit
