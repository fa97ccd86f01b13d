"""The table a run ends with: held-out scores, seconds an epoch, where the time went, memory, work saved.

What only a run on several servers, or an asynchronous one, has to tell is in :mod:`dorylus.report.cluster_rows`; what
it cost in :mod:`dorylus.report.bill_rows`.
"""

from collections.abc import Iterable

from rich import box
from rich.table import Table

from dorylus.observe.sink import Record
from dorylus.report import units
from dorylus.report.bill_rows import bill_rows
from dorylus.report.cluster_rows import cluster_rows
from dorylus.report.pool_rows import pool_rows
from dorylus.report.summary import Summary, summarise

STOP_REASONS = {
    "patience": "validation score no longer rose",
    "target_accuracy": "target accuracy reached",
    "interrupted": "interrupted",
    "budget": "another epoch would pass the budget",
}


def closing_table(run: Summary | Iterable[Record]) -> Table:
    """The closing table of a run, from its summary or its records."""
    summary = run if isinstance(run, Summary) else summarise(run)
    title = f"{summary.model.get('name', 'model')} on {summary.graph.get('name', 'graph')}"
    table = Table(title=title, title_justify="left", box=box.ROUNDED, show_header=False)
    table.add_column(justify="left", style="dim", no_wrap=True)
    table.add_column(justify="left", overflow="fold")
    for name, value in rows(summary):
        table.add_row(name, value)
    return table


def rows(summary: Summary) -> list[tuple[str, str]]:
    """The rows of the closing table: those for which there is something to tell."""
    told = [
        *(_label_scores(summary) if summary.multilabel else _class_scores(summary)),
        ("epochs", _epochs(summary)),
        ("to go on", _to_go_on(summary)),
        ("loss", units.number(summary.told("final_loss", summary.loss))),
        ("time per epoch", _time(summary)),
        ("task time", _shares(summary)),
        *cluster_rows(summary),
        *pool_rows(summary),
        *bill_rows(summary),
        ("peak memory", _memory(summary)),
        ("files per epoch", _files(summary)),
        ("work", _work(summary)),
        ("run folder", summary.run_dir or "–"),
    ]
    return [(name, value) for name, value in told if value != "–"]


def _memory(summary: Summary) -> str:
    here, there = (units.size(each) for each in (summary.peak_memory_bytes, summary.server_peak_memory_bytes))
    if summary.server_peak_memory_bytes:
        return f"{there} on a graph server at most, {here} here"
    if summary.predicted and summary.peak_memory_bytes:
        predicted = units.size(summary.predicted["peak_bytes"])
        return f"{here}, the code of libraries included (predicted without it {predicted})"
    return here if summary.peak_memory_bytes else "–"


def _files(summary: Summary) -> str:
    """What an epoch under a memory limit read and wrote, beside what was predicted."""
    if not summary.files or not summary.epoch_seconds:
        return "–"
    names = ("read_bytes", "written_bytes")
    read, written = (units.size(summary.files[name] / len(summary.epoch_seconds)) for name in names)
    told = f"{read} read, {written} written"
    if not summary.predicted:
        return told
    return told + " (predicted {} and {})".format(*(units.size(summary.predicted[name]) for name in names))


def _to_go_on(summary: Summary) -> str:
    """What to call after a run that its budget stopped, where it can go on."""
    if summary.stop_reason != "budget" or not summary.run_dir:
        return "–"
    return f"dorylus resume {summary.run_dir} --budget-usd MORE"


def _class_scores(summary: Summary) -> list[tuple[str, str]]:
    return [
        ("test accuracy", _score(summary, "test_accuracy")),
        ("validation accuracy", _score(summary, "val_accuracy")),
    ]


def _label_scores(summary: Summary) -> list[tuple[str, str]]:
    f1 = [_score(summary, f"test_{average}_f1") for average in ("micro", "macro")]
    return [
        ("test micro F1 / macro F1", "–" if f1 == ["–", "–"] else " / ".join(f1)),
        ("validation micro F1", _score(summary, "val_micro_f1")),
        ("test accuracy per label", _score(summary, "test_accuracy")),
        ("validation accuracy per label", _score(summary, "val_accuracy")),
    ]


def _score(summary: Summary, name: str) -> str:
    return units.percent(summary.score(name), 2)


def _epochs(summary: Summary) -> str:
    after, why = summary.synchronous_after, STOP_REASONS.get(summary.stop_reason or "")
    told = [] if after is None else [f"synchronous from epoch {after + 1:,} on"]
    told += [why] if why else []
    return f"{summary.epoch:,} ({'; '.join(told)})" if told else f"{summary.epoch:,}"


def _time(summary: Summary) -> str:
    median_s = summary.told("seconds_per_epoch", summary.median_epoch_seconds)
    total_s = summary.told("seconds", sum(summary.epoch_seconds))
    if median_s is None:
        return "–"
    return f"{units.seconds(median_s)} (median; {units.seconds(total_s)} in all)"


def _shares(summary: Summary) -> str:
    return " · ".join(f"{kind} {share:.0%}" for kind, share in summary.shares.items()) or "–"


def _work(summary: Summary) -> str:
    work = (summary.result or {}).get("work")
    if isinstance(work, dict):
        work = work.get("summary")
    return str(work) if work else "–"
