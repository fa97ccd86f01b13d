"""The output after Ctrl-C, SIGTERM and SIGHUP: how to continue a run that was saved, or that nothing was written."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer

from dorylus.errors import Terminated


@contextmanager
def resume_hint(run_dir: str | None) -> Iterator[None]:
    """Turns a signal during a run into a line on stderr and its exit code."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as end:
        saved = run_dir is not None and (Path(run_dir) / "run.toml").exists()
        how = f"continue with: dorylus resume {run_dir}" if saved else "nothing was saved"
        raise ended(end, f"; {how}") from None


@contextmanager
def say_nothing_written() -> Iterator[None]:
    """Turns a signal while a file or store is written, which appears whole or not at all, into a line and exit code."""
    try:
        yield
    except (KeyboardInterrupt, Terminated) as end:
        raise ended(end, ": nothing was written") from None


def ended(end: KeyboardInterrupt | Terminated, what: str = "") -> typer.Exit:
    """Prints what a signal ended, also on a terminal that may be closed; returns the exit code of the signal."""
    with suppress(OSError):
        typer.echo(f"{reason(end)}{what}", err=True)
    discard_unwritable_output()
    return typer.Exit(exit_code(end))


def discard_unwritable_output() -> None:
    """Sends output for a closed terminal or pipe to /dev/null.

    The interpreter flushes stdout as it exits, and would replace the exit code by 120 where that fails.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, stream.fileno())
            os.close(nothing)


def reason(end: KeyboardInterrupt | Terminated) -> str:
    """The reason for the end of a command: "interrupted", or the signal."""
    return f"stopped by {end.signal.name}" if isinstance(end, Terminated) else "interrupted"


def exit_code(end: KeyboardInterrupt | Terminated) -> int:
    """130 for Ctrl-C, 143 for SIGTERM, 129 for SIGHUP."""
    return 128 + end.signal if isinstance(end, Terminated) else 130
