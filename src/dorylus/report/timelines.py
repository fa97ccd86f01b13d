"""Timelines of traced epochs: which task ran when, for which server, on which thread.

``svg_timeline`` draws one lane a server and thread, a box a task. The file stands alone: no script, no font, no link;
it follows the light or dark mode of the viewer, and every box says what it is when pointed at. ``perfetto_timeline``
gives the same tasks, and all epochs, in the Trace Event Format, which ui.perfetto.dev and chrome://tracing open.
"""

import html
import json
from collections.abc import Collection, Iterable, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from dorylus import units
from dorylus.errors import ConfigError, given
from dorylus.report.closing_table import cluster
from dorylus.report.summary import TASK_KINDS, Summary, summarise, task_name
from dorylus.runs import Record

WIDTH, LEFT, RIGHT, TOP = 1000, 118, 14, 62
LANE, BOX, BETWEEN = 17, 15, 9  # the height of a lane, of a box in it, and the gap between two servers
SHADES = (1.0, 0.7, 0.42)  # of epochs, in turn
LETTER = 6.0  # the width of a digit in a box
SLACK_S = 0.0005  # by how much the clocks of two records may differ

# A colour a family, lighter forward than backward: seen on white and on black.
COLOURS = {
    "GA": "#5b9bd5", "∇GA": "#2f6ea8", "AV": "#f0a04b", "∇AV": "#c8702a", "AV+loss+∇AV": "#d9534f",
    "SC": "#6fbf73", "∇SC": "#3d8b45", "AE": "#b58bd0", "∇AE": "#8257a6", "WU": "#8a8f98",
}  # fmt: skip
CLASSES = {kind: f"k{number}" for number, kind in enumerate(TASK_KINDS)}

STYLE = """\
text{font:11px system-ui,sans-serif}text,.ink{fill:#24292f}.name{font-weight:600}.faint{fill:#656d76}
.box{fill:#fff;font-size:9px;text-anchor:middle;pointer-events:none}.pale{fill:#24292f}
.line{stroke:#8c959f;stroke-width:.5;opacity:.5}.lane{fill:#8c959f;opacity:.1}.other{fill:#8a8f98}
"""
DARK = "@media(prefers-color-scheme:dark){text,.ink{fill:#e6edf3}.faint{fill:#9198a1}.box{fill:#fff}}"


class Box(NamedTuple):
    """One task that was traced; times are seconds of the run."""

    server: int
    thread: int
    start_s: float
    end_s: float
    kind: str
    interval: int
    epoch: int


def svg_timeline(records: Iterable[Record], epochs: Collection[int] | None = None) -> str:
    """The first traced epochs of a run's records, those in a row, or chosen ones, as the text of an SVG file.

    An epoch's tasks are those that belong to it, whenever they ran: asynchronous epochs overlap.
    """
    log = list(records)
    boxes = _chosen(log if epochs else _first_in_a_row(log), epochs)
    scale = _TimeScale(min(box.start_s for box in boxes), max(box.end_s for box in boxes))
    shades = {epoch: k % len(SHADES) for k, epoch in enumerate(sorted({box.epoch for box in boxes}))}
    lanes, height = _lanes(boxes, scale, shades)
    parts = [
        *_head(summarise(log), height + 26, list(shades)),
        *_legend(boxes, shades),
        *_axis(scale, height),
        *lanes,
        "</svg>\n",
    ]
    return "\n".join(parts)


def _first_in_a_row(log: Sequence[Record]) -> list[Record]:
    """The records without the tasks of later epochs, which are samples with long gaps between them."""
    first = next((record["epoch"] for record in log if record["kind"] == "spans"), 0)
    kept: list[Record] = []
    for record in log:
        if record["kind"] != "spans" or record["epoch"] == first:
            kept.append(record)
            first += record["kind"] == "spans"
    return kept


def boxes_of(record: Record) -> list[Box]:
    """The tasks of a record, whose times count from its first task, on the clock of the run: it was written last."""
    zero = record["t"] - max((row[5] for row in record["spans"]), default=0.0)
    return [
        Box(server, thread, zero + start, zero + end, kind, interval, epoch)
        for kind, _, interval, thread, start, end, server, epoch in record["spans"]
    ]


def _escape(text: str) -> str:
    """A text as XML: names may hold anything, but a file with a control character in it is no XML."""
    return html.escape("".join(each if each.isprintable() else "�" for each in text))


def _chosen(log: Sequence[Record], epochs: Collection[int] | None) -> list[Box]:
    """The tasks of the chosen epochs, by server, thread and time."""
    boxes = sorted(box for record in log if record["kind"] == "spans" for box in boxes_of(record))
    if not boxes:
        raise ConfigError(
            f"the run log holds no tasks of any epoch: train with {given('trace_epochs', 1)} or more to draw some."
        )
    traced = sorted({box.epoch for box in boxes})
    for epoch in epochs or ():
        if epoch not in traced:
            raise ConfigError(
                f"the run log holds no tasks of epoch {epoch}, but of {', '.join(map(str, traced))}: choose among "
                f"those, or train with a larger {given('trace_epochs')}."
            )
    return [box for box in boxes if not epochs or box.epoch in epochs]


class _TimeScale:
    """Where a moment is drawn."""

    def __init__(self, start_s: float, end_s: float) -> None:
        self.start_s, self.span_s = start_s, max(end_s - start_s, 1e-6)

    def x(self, moment_s: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (moment_s - self.start_s) / self.span_s

    def ticks(self) -> list[float]:
        """Round numbers of seconds since the start, about eight of them."""
        rough = self.span_s / 8
        power = 10.0 ** (len(f"{int(rough * 1e9)}") - 10)
        step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough)
        return [k * step for k in range(int(self.span_s / step) + 1)]


def _lanes(boxes: Sequence[Box], scale: _TimeScale, shades: dict[int, int]) -> tuple[list[str], int]:
    """The lanes from top to bottom, and where they end."""
    parts, y = [], TOP
    for server, its in groupby(boxes, key=lambda box: box.server):
        parts.append(f'<text class="name" x="8" y="{y + 11}">server {server}</text>')
        for thread, own in groupby(its, key=lambda box: box.thread):
            rows = rows_of(list(own))
            parts.append(f'<text class="faint" x="{LEFT - 8}" y="{y + 11}" text-anchor="end">thread {thread}</text>')
            for row in rows:
                parts += _lane(row, y, scale, shades)
                y += LANE
        y += BETWEEN
    return parts, y - BETWEEN


def rows_of(boxes: Sequence[Box]) -> list[list[Box]]:
    """The boxes of a thread in as few rows as tasks overlap: one, unless a pool outside this process runs several."""
    rows: list[list[Box]] = []
    for box in boxes:
        free = next((row for row in rows if row[-1].end_s <= box.start_s + SLACK_S), None)
        if free is None:
            rows.append(free := [])
        free.append(box)
    return rows


def _lane(boxes: Sequence[Box], y: int, scale: _TimeScale, shades: dict[int, int]) -> list[str]:
    lane = f'<rect class="lane" x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{BOX}"/>'
    parts = [f'<g transform="translate(0 {y})">'] + [_box(box, scale, shades[box.epoch]) for box in boxes]
    return [lane, *parts, "</g>"]


def _box(box: Box, scale: _TimeScale, shade: int) -> str:
    left, right = scale.x(box.start_s), scale.x(box.end_s)
    width = max(right - left, 0.6)  # what took next to no time is seen too
    took = units.seconds(box.end_s - box.start_s)
    title = _escape(f"{box.kind} · interval {box.interval} · epoch {box.epoch} · {took}")
    outline = f"M{left:.1f} 0h{width:.1f}v{BOX}h-{width:.1f}z"
    drawn = f'<path class="{CLASSES.get(box.kind, "other")} e{shade}" d="{outline}"><title>{title}</title></path>'
    label = str(box.interval)
    if width < LETTER * len(label) + 3:
        return drawn
    pale = " pale" if shade == len(SHADES) - 1 else ""
    return drawn + f'<text class="box{pale}" x="{left + width / 2:.1f}" y="{BOX - 4}">{label}</text>'


def _head(summary: Summary, height: int, epochs: Sequence[int]) -> list[str]:
    title = _escape(_title(summary, epochs))
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{title}">',
        f"<style>{_style()}</style>",
        f'<text class="name" x="8" y="18">{title}</text>',
    ]


def _style() -> str:
    kinds = [f".{CLASSES[kind]}{{fill:{colour}}}" for kind, colour in COLOURS.items()]
    shades = [f".e{number}{{opacity:{shade:g}}}" for number, shade in enumerate(SHADES)]
    return STYLE + "".join(kinds + shades) + "\n" + DARK


def _title(summary: Summary, epochs: Sequence[int]) -> str:
    model, graph = summary.model.get("name", "model"), summary.graph.get("name", "graph")
    where, mode = cluster(summary) or "1 graph server", summary.config.get("mode", "pipe")
    how = "" if mode == "async" else f", {mode}"
    which = f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}"
    return f"{model} on {graph}, {where}{how}: {which}"


def _legend(boxes: Sequence[Box], shades: dict[int, int]) -> list[str]:
    present = {box.kind for box in boxes}
    kinds = [kind for kind in TASK_KINDS if kind in present] + sorted(present.difference(TASK_KINDS))
    entries = [(kind, CLASSES.get(kind, "other")) for kind in kinds]
    entries += _epochs(shades) if len(shades) > 1 else []
    parts, x = [], 8.0
    for name, style in entries:
        parts.append(f'<rect class="{style}" x="{x:.0f}" y="28" width="11" height="11"/>')
        parts.append(f'<text x="{x + 15:.0f}" y="37.5">{_escape(name)}</text>')
        x += 30 + 6.6 * len(name)
    return parts


def _epochs(shades: dict[int, int]) -> list[tuple[str, str]]:
    """What each shade stands for: epochs take turns with them."""
    entries = []
    for shade in sorted(set(shades.values())):
        its = [str(epoch) for epoch in shades if shades[epoch] == shade]
        named = ", ".join(its[:3]) + (", ..." if len(its) > 3 else "")
        entries.append((f"epoch{'' if len(its) == 1 else 's'} {named}", f"ink e{shade}"))
    return entries


def _axis(scale: _TimeScale, height: int) -> list[str]:
    parts = []
    for tick_s in scale.ticks():
        x = scale.x(scale.start_s + tick_s)
        parts.append(f'<path class="line" d="M{x:.1f} {TOP - 6}V{height + 4}"/>')
        text = "0" if not tick_s else units.seconds(tick_s)
        parts.append(f'<text class="faint" x="{x:.1f}" y="{height + 17}" text-anchor="middle">{text}</text>')
    return parts


RUN, FIRST_SERVER = 1, 2  # processes of the trace; a viewer takes 0 for the kernel
_US = 1e6


def perfetto_timeline(records: Iterable[Record], epochs: Collection[int] | None = None) -> str:
    """The traced epochs of a run's records, or some of them, as JSON in the Trace Event Format.

    A process is a server and a track in it a thread; one more process has a track of all epochs. Times are
    microseconds of the run.
    """
    log = list(records)
    boxes = _chosen(log, epochs)
    events = [_name("process_name", RUN, 0, "run"), _name("thread_name", RUN, 0, "epochs")]
    events += [_epoch_event(record) for record in log if record["kind"] == "epoch"]
    for server, its in groupby(boxes, key=lambda box: box.server):
        events.append(_name("process_name", server + FIRST_SERVER, 0, f"server {server}"))
        track = 0
        for thread, own in groupby(its, key=lambda box: box.thread):
            for number, row in enumerate(rows_of(list(own))):
                label = f"thread {thread}" + (f", task {number + 1} at a time" if number else "")
                events.append(_name("thread_name", server + FIRST_SERVER, track, label))
                events += [_task_event(box, track, after) for box, after in zip(row, [*row[1:], None], strict=True)]
                track += 1
    model, graph = (summary.get("name", "") for summary in (summarise(log).model, summarise(log).graph))
    trace = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"model": str(model), "graph": str(graph)}}
    return json.dumps(trace, allow_nan=False) + "\n"


def _name(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": track, "args": {"name": name}}


def _epoch_event(record: Record) -> dict[str, Any]:
    start_us = max(0.0, record["t"] - record["seconds"]) * _US
    figures = {name: record[name] for name in ("loss", "usd", "memory_bytes") if record.get(name) is not None}
    return {
        "ph": "X", "name": f"epoch {record['epoch']}", "cat": "epoch", "pid": RUN, "tid": 0,
        "ts": round(start_us, 1), "dur": round(record["t"] * _US - start_us, 1), "args": figures,
    }  # fmt: skip


def _task_event(box: Box, track: int, after: Box | None) -> dict[str, Any]:
    """A task; it ends where the next one of its track begins, if the clocks of two records differ a little."""
    end_s = box.end_s if after is None else min(box.end_s, max(after.start_s, box.start_s))
    return {
        "ph": "X", "name": task_name(box.kind), "cat": box.kind, "pid": box.server + FIRST_SERVER, "tid": track,
        "ts": round(box.start_s * _US, 1), "dur": round(round(end_s * _US, 1) - round(box.start_s * _US, 1), 1),
        "args": {"interval": box.interval, "epoch": box.epoch},
    }  # fmt: skip
