"""What Ctrl-C says: that the run was saved, and how to go on with it."""

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
