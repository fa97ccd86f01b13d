"""Many runs: those under a folder, one row each, and a few of them side by side, in a table and in words.

Both read run folders and run logs, of runs that have ended, go on, or were killed.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dorylus import units
from dorylus.cost import Bill, dollars
from dorylus.errors import ConfigError, DorylusError
from dorylus.report.summary import Summary, summarise
from dorylus.runs import Record, RunFolder, current, flat_settings, is_locked, malformed_refused, read_log

DEEPEST = 4  # levels of folders in which runs are looked for
EARLY = ("patience", "target_accuracy", "budget")


@dataclass(frozen=True, kw_only=True)
class RunEntry:
    """A run as its folder has it; of one that is damaged, ``state`` says so and ``remark`` why.

    ``state`` is finished, stopped early, interrupted, crashed, running or damaged. ``scores`` are those of the result,
    or of the last evaluation while there is none; ``best`` and ``last`` are evaluations. ``seconds`` are those of
    epochs.
    """

    name: str
    path: str
    state: str
    remark: str = ""
    began: str | None = None
    model: str | None = None
    graph: str | None = None
    epochs: int = 0
    num_epochs: int | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    best: Mapping[str, float] = field(default_factory=dict)
    last: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    seconds_per_epoch: float | None = None
    peak_memory_bytes: int | None = None
    usd: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    multilabel: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def score(self, part: str) -> float | None:
        """Its score on a part of the graph: accuracy, or micro F1 where vertices have several labels."""
        return self.scores.get(f"{part}_{'micro_f1' if self.multilabel else 'accuracy'}")


def find_runs(folder: Path) -> list[RunEntry]:
    """The runs in a folder and the folders in it, the newest first."""
    if not folder.is_dir():
        raise ConfigError(f"the folder {folder} does not exist: give the folder that holds your runs.")
    entries = [read_run(path, name=str(path.relative_to(folder))) for path in _run_folders(folder)]
    return sorted(entries, key=lambda each: (_instant(each), each.name), reverse=True)


def _run_folders(folder: Path) -> Iterable[Path]:
    for parent, folders, names in os.walk(folder):
        if {"run.toml", "log.jsonl"} & set(names):
            yield Path(parent)
            folders.clear()
        depth = len(Path(parent).relative_to(folder).parts)
        folders[:] = [name for name in folders if not name.startswith(".") and depth < DEEPEST]


def _instant(entry: RunEntry) -> float:
    try:
        began = datetime.fromisoformat(entry.began or "")
    except ValueError:
        return 0.0
    return began.astimezone(UTC).timestamp()


def read_run(path: Path, name: str | None = None) -> RunEntry:
    """The run in a folder; never an error: of a folder that cannot be read, the entry says why."""
    name = name if name not in (None, ".") else path.absolute().name
    running = is_locked(path)
    try:
        folder = RunFolder.open(path)
        with malformed_refused(folder.log):
            records = current(read_log(folder.log)) if folder.log.exists() else []
            summary = summarise(records)
            state, remark = ("running", "") if running else _state(folder, summary, records)
            return _entry(name, folder, records, summary, state=state, remark=remark)
    except DorylusError as error:
        return RunEntry(name=name, path=str(path), state="damaged", remark=str(error), began=_changed(path))


def _state(folder: RunFolder, summary: Summary, records: Sequence[Record]) -> tuple[str, str]:
    """Of a run that no process writes."""
    reason = summary.stop_reason
    if reason == "epochs":
        return "finished", ""
    if reason in EARLY:
        return "stopped early", reason
    if reason == "interrupted":
        return "interrupted", ""
    if reason == "diverged":
        return "crashed", "training diverged"
    for record in reversed(records):
        if record["kind"] == "fault":
            return "crashed", str(record.get("error"))
        if record["kind"] in ("epoch", "run"):
            break
    # A process that ends in order removes the lock.
    killed = (folder.path / "lock").exists() or not records
    return ("crashed", "its process was killed") if killed else ("interrupted", "")


def _entry(name: str, folder: RunFolder, records: Sequence[Record], summary: Summary, **more: str) -> RunEntry:
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    multilabel = summary.multilabel
    scored = [each for each in evaluations if each.get(_deciding_score(multilabel)) is not None]
    run = next((record for record in reversed(records) if record["kind"] == "run"), None)
    if records and run is None:
        raise ValueError("none says what the run is")
    bill = (summary.result or {}).get("bill")
    return RunEntry(
        name=name,
        path=str(folder.path),
        began=next((record["began"] for record in records if record.get("began")), None) or _changed(folder.path),
        model=summary.model.get("name"),
        graph=summary.graph.get("name"),
        epochs=summary.epoch,
        num_epochs=summary.num_epochs,
        scores=_scores(summary.result or (evaluations[-1] if evaluations else {})),
        best=_scored(max(scored, key=lambda each: each[_deciding_score(multilabel)])) if scored else {},
        last=_scored(evaluations[-1]) if evaluations else {},
        seconds=float(summary.figure("seconds", sum(summary.epoch_seconds))),
        seconds_per_epoch=summary.figure("seconds_per_epoch", summary.median_epoch_seconds),
        peak_memory_bytes=summary.server_peak_memory_bytes or summary.peak_memory_bytes or None,
        usd=float(Bill.from_dict(bill).total()) if bill else summary.usd,
        settings=_settings(folder, run),
        multilabel=multilabel,
        **more,
    )


def _settings(folder: RunFolder, run: Record | None) -> dict[str, Any]:
    """All settings in one table, those of the graph and the model too, as far as the run says how these were made."""
    made = {"config": folder.config.to_dict(), "graph": folder.spec.graph, "model": folder.spec.model}
    return flat_settings(made) | ({} if run is None else flat_settings(run))


def _deciding_score(multilabel: bool) -> str:
    return "val_micro_f1" if multilabel else "val_accuracy"


def _scores(record: Record) -> dict[str, float]:
    parts = ("train_", "val_", "test_")
    return {name: value for name, value in record.items() if name.startswith(parts) and isinstance(value, int | float)}


def _scored(record: Record) -> dict[str, float]:
    return {"epoch": record["epoch"], **_scores(record)}


def _changed(path: Path) -> str | None:
    """When a run began that does not say so: when its settings were written."""
    for name in ("run.toml", "log.jsonl"):
        with suppress(OSError):
            changed = datetime.fromtimestamp((path / name).stat().st_mtime).astimezone()
            return changed.isoformat(timespec="seconds")
    return None


def list_rows(entries: Sequence[RunEntry]) -> list[dict[str, str]]:
    """The rows of a list of runs, by the names of their columns."""
    return [
        {
            "run": each.name,
            "began": (each.began or "–")[:16].replace("T", " "),
            "model": each.model or "–",
            "graph": each.graph or "–",
            "epochs": _epochs(each),
            "state": f"{each.state} ({each.remark})" if each.remark else each.state,
            "validation": units.percent(each.score("val"), 2),
            "test": units.percent(each.score("test"), 2),
            "time": units.seconds(each.seconds) if each.epochs else "–",
            "cost": _usd(each),
        }
        for each in entries
    ]


def _epochs(entry: RunEntry) -> str:
    if entry.num_epochs is None:
        return "–"
    return f"{entry.epochs:,}" if entry.epochs == entry.num_epochs else f"{entry.epochs:,} of {entry.num_epochs:,}"


def _usd(entry: RunEntry) -> str:
    return "–" if entry.usd is None else dollars(entry.usd)


@dataclass(frozen=True)
class RunComparison:
    """Runs side by side: the settings that differ, by name, and in words which run is ahead in what."""

    runs: list[RunEntry]
    settings: dict[str, list[Any]]
    words: list[str]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def figures(self) -> dict[str, list[str]]:
        """A row for every figure."""
        return {
            "graph": [each.graph or "–" for each in self.runs],
            "model": [each.model or "–" for each in self.runs],
            "state": [each.state for each in self.runs],
            "epochs done": [_epochs(each) for each in self.runs],
            "best epoch": [_scored_epoch(each, each.best) for each in self.runs],
            "last evaluation": [_scored_epoch(each, each.last) for each in self.runs],
            "test score of the result": [units.percent(each.score("test"), 2) for each in self.runs],
            "time per epoch": [_seconds(each.seconds_per_epoch) for each in self.runs],
            "time in epochs": [_seconds(each.seconds) for each in self.runs],
            "peak memory": [
                "–" if each.peak_memory_bytes is None else units.size(each.peak_memory_bytes) for each in self.runs
            ],
            "cost": [_usd(each) for each in self.runs],
        }

    def differing(self) -> dict[str, list[str]]:
        """A row for every setting that differs."""
        return {name: ["–" if each is None else str(each) for each in row] for name, row in self.settings.items()}


def _seconds(value: float | None) -> str:
    return units.seconds(value) if value else "–"


def _scored_epoch(entry: RunEntry, scores: Mapping[str, float]) -> str:
    """An evaluation: its epoch, and the scores on validation and test."""
    if not scores:
        return "–"
    name = "micro_f1" if entry.multilabel else "accuracy"
    parts = {"validation": scores.get(f"val_{name}"), "test": scores.get(f"test_{name}")}
    texts = [f"{part} {units.percent(score, 2)}" for part, score in parts.items() if score is not None]
    return ": ".join([f"{scores['epoch']:,}", ", ".join(texts)]) if texts else f"{scores['epoch']:,}"


OWN_OF_EACH = ("run_dir", "log_to")  # settings that say nothing about how runs differ
SAME_TIME, SAME_COST, SAME_SCORE = 0.02, 0.02, 0.0005  # two runs of the same settings differ as much


def compare_runs(paths: Sequence[Path]) -> RunComparison:
    """Runs side by side. Refused: a run that cannot be read, or one alone."""
    if len(paths) < 2:
        raise ConfigError("one run alone cannot be compared: name two or more run folders.")
    runs = [read_run(path, name=name) for path, name in zip(paths, _names(paths), strict=True)]
    for each in runs:
        if each.state == "damaged":
            raise ConfigError(each.remark)
    names = dict.fromkeys(name for each in runs for name in each.settings if name not in OWN_OF_EACH)
    rows = {name: [each.settings.get(name) for each in runs] for name in names}
    return RunComparison(runs, {name: row for name, row in rows.items() if any(v != row[0] for v in row)}, words(runs))


def _names(paths: Sequence[Path]) -> list[str]:
    """The folders' own names where these differ, else their paths."""
    short = [path.absolute().name for path in paths]
    return short if len(set(short)) == len(short) else [str(path) for path in paths]


def words(runs: Sequence[RunEntry]) -> list[str]:
    """Sentences: what cannot be compared; of runs on one graph, which is ahead in what, and by how much."""
    cautions = []
    known = [each for each in runs if each.graph is not None]
    graphs = [_graph_identity(each) for each in known]
    if None in graphs:
        graphs = [str((each.graph, *map(each.settings.get, ("graph.vertices", "graph.edges")))) for each in known]
    differ = len(set(graphs)) > 1
    if differ:
        cautions.append("The runs are on different graphs: times, costs and scores do not compare.")
    for each in runs:
        if each.state not in ("finished", "stopped early"):
            verb = (
                "is still running" if each.state == "running" else f"was {each.state}".replace("was crashed", "crashed")
            )
            cautions.append(f"{each.name} {verb}: its figures are of {_count(each.epochs)}.")
    if differ:
        return cautions
    many = len(runs) > 2
    lengths = len({each.epochs for each in runs}) > 1
    times = [(each.seconds_per_epoch, each, "") for each in runs if each.seconds_per_epoch]
    costs = [(each.usd, each, f"for {_count(each.epochs)}" if lengths else "") for each in runs if each.usd]
    return [
        *cautions,
        *_least("the fastest" if many else "faster", "equally fast", times, _per_epoch, SAME_TIME, "takes {} as long"),
        *_least("the cheapest" if many else "cheaper", "equally cheap", costs, dollars, SAME_COST, "costs {} as much"),
        *_most_accurate(runs, "the most accurate" if many else "more accurate"),
    ]


def _graph_identity(entry: RunEntry) -> str | None:
    """The sizes and the checksum of its graph, whatever its name; None where the folder does not say."""
    try:
        facts = RunFolder.open(Path(entry.path)).read_graph_facts()
    except DorylusError:
        return None
    return str(facts["identity"]) if facts and "identity" in facts else None


def _count(epochs: int) -> str:
    return f"{epochs:,} epoch{'' if epochs == 1 else 's'}"


Ranked = tuple[float, RunEntry, str]  # a figure, the run, and what it is of


def _least(
    better: str, same: str, ranked: list[Ranked], text: Callable[[float], str], tolerance: float, others: str
) -> Iterable[str]:
    if len(ranked) < 2:
        return
    ranked = sorted(ranked, key=lambda each: each[0])
    least = ranked[0][0]
    first = [each for each in ranked if each[0] <= least * (1 + tolerance)]
    rest = [
        f"{run.name} {others.format(f'{value / least:.2f}x')} {what}".rstrip()
        for value, run, what in ranked[len(first) :]
    ]
    yield _sentence(better, same, [run.name for _, run, _ in first], f"{text(least)} {ranked[0][2]}".rstrip(), rest)


def _per_epoch(seconds: float) -> str:
    return f"{units.seconds(seconds)} per epoch"


def _most_accurate(runs: Sequence[RunEntry], better: str) -> Iterable[str]:
    part = "test" if all(each.score("test") is not None for each in runs) else "val"
    ranked = sorted(
        ((score, each) for each in runs if (score := each.score(part)) is not None), key=lambda each: -each[0]
    )
    if len(ranked) < 2:
        return
    most = ranked[0][0]
    first = [each for each in ranked if each[0] >= most - SAME_SCORE]
    rest = [f"{run.name} has {(most - score) * 100:.2f} points less" for score, run in ranked[len(first) :]]
    where = "on test vertices" if part == "test" else "on validation"
    yield _sentence(
        better, "equally accurate", [run.name for _, run in first], f"{units.percent(most, 2)} {where}", rest
    )


def _sentence(better: str, same: str, first: Sequence[str], figure: str, rest: Sequence[str]) -> str:
    ahead = f"{first[0]} is {better}" if len(first) == 1 else f"{', '.join(first[:-1])} and {first[-1]} are {same}"
    return "; ".join([f"{ahead}: {figure}", *rest]) + "."
