"""The seam between a run and whoever watches it: a sink takes records. The shipped twin keeps them in a list."""

from collections.abc import Mapping
from typing import Any, Protocol

Record = Mapping[str, Any]


class Sink(Protocol):
    """Where records go: a file, a terminal, a list."""

    def write(self, record: Record) -> None:
        """Takes one record, which nobody changes afterwards."""

    def close(self) -> None:
        """Lets go of files and terminals; called once, after the last record."""


class MemorySink:
    """Keeps every record in ``records``: the twin for tests and notebooks."""

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.closed = False

    def write(self, record: Record) -> None:
        """Keeps a copy."""
        self.records.append(dict(record))

    def close(self) -> None:
        """Remembers that it was closed."""
        self.closed = True

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        """The records of one kind, in order."""
        return [record for record in self.records if record["kind"] == kind]
