"""Readers of the run log: the terminal, tables, timelines. Nothing here touches a server or a tensor."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.report import units
    from dorylus.report.terminal import TerminalProgress, shown_progress
    from dorylus.report.timeline_svg import timeline

__all__ = ["TerminalProgress", "shown_progress", "timeline", "units"]

__getattr__ = lazy_names(
    __name__,
    {
        ".": "units",
        "terminal": "TerminalProgress shown_progress",
        "timeline_svg": "timeline",
    },
)
