"""Readers of the run log: the terminal, tables, timelines. Nothing here touches a server or a tensor."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.report import units
    from dorylus.report.run_table import compare_runs, find_runs, list_rows
    from dorylus.report.terminal import TerminalProgress, shown_progress
    from dorylus.report.timeline_svg import timeline

__all__ = ["TerminalProgress", "compare_runs", "find_runs", "list_rows", "shown_progress", "timeline", "units"]

__getattr__ = lazy_names(
    __name__,
    {
        ".": "units",
        "run_table": "compare_runs find_runs list_rows",
        "terminal": "TerminalProgress shown_progress",
        "timeline_svg": "timeline",
    },
)
