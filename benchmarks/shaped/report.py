"""Tables of these benchmarks: on the terminal, and in the results as Markdown and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import table
from benchmarks.shaped.contender import Contender

USED_HEADINGS = ("invocations", "MB to, from", "billed ms")


def used(contender: Contender) -> tuple[str, str, str]:
    """The usage of functions in an epoch: invocations, megabytes each way, milliseconds billed."""
    if contender.functions is None:
        return "-", "-", "-"
    return (
        f"{contender.each_epoch(lambda turn: turn.used.invocations):.0f}",
        f"{contender.each_epoch(lambda turn: turn.used.bytes_in) / 1e6:.1f}, "
        f"{contender.each_epoch(lambda turn: turn.used.bytes_out) / 1e6:.1f}",
        f"{contender.each_epoch(lambda turn: turn.used.billed_ms):.0f}",
    )


def busy_cores(contender: Contender) -> str:
    """How many cores the trainer kept busy on average, and functions with their relay."""
    wall_s = contender.each_epoch(lambda turn: turn.epoch_s * turn.epochs)
    spent = (contender.each_epoch(lambda turn, name=name: turn.cores[name]) for name in ("trainer_s", "functions_s"))
    return ", ".join(f"{seconds / wall_s:.2f}" for seconds in spent)


class Report:
    """One or several tables of a run, with sentences about them."""

    def __init__(self, name: str, folder: Path) -> None:
        self._name, self._folder = name, folder
        self._command = f"python -m benchmarks.{name} {' '.join(sys.argv[1:])}".strip()
        self._text = [f"`{self._command}`"]
        self._figures: list[Mapping[str, Any]] = []

    def add(
        self,
        title: str,
        headings: Sequence[str],
        rows: Sequence[Sequence[str]],
        sentences: Sequence[str],
        contenders: Sequence[Contender],
        **more: Any,
    ) -> None:
        """Show a table, with sentences below it, and keep it for the files."""
        table.show(headings, rows, title)
        print(*sentences, sep="\n", flush=True)
        self._text += [title, table.markdown(headings, rows).strip(), *sentences]
        self._figures.append({"title": title, **more, "contenders": [each.to_dict() for each in contenders]})

    def write(self) -> None:
        """Write the files to the results."""
        self._folder.mkdir(parents=True, exist_ok=True)
        content = {"command": self._command, "machine": table.machine(), "tables": self._figures}
        (self._folder / f"{self._name}.json").write_text(json.dumps(content, indent=1) + "\n")
        (self._folder / f"{self._name}.md").write_text("\n\n".join(self._text) + "\n")
