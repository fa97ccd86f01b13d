"""Readers of the run log: the terminal, tables, timelines, pages. Nothing here touches a server or a tensor."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.report.live import LiveRun, LiveServer, pause_s
    from dorylus.report.page import RunFigures, report_page
    from dorylus.report.run_table import compare_runs, find_runs, list_rows
    from dorylus.report.terminal import TerminalProgress, shown_progress
    from dorylus.report.timelines import perfetto_timeline, svg_timeline

__all__ = [
    "LiveRun",
    "LiveServer",
    "RunFigures",
    "TerminalProgress",
    "compare_runs",
    "find_runs",
    "list_rows",
    "pause_s",
    "perfetto_timeline",
    "report_page",
    "shown_progress",
    "svg_timeline",
]

__getattr__ = lazy_names(
    __name__,
    {
        "live": "LiveRun LiveServer pause_s",
        "page": "RunFigures report_page",
        "run_table": "compare_runs find_runs list_rows",
        "terminal": "TerminalProgress shown_progress",
        "timelines": "perfetto_timeline svg_timeline",
    },
)
