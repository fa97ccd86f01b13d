"""What Ctrl-C says: that a run was saved, and how to go on with it; or that nothing was written."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer


@contextmanager
def tell_how_to_go_on(run_dir: str | None) -> Iterator[None]:
    """Turns Ctrl-C during a run into a line on stderr and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        saved = run_dir is not None and (Path(run_dir) / "run.toml").exists()
        how = f"go on with: dorylus resume {run_dir}" if saved else "nothing was saved"
        typer.echo(f"interrupted; {how}", err=True)
        raise typer.Exit(130) from None


@contextmanager
def tell_nothing_written() -> Iterator[None]:
    """Turns Ctrl-C while a store is written, which appears whole or not at all, into a line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("interrupted: nothing was written", err=True)
        raise typer.Exit(130) from None
