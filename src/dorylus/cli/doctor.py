"""``dorylus doctor``: whether this machine, or a cluster, is fit to train, line by line."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from dorylus.errors import ConfigError, unknown_name

if TYPE_CHECKING:
    from dorylus.cli.checks import Check

CLUSTERS = ("local", "ray")
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    cluster: Annotated[
        str, typer.Option(help="local: this machine; ray: all nodes of a Ray cluster.", metavar="NAME")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="ray: the address of the cluster. [this machine's]", metavar="HOST:PORT")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="ray: cores a graph server is given. [this machine's]", min=1, metavar="N")
    ] = None,
    store: Annotated[
        str | None, typer.Option(help="ray: a graph's store that all nodes must read.", metavar="FOLDER")
    ] = None,
) -> None:
    """Check the installation and the machine, or a cluster; exit code 1 when something is broken."""
    if cluster not in CLUSTERS:
        raise ConfigError(unknown_name("cluster", cluster, CLUSTERS))
    if cluster == "ray":
        raise typer.Exit(show(ray_checks(address, threads, store)))
    for name, value in {"address": address, "threads": threads, "store": store}.items():
        if value is not None:
            raise ConfigError(f"--{name} is about a cluster: add --cluster ray.")
    from dorylus.cli.checks import CHECKS

    raise typer.Exit(report(CHECKS))


def ray_checks(address: str | None, threads: int | None, store: str | None) -> "list[Check]":
    """What is found about a Ray cluster; takes as long as its nodes need to answer, and no longer than it may."""
    from importlib.util import find_spec

    from dorylus.cli.checks import Check
    from dorylus.cli.cluster.judging import judged
    from dorylus.cli.cluster.taking import taken
    from dorylus.graph.places import full_address

    if find_spec("ray") is None:
        return [Check("ray", "fail", "not installed", 'pip install "dorylus[ray]", here and on every node')]
    return judged(taken(address or "", full_address(store) if store else ""), threads)


def report(checks: Sequence[Callable[[], "Check"]]) -> int:
    """Carries the checks out, printing a line for each as it is done; the exit code."""
    from dorylus.cli.checks import carried_out

    return show(carried_out(each) for each in checks)


def show(checks: Iterable["Check"]) -> int:
    """Prints a line for each; the exit code."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    failed = 0
    for done in checks:
        failed += done.status == "fail"
        console.print(f"[{STYLES[done.status]}]{done.status:4}[/]  {done.name:10} ", end="")
        console.print(done.found + (f" – {done.cure}" if done.cure else ""), markup=False)
    console.print(f"{failed} failed" if failed else "fit to train", style="bold red" if failed else "green")
    return 1 if failed else 0
