"""Readers of the run log: the terminal, tables, timelines, pages. Nothing here touches a server or a tensor."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.report import units
    from dorylus.report.live import POLL_S, LiveRun, LiveServer
    from dorylus.report.page import RunFigures, report_page
    from dorylus.report.terminal import TerminalProgress
    from dorylus.report.timeline import perfetto_timeline, svg_timeline

__all__ = [
    "POLL_S",
    "LiveRun",
    "LiveServer",
    "RunFigures",
    "TerminalProgress",
    "perfetto_timeline",
    "report_page",
    "svg_timeline",
    "units",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".": "units",
        "live": "POLL_S LiveRun LiveServer",
        "page": "RunFigures report_page",
        "terminal": "TerminalProgress",
        "timeline": "perfetto_timeline svg_timeline",
    },
)
