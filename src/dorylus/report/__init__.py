"""Readers of the run log: the terminal, tables, timelines. Nothing here touches a server or a tensor."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.report import units
    from dorylus.report.terminal import TerminalProgress
    from dorylus.report.timeline import timeline

__all__ = ["TerminalProgress", "timeline", "units"]

__getattr__ = lazy_names(
    __name__,
    {
        ".": "units",
        "terminal": "TerminalProgress",
        "timeline": "timeline",
    },
)
