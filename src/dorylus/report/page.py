"""The page of one run or several: figures of a run log as plain data, and the HTML that draws them.

A page is one file: style, scripts and data are in it, and its policy lets it load nothing else. The live page is the
same file; its data come over a stream (:mod:`dorylus.report.live`). Curves are thinned to the extremes of buckets and
timelines to their longest tasks, so the size of a page does not grow with the length of a run.
"""

import hashlib
import heapq
import json
import math
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby
from typing import Any, NamedTuple

from dorylus import units
from dorylus.cost import Bill, dollars
from dorylus.report.closing_table import STOP_REASONS, rows
from dorylus.report.summary import TASK_KINDS, Summary, ages_of, task_name
from dorylus.report.terminal import notice
from dorylus.report.timelines import Box, boxes_of, rows_of
from dorylus.runs import Record

MOST_POINTS = 2000  # of a curve
MOST_KEPT = 50 * MOST_POINTS  # in memory
MOST_TASKS = 30_000  # of the timelines of a run
MOST_EVENTS = 200
SHOWN_APART = {
    "age of values read", "bill", "busy", "epochs", "files per epoch", "loss", "peak memory", "run folder",
    "sent per epoch", "task time", "test accuracy", "validation accuracy", "validation micro F1", "waited at the bound",
}  # fmt: skip
CURVES = ("loss", "seconds", "usd", "epoch_usd", "memory_bytes", "mapped_bytes")

_SCRIPTS = ("uPlot.iife.min.js", "timeline.js", "page.js")
_IN_SCRIPT = {ord(mark): f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"}  # what could end a script element


class _Traced(NamedTuple):
    """The tasks of a record of the log: its longest, and how many there were."""

    epoch: int
    boxes: list[Box]
    num_tasks: int


@dataclass
class Curve:
    """A figure over epochs: its points so far, thinned, and those that no reader has been sent."""

    epochs: list[float] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    sent: int = 0

    def add(self, epoch: float | None, value: float | None) -> None:
        """Takes a point; one that is no number is left out."""
        if epoch is None or value is None:
            return
        self.epochs.append(epoch)
        self.values.append(value)
        if len(self.values) >= MOST_KEPT:
            sent = thin(self.epochs[: self.sent], self.values[: self.sent], MOST_KEPT // 4)
            new = thin(self.epochs[self.sent :], self.values[self.sent :], MOST_KEPT // 4)
            self.epochs, self.values, self.sent = sent[0] + new[0], sent[1] + new[1], len(sent[0])

    def points(self) -> list[list[float]]:
        """All points, few enough to draw."""
        self.sent = len(self.values)
        return [*thin(self.epochs, self.values, MOST_POINTS)]

    def more(self) -> list[list[float]]:
        """The points since the last call of this method or :meth:`points`."""
        epochs, values = self.epochs[self.sent :], self.values[self.sent :]
        self.sent = len(self.values)
        return [*thin(epochs, values, MOST_POINTS // 10)]


def thin(epochs: Sequence[float], values: Sequence[float], most: int) -> tuple[list[float], list[float]]:
    """At most so many points: both ends, and the lowest and the highest value in each range of epochs."""
    if len(values) <= most:
        return list(epochs), list(values)
    ranges, first = (most - 2) // 2, epochs[0]
    width = (epochs[-1] - first) / ranges or 1.0
    kept = {0, len(values) - 1}
    for _, points in groupby(range(len(values)), key=lambda k: int((epochs[k] - first) / width)):
        its = list(points)
        kept |= {min(its, key=values.__getitem__), max(its, key=values.__getitem__)}
    chosen = sorted(kept)
    return [epochs[k] for k in chosen], [values[k] for k in chosen]


class RunFigures:
    """What a page shows of a run; feed it records in order with :meth:`add`.

    ``repeat`` holds ``text``, which repeats the run, and ``how`` ("shell" or "python"); ``made`` says how graph and
    model were made, where it is known.
    """

    def __init__(
        self, name: str, repeat: Mapping[str, str] | None = None, made: Mapping[str, Any] | None = None
    ) -> None:
        self.name, self.repeat, self.made = name, dict(repeat or {}), dict(made or {})
        self.summary = Summary()
        self.curves: dict[str, Curve] = {name: Curve() for name in CURVES}
        self.scores: dict[str, Curve] = {}
        self._traced: list[_Traced] = []
        self._traced_is_new = False
        self._events: list[list[Any]] = []
        self._servers: dict[int, dict[str, Any]] = {}
        self._usd: float | None = None

    def add(self, record: Record) -> None:
        """Takes one record."""
        kind, epoch = record["kind"], number(record.get("epoch"))
        self.summary.add(record)
        if kind == "epoch":
            self._add_epoch(record, epoch)
        elif kind == "evaluation":
            for name, value in record.items():
                if name.endswith(("_accuracy", "_f1")):
                    self.scores.setdefault(name, Curve()).add(epoch, number(value))
        elif kind == "spans":
            self._add_spans(record)
        if text := _event(record):
            self._events.append([number(record.get("t")) or 0.0, text])
            del self._events[MOST_EVENTS // 2 : -(MOST_EVENTS // 2)]

    def _add_epoch(self, record: Record, epoch: float | None) -> None:
        for name in ("loss", "seconds", "usd", "memory_bytes", "mapped_bytes"):
            self.curves[name].add(epoch, number(record.get(name)))
        usd = number(record.get("usd"))
        if usd is not None and self._usd is not None:  # the first epoch's dollars hold those of the set-up
            self.curves["epoch_usd"].add(epoch, max(0.0, usd - self._usd))
        self._usd = usd
        for each in record.get("servers") or ():
            own = self._servers.setdefault(each["server"], {"epochs": 0, "seconds": 0.0, "sent": 0, "peak": 0})
            own["host"] = each.get("host")
            own["epochs"] += 1
            own["seconds"] += each.get("seconds") or 0.0
            own["sent"] += each.get("sent_bytes") or 0
            own["peak"] = max(own["peak"], each.get("peak_memory_bytes") or 0)

    def _add_spans(self, record: Record) -> None:
        boxes = boxes_of(record)
        if not boxes:
            return
        longest = heapq.nlargest(MOST_TASKS // 2, boxes, key=lambda box: box.end_s - box.start_s)
        self._traced.append(_Traced(record["epoch"], longest, len(boxes)))
        self._traced_is_new = True
        while sum(len(each.boxes) for each in self._traced) > MOST_TASKS:
            del self._traced[len(self._traced) // 2]

    def snapshot(self) -> dict[str, Any]:
        """Everything, as plain data."""
        self._traced_is_new = False
        curves = {name: curve.points() for name, curve in self.curves.items()}
        scores = {name: curve.points() for name, curve in self.scores.items()}
        return {**self._figures(), "curves": curves, "scores": scores, "timeline": self._timeline()}

    def changes(self) -> dict[str, Any]:
        """What has changed since the last call of this method or :meth:`snapshot`: all figures, new points."""
        more = {name: curve.more() for name, curve in self.curves.items()}
        scores = {name: curve.more() for name, curve in self.scores.items()}
        timeline = {"timeline": self._timeline()} if self._traced_is_new else {}
        self._traced_is_new = False
        return {**self._figures(), "more": more, "more_scores": scores, **timeline}

    def _figures(self) -> dict[str, Any]:
        summary = self.summary
        return {
            "name": self.name,
            "title": f"{summary.model.get('name', 'model')} on {summary.graph.get('name', 'graph')}",
            "about": _about(summary),
            "multilabel": summary.multilabel,
            "state": _state(summary),
            "tiles": _tiles(summary),
            "rows": [list(row) for row in rows(summary) if row[0] not in SHOWN_APART],
            "tasks": _tasks(summary),
            "busy": _busy(summary),
            "ages": _ages(summary),
            "traffic": _traffic(summary),
            "memory": _memory(summary),
            "bill": _bill(summary),
            "servers": [self._server(number) for number in sorted(self._servers)],
            "events": [[_clock(t), text] for t, text in self._events],
            "settings": _settings(summary.config, self.made),
            "repeat": self.repeat,
        }

    def _server(self, server: int) -> list[str]:
        own = self._servers[server]
        per_epoch = own["seconds"] / own["epochs"], own["sent"] / own["epochs"]
        return [str(server), str(own["host"]), units.seconds(per_epoch[0]), units.size(per_epoch[1]),
                units.size(own["peak"])]  # fmt: skip

    def _timeline(self) -> list[dict[str, Any]]:
        """The traced epochs; those that follow each other are drawn together."""
        in_a_row = groupby(enumerate(self._traced), key=lambda pair: pair[1].epoch - pair[0])
        return [_picture([each for _, each in group]) for _, group in in_a_row]


def number(value: object) -> float | None:
    """A finite number in six digits; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        short = float(f"{value:.6g}") if isinstance(value, float) else float(value)
    except OverflowError:
        return None
    if not math.isfinite(short):
        return None
    return int(short) if short.is_integer() else short


def _event(record: Record) -> str | None:
    kind, epoch = record["kind"], record.get("epoch")
    if kind == "run" and record.get("resumed_from") is not None:
        return f"resumed after epoch {record['resumed_from']}"
    if kind == "fault":
        return f"after epoch {epoch}: {record.get('error')}"
    if kind == "stop" and record.get("reason") != "epochs":
        reason = str(record.get("reason"))
        return f"stopped after epoch {epoch}: {STOP_REASONS.get(reason, reason)}"
    return notice(record)


def _clock(t: float) -> str:
    return units.seconds(t) if t else "0 s"


def _about(summary: Summary) -> str:
    graph, model = summary.graph, summary.model
    names = ("vertices", "edges", "features", "classes")
    parts = [f"{graph[name]:,} {name}" for name in names if isinstance(graph.get(name), int)]
    parts += [f"{model['parameters']:,} parameters"] if isinstance(model.get("parameters"), int) else []
    return ", ".join(parts)


def _state(summary: Summary) -> dict[str, Any]:
    of = f" of {summary.num_epochs:,}" if summary.num_epochs else ""
    why = STOP_REASONS.get(summary.stop_reason or "", "")
    if summary.result is not None:
        return {"kind": "ended", "text": f"ended after {summary.epoch:,} epochs" + (f": {why}" if why else "")}
    if summary.stop_reason is not None:
        reason = why or summary.stop_reason
        return {"kind": "bad", "text": f"stopped after epoch {summary.epoch:,}{of}, without a result: {reason}"}
    return {"kind": "open", "text": f"no result in its log: it runs, or was killed, after epoch {summary.epoch:,}{of}"}


def _tiles(summary: Summary) -> list[list[str]]:
    """The figures that are looked for first: (figure, what it is)."""
    score = "micro_f1" if summary.multilabel else "accuracy"
    word = score.replace("micro_f1", "micro F1")
    usd = summary.usd if not (summary.result or {}).get("bill") else Bill.from_dict(summary.result["bill"]).total_usd  # type: ignore[index]
    peak = summary.server_peak_memory_bytes or summary.peak_memory_bytes
    median_s = summary.figure("seconds_per_epoch", summary.median_epoch_seconds)
    tiles = [
        [units.percent(summary.score(f"test_{score}"), 2), f"test {word}"],
        [units.percent(summary.score(f"val_{score}"), 2), f"validation {word}"],
        [units.number(summary.figure("final_loss", summary.loss)), "loss"],
        [_epochs(summary), "epochs"],
        ["–" if median_s is None else units.seconds(median_s), "per epoch, median"],
        ["–" if usd is None else dollars(usd), "in all, at list prices"],
        [units.size(peak) if peak else "–", "peak memory"],
    ]
    if summary.result is None and (left_s := summary.seconds_left) is not None:
        tiles.append([units.seconds(left_s), "left"])
    return [tile for tile in tiles if tile[0] != "–"]


def _epochs(summary: Summary) -> str:
    return f"{summary.epoch:,}" + (f" of {of:,}" if (of := summary.num_epochs) and of != summary.epoch else "")


def _tasks(summary: Summary) -> list[list[Any]]:
    return [
        [kind, task_name(kind), round(share, 5), units.seconds(summary.task_seconds[kind])]
        for kind, share in summary.shares.items()
    ]


def _busy(summary: Summary) -> list[list[Any]]:
    wall_s = sum(summary.epoch_seconds)
    seen = {name: spent_s / wall_s for name, spent_s in summary.busy_seconds.items()} if wall_s else {}
    return [[name, number(share)] for name, share in summary.figure("busy", seen).items() if share]


def _ages(summary: Summary) -> dict[str, Any]:
    counted = ages_of(summary.figure("ages", summary.ages))
    is_async = summary.config.get("mode") == "async"
    return {
        "counts": [[age, count] for age, count in sorted(counted.items())],
        "bound": (number(summary.config.get("staleness")) or 0) + 1 if is_async else None,
        "waits": summary.figure("waits", summary.waits),
    }


def _traffic(summary: Summary) -> list[list[Any]]:
    counted = summary.figure("traffic", summary.traffic)
    epochs = summary.figure("epochs", len(summary.epoch_seconds)) or 1
    return [
        [kind.replace("_", " "), count, f"{units.size(count / epochs)} per epoch"]
        for kind, count in counted.items()
        if count
    ]


def _memory(summary: Summary) -> dict[str, Any]:
    """What the plan predicted by kind, and what was measured."""
    plan, epochs = summary.predicted, len(summary.epoch_seconds)
    measured: list[tuple[str, float]] = [
        ("peak, code of libraries included", summary.peak_memory_bytes),
        ("peak of the largest graph server", summary.server_peak_memory_bytes),
    ]
    predicted: list[tuple[str, float]] = [("peak, without code of libraries", plan.get("peak_bytes", 0))]
    for name, what in (("read_bytes", "read from files per epoch"), ("written_bytes", "written to files per epoch")):
        predicted.append((what, plan.get(name, 0)))
        measured.append((what, summary.files[name] / epochs if epochs else 0))
    kinds: list[tuple[str, float]] = [
        (f"{kind}{where}", size)
        for name, where in (("resident", ""), ("on_disk", ", in files"))
        for kind, size in (plan.get(name) or {}).items()
    ]
    tables = {"measured": measured, "predicted": predicted, "kinds": kinds}
    return {name: [[what, units.size(size), size] for what, size in table if size] for name, table in tables.items()}


def _bill(summary: Summary) -> dict[str, Any]:
    saved = (summary.result or {}).get("bill")
    if not saved:
        return {} if summary.usd is None else {"total": dollars(summary.usd)}
    bill = Bill.from_dict(saved)
    sources = [f"{line.source} ({line.date})" for line in bill.items]
    return {
        "rows": [[*row, source] for row, source in zip(bill.rows()[:-1], sources, strict=True)],
        "total": dollars(bill.total()),
        "paper": dollars(bill.total("paper")),
    }


def _settings(config: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, str]:
    """Every setting as text, by name; how graph and model were made comes first."""
    sections = {f"{section}.{name}": value for section, its in made.items() for name, value in its.items()}
    return {name: _text(value) for name, value in {**sections, **config}.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value, ensure_ascii=False)


def _picture(traced: Sequence[_Traced]) -> dict[str, Any]:
    """Tasks as columns, which take less room than rows; times are microseconds since the first of them."""
    boxes = [box for each in traced for box in each.boxes]
    zero = min(box.start_s for box in boxes)
    epochs = [each.epoch for each in traced]
    kinds = [kind for kind in TASK_KINDS if any(box.kind == kind for box in boxes)]
    kinds += sorted({box.kind for box in boxes}.difference(kinds))
    lanes: list[list[int]] = []
    tasks: dict[str, list[int]] = {name: [] for name in ("lane", "kind", "start", "took", "interval", "epoch")}
    for (server, thread), own in groupby(sorted(boxes), key=lambda box: (box.server, box.thread)):
        for place, row in enumerate(rows_of(list(own))):
            for box in row:
                values = (len(lanes), kinds.index(box.kind), *_in_us(box, zero), box.interval, box.epoch)
                for column, value in zip(tasks.values(), values, strict=True):
                    column.append(value)
            lanes.append([server, thread, place])
    return {
        "label": f"epoch {epochs[0]}" if len(epochs) == 1 else f"epochs {epochs[0]} to {epochs[-1]}",
        "start": units.seconds(zero),
        "of": sum(each.num_tasks for each in traced),
        "kinds": [[kind, task_name(kind)] for kind in kinds],
        "lanes": lanes,
        "tasks": tasks,
    }


def _in_us(box: Box, zero: float) -> tuple[int, int]:
    return round((box.start_s - zero) * 1e6), round((box.end_s - box.start_s) * 1e6)


def report_page(runs: Sequence[RunFigures]) -> bytes:
    """The page of runs that were read: one HTML file."""
    names = ", ".join(run.name for run in runs)
    return _html(f"{names} - Dorylus", {"runs": [run.snapshot() for run in runs]}, connect=False)


def live_page(name: str) -> bytes:
    """The page of a run while it trains: it takes its data from the address ``events`` beside it."""
    return _html(f"{name} - Dorylus", {"live": True, "runs": []}, connect=True)


def policy(*, connect: bool) -> str:
    """The content security policy of a page: its own style and scripts, by their hashes, and nothing else."""
    scripts = " ".join(_hash(_asset(name)) for name in _SCRIPTS)
    parts = ["default-src 'none'", f"script-src {scripts}", f"style-src {_hash(_style())}", "img-src data:"]
    parts += ["connect-src 'self'"] if connect else []
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


def _html(title: str, data: Mapping[str, Any], *, connect: bool) -> bytes:
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_IN_SCRIPT)
    # A character that UTF-8 cannot hold may come out of a file name.
    return (
        _asset("page.html")
        .format(
            title=escape(title),
            policy=escape(policy(connect=connect)),
            style=_style(),
            scripts="\n".join(f"<script>{_asset(name)}</script>" for name in _SCRIPTS),
            data=text,
        )
        .encode(errors="replace")
    )


def _style() -> str:
    return _asset("uPlot.min.css") + _asset("page.css")


@cache
def _asset(name: str) -> str:
    return files("dorylus.report").joinpath("assets", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
