"""``dorylus resume``: continues a run that was stopped, from its last checkpoint."""

from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from dorylus.cli.flags import with_settings
from dorylus.cli.interrupt import resume_hint
from dorylus.config import RECUT
from dorylus.runs import RunFolder, RunLock


@partial(with_settings, only=RECUT)
def resume(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="The folder of the run.", show_default=False)],
    quiet: Annotated[bool, typer.Option("--quiet", help="Show the closing table only.")] = False,
    *,
    settings: dict[str, Any],
) -> None:
    """Continue a run that was stopped, to the same result as if it had not been.

    The flags change how its work is divided and where it runs: the result stays the same to rounding.
    """
    RunFolder.open(run_dir, settings)
    RunLock(run_dir).release()  # a run that another process trains is refused before torch is loaded

    import dorylus
    from dorylus.report import TerminalProgress

    with closing(TerminalProgress(progress=not quiet)) as progress, resume_hint(str(run_dir)):
        progress.wait(f"loading the graph and the last checkpoint of {run_dir}")
        dorylus.resume(run_dir, sinks=[progress], progress=False, **settings)
