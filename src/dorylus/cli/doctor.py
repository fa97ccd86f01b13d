"""``dorylus doctor``: whether this machine and this installation are fit to train, line by line."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from dorylus.cli.checks import Check

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor() -> None:
    """Check the installation and the machine; exit code 1 when something is broken."""
    from dorylus.cli.checks import CHECKS

    raise typer.Exit(report(CHECKS))


def report(checks: Sequence[Callable[[], "Check"]]) -> int:
    """Carries the checks out, printing a line for each as it is done; the exit code."""
    from rich.console import Console

    from dorylus.cli.checks import carried_out

    console = Console(soft_wrap=True, highlight=False)
    failed = 0
    for each in checks:
        done = carried_out(each)
        failed += done.status == "fail"
        console.print(f"[{STYLES[done.status]}]{done.status:4}[/]  {done.name:10} ", end="")
        console.print(done.found + (f" – {done.cure}" if done.cure else ""), markup=False)
    console.print(f"{failed} failed" if failed else "fit to train", style="bold red" if failed else "green")
    return 1 if failed else 0
