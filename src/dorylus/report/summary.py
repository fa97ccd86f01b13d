"""The figures of a run, gathered from its run log record by record."""

import statistics
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dorylus.runs import Record

# The order in which an epoch goes through them; kinds not named here come after, as they appear.
TASK_KINDS = ("GA", "AV", "SC", "AE", "AV+loss+∇AV", "∇AV", "∇AE", "∇SC", "∇GA", "WU")

# The paper's abbreviations in words.
TASK_NAMES = {
    "GA": "gather",
    "AV": "apply vertex",
    "SC": "scatter",
    "AE": "apply edge",
    "AV+loss+∇AV": "last apply vertex, loss and gradient",
    "∇AV": "apply vertex, gradient",
    "∇AE": "apply edge, gradient",
    "∇SC": "scatter, gradient",
    "∇GA": "gather, gradient",
    "WU": "weight update",
}

RECENT_EPOCHS = 20


def task_name(kind: str) -> str:
    """A kind of task in words; one that is not known, as it is."""
    return TASK_NAMES.get(kind, kind)


@dataclass
class Summary:
    """Figures of a run so far; feed it records in order with :meth:`add`."""

    graph: dict[str, Any] = field(default_factory=dict)
    model: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    num_epochs: int | None = None
    epoch: int = 0
    loss: float | None = None
    epoch_seconds: list[float] = field(default_factory=list)
    recent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=RECENT_EPOCHS))
    task_seconds: Counter[str] = field(default_factory=Counter)
    busy_seconds: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)  # bytes read and written under a memory limit
    predicted: dict[str, Any] = field(default_factory=dict)  # what such a run was planned to take
    traffic: Counter[str] = field(default_factory=Counter)
    ages: Counter[int] = field(default_factory=Counter)
    waits: int = 0
    synchronous_after: int | None = None
    usd: float | None = None
    memory_bytes: int = 0
    peak_memory_bytes: int = 0
    machines: int = 0  # that servers are on, where they have their own processes
    faults: int = 0  # after which servers began a new session
    refused: int = 0  # messages of ended sessions
    server_peak_memory_bytes: int = 0  # of the graph server that needs most, where servers have their own processes
    evaluation: dict[str, Any] = field(default_factory=dict)
    stop_reason: str | None = None
    run_dir: str | None = None
    result: dict[str, Any] | None = None

    def add(self, record: Record) -> None:
        """Takes one record; kinds without any of these figures are passed over."""
        match record["kind"]:
            case "run":
                self._add_run(record)
            case "epoch":
                self._add_epoch(record)
            case "memory":
                self.predicted = dict(record)
            case "evaluation":
                self.evaluation = dict(record)
            case "cluster":
                self._add_cluster(record)
            case "synchronous":
                self.synchronous_after = record.get("epoch")
            case "stop":
                self.stop_reason = record.get("reason")
            case "result":
                self.result = dict(record)
                self.run_dir = record.get("run_dir") or self.run_dir
                self.peak_memory_bytes = max(self.peak_memory_bytes, record.get("peak_memory_bytes") or 0)
                peaks = record.get("server_peak_memory_bytes") or ()
                self.server_peak_memory_bytes = max(self.server_peak_memory_bytes, *peaks, 0)

    def _add_cluster(self, record: Record) -> None:
        match record.get("what"):
            case "session":
                places = (record.get("servers") or {}).values()
                self.machines = len({host for its in places for host, _ in its})
            case "fault":
                self.faults += 1
            case "refused":
                self.refused += record.get("messages") or 0

    def _add_run(self, record: Record) -> None:
        self.config = dict(record.get("config") or {})
        self.graph, self.model = dict(record.get("graph") or {}), dict(record.get("model") or {})
        self.num_epochs = self.config.get("epochs")
        self.epoch = record.get("resumed_from") or 0
        self.run_dir = record.get("run_dir") or self.config.get("run_dir")
        self.stop_reason = self.result = None
        self.recent.clear()

    def _add_epoch(self, record: Record) -> None:
        self.epoch, self.loss = record["epoch"], record.get("loss")
        self.epoch_seconds.append(record["seconds"])
        self.recent.append((record["epoch"], record.get("t", 0.0)))
        self.task_seconds.update(record.get("tasks") or {})
        self.busy_seconds.update(record.get("busy") or {})
        self.traffic.update(record.get("traffic") or {})
        self.files.update(record.get("files") or {})
        self.ages.update(ages_of(record.get("ages")))
        self.waits += record.get("waits") or 0
        self.usd = record.get("usd")
        self.memory_bytes = record.get("memory_bytes") or 0
        self.peak_memory_bytes = max(self.peak_memory_bytes, self.memory_bytes)
        peaks = [each.get("peak_memory_bytes") or 0 for each in record.get("servers") or ()]
        self.server_peak_memory_bytes = max(self.server_peak_memory_bytes, *peaks, 0)

    @property
    def median_epoch_seconds(self) -> float | None:
        """Seconds of the middle epoch, which a slow first one does not move."""
        return statistics.median(self.epoch_seconds) if self.epoch_seconds else None

    @property
    def recent_epoch_seconds(self) -> float | None:
        """Seconds from the end of an epoch to that of the next, recently, evaluations and checkpoints included.

        None before the second epoch: the first may set up and export programs, and says nothing of the others.
        """
        if len(self.recent) < 2:
            return None
        (first, since), (last, now) = self.recent[0], self.recent[-1]
        return (now - since) / max(1, last - first)

    @property
    def seconds_left(self) -> float | None:
        """Seconds to the last epoch at the pace of ``recent_epoch_seconds``; None when that is unknown."""
        if self.num_epochs is None or self.recent_epoch_seconds is None:
            return None
        return (self.num_epochs - self.epoch) * self.recent_epoch_seconds

    @property
    def shares(self) -> dict[str, float]:
        """The share of all task time that each kind of task took, in the order of an epoch."""
        total = sum(self.task_seconds.values())
        known = [kind for kind in TASK_KINDS if kind in self.task_seconds]
        others = [kind for kind in self.task_seconds if kind not in TASK_KINDS]
        return {kind: self.task_seconds[kind] / total for kind in (*known, *others) if total}

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels; most are absent, so F1 says more than accuracy then."""
        return bool(self.graph.get("multilabel"))

    def score(self, name: str) -> Any:
        """A score of the result, or of the last evaluation while there is no result."""
        return self.figure(name, self.evaluation.get(name))

    def figure(self, name: str, from_log: Any) -> Any:
        """A figure of the result, which counts epochs before a resume too; ``from_log`` where the result lacks it."""
        value = (self.result or {}).get(name)
        return from_log if value is None else value


def ages_of(record: Mapping[Any, int] | None) -> dict[int, int]:
    """Values read by age in epochs, whose numbers JSON has made texts."""
    return {int(age): count for age, count in (record or {}).items()}


def summarise(records: Iterable[Record]) -> Summary:
    """The figures of a whole log; give it :func:`dorylus.runs.current` records where a run was resumed."""
    summary = Summary()
    for record in records:
        summary.add(record)
    return summary
