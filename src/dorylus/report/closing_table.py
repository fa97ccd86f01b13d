"""The table a run ends with: held-out scores, seconds an epoch, where the time went, memory, work saved, cost.

Runs on several servers, asynchronous runs and runs with functions have rows of their own.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from rich import box
from rich.table import Table

from dorylus import units
from dorylus.cost import Bill, dollars
from dorylus.pools import POOLS
from dorylus.report.summary import Summary, ages_of, summarise
from dorylus.runs import Record


def bill_rows(summary: Summary) -> list[tuple[str, str]]:
    """The total and, of a run on a cluster or with functions, under it every line; nothing where a run has no bill."""
    saved = (summary.result or {}).get("bill")
    if not saved:
        return []
    bill = Bill.from_dict(saved)
    items = [] if _has_threads_alone(summary) else bill.rows()[:-1]
    lines = [f"{what}: {quantity} at {price} = {usd}" for what, quantity, price, usd in items]
    total = f"{dollars(bill.total())} ({dollars(bill.total('paper'))} counted as the paper does)"
    return [("bill", "\n".join([total, *lines]))]


def _has_threads_alone(summary: Summary) -> bool:
    """Whether the threads of one process do all of a run's work: no servers in other processes, no functions."""
    config = summary.config
    return (config.get("cluster", "local"), config.get("pool", "threads")) == ("local", "threads")


# What travels, in the order of an epoch, as people read it.
TRAFFIC = ("ghosts", "ghost_gradients", "weights", "weight_gradients", "weight_exchange")

BAR_COLUMNS = 24
BLOCKS = " ▏▎▍▌▋▊▉█"
YOUNGEST, OLDEST = -3, 6  # ages beyond these are put together: a wide bound would make a long table


def cluster_rows(summary: Summary) -> list[tuple[str, str]]:
    """The servers, how busy they were, what they sent, and the age of what they read; dashes where there is nothing."""
    where = cluster(summary)
    if not where:
        return []
    return [
        ("servers", where),
        ("busy", _busy(summary)),
        ("sent per epoch", _sent(summary)),
        ("age of values read", _ages(summary)),
        ("waited at the bound", _waits(summary)),
        ("faults", _faults(summary)),
    ]


def cluster(summary: Summary) -> str:
    """The servers and the mode of a run in words; nothing for a single server that trains exactly."""
    servers, parameters = (_setting(summary, name, 1) for name in ("servers", "parameter_servers"))
    asynchronous = _setting(summary, "mode", "pipe") == "async"
    if servers == parameters == 1 and not asynchronous:
        return ""
    parts = [_count(servers, "graph server"), _count(parameters, "parameter server")]
    parts += [f"on {_count(summary.machines, 'machine')}"] if summary.machines else []
    parts += [f"async with staleness {_setting(summary, 'staleness', 0)}"] if asynchronous else []
    return ", ".join(parts)


def _setting(summary: Summary, name: str, default: Any) -> Any:
    return summary.figure(name, summary.config.get(name, default))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _busy(summary: Summary) -> str:
    wall_s = sum(summary.epoch_seconds)
    seen = {name: spent_s / wall_s for name, spent_s in summary.busy_seconds.items()} if wall_s else {}
    shares = {name: share for name, share in summary.figure("busy", seen).items() if share}
    text = " · ".join(f"{name} {units.percent(share, 0)}" for name, share in shares.items())
    return f"{text} of the time" if text else "–"


def _sent(summary: Summary) -> str:
    counted = summary.figure("traffic", summary.traffic)
    epochs = summary.figure("epochs", len(summary.epoch_seconds))
    kinds = [kind for kind in TRAFFIC if counted.get(kind)] + [kind for kind in counted if kind not in TRAFFIC]
    sizes = [f"{units.size(counted[kind] / epochs)} {kind.replace('_', ' ')}" for kind in kinds if epochs]
    rounded = sizes and _setting(summary, "ghost_precision", "float32") == "bf16"
    return (" · ".join(sizes) or "–") + (" (ghosts in bf16)" if rounded else "")


def _ages(summary: Summary) -> str:
    ages = _within(ages_of(summary.figure("ages", summary.ages)))
    total = sum(ages.values())
    if not total:
        return "–"
    bound = _setting(summary, "staleness", 0) + 1
    shares = {_label(age): count / total for age, count in sorted(ages.items())}
    text = " · ".join(f"{label}: {units.percent(share)}" for label, share in shares.items())
    width = max(len(label) for label in shares)
    bars = [f"{label:>{width}} {bar(share)}" for label, share in shares.items()]
    return "\n".join([f"{text} (bound {bound})", *bars])


def _within(ages: dict[int, int]) -> Counter[int]:
    kept: Counter[int] = Counter()
    for age, count in ages.items():
        kept[min(max(age, YOUNGEST), OLDEST)] += count
    return kept


def _label(age: int) -> str:
    return f"{age} and less" if age == YOUNGEST else f"{age} and more" if age == OLDEST else str(age)


def bar(share: float) -> str:
    """A bar in eighths of a character; the least share above nothing is seen too."""
    eighths = max(round(share * BAR_COLUMNS * 8), 1 if share else 0)
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + BLOCKS[rest]).rstrip()


def _faults(summary: Summary) -> str:
    """How often servers were lost, and how many messages of sessions that were over came afterwards."""
    refused = f"{_count(summary.refused, 'late message')} refused" if summary.refused else ""
    return ", ".join(filter(None, [str(summary.faults) if summary.faults else "", refused])) or "–"


def _waits(summary: Summary) -> str:
    waits = summary.figure("waits", summary.waits)
    return _count(waits, "time") if waits else "–"


REPORTED_AFTER_S = 0.5  # an export that took longer gets a line

PATHS = {
    "direct": "functions fetch tensors from our data ports",
    "inline": "tensors travel in the payloads of invocations",
}


def pool_line(record: Record) -> str | None:
    """A line for what a pool records: the data path, and programs whose export took long; None for the rest."""
    if record.get("what") == "data_path":
        path = str(record.get("path"))
        return f"data path {path}: {PATHS.get(path, path)} ({record.get('why')})"
    if record.get("what") == "program" and record.get("seconds", 0.0) > REPORTED_AFTER_S:
        took = units.seconds(record["seconds"])
        return f"exported {record.get('body')}, {record.get('mode')}, in {took}; it is kept for the next run"
    return None


def pool_rows(summary: Summary) -> list[tuple[str, str]]:
    """Rows on functions; nothing for a run without them."""
    pool = (summary.result or {}).get("pool")
    if not pool:
        return []
    sizes = f"{units.size(pool['bytes_in'])} in, {units.size(pool['bytes_out'])} out"
    billed = units.seconds(pool["billed_ms"] / 1000)
    again = f"{pool['relaunches']:,} relaunched, {pool['duplicates'] + pool['duplicate_parts']:,} duplicates dropped"
    faults = f"{pool['timeouts']:,} timed out, {pool['losses']:,} lost, {pool['throttled']:,} throttled"
    where = f"{summary.config.get('pool')}, {pool['data_path']}, {pool['functions']:,} at once at the end"
    count = f"{pool['invocations']:,} ({pool['cold_starts']:,} cold), {sizes}"
    spec = POOLS.get(str(summary.config.get("pool")))
    # Where functions run torch, no invocation is billed by itself.
    if spec is not None and spec.has_functions and spec.runs_torch:
        return [("dense tasks", f"{where}; {count}"), ("tried again", again if pool["relaunches"] else "–")]
    return [
        ("functions", where),
        ("invocations", f"{count}, {billed} billed"),
        ("tried again", f"{again}; {faults}" if pool["relaunches"] or pool["duplicates"] else "–"),
    ]


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
    """The rows of the closing table, without those that have no value."""
    candidates = [
        *(_label_scores(summary) if summary.multilabel else _class_scores(summary)),
        ("epochs", _epochs(summary)),
        ("weights", _weights(summary)),
        ("to go on", _to_go_on(summary)),
        ("loss", units.number(summary.figure("final_loss", summary.loss))),
        ("time per epoch", _time(summary)),
        ("time spent", _time_spent(summary)),
        *cluster_rows(summary),
        *pool_rows(summary),
        *bill_rows(summary),
        ("peak memory", _memory(summary)),
        ("files per epoch", _files(summary)),
        ("work", _work(summary)),
        ("run folder", summary.run_dir or "–"),
    ]
    return [(name, value) for name, value in candidates if value != "–"]


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
    text = f"{read} read, {written} written"
    if not summary.predicted:
        return text
    return text + " (predicted {} and {})".format(*(units.size(summary.predicted[name]) for name in names))


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
    remarks = [] if after is None else [f"synchronous from epoch {after + 1:,} on"]
    remarks += [why] if why else []
    return f"{summary.epoch:,} ({'; '.join(remarks)})" if remarks else f"{summary.epoch:,}"


def _weights(summary: Summary) -> str:
    """The epoch whose weights and scores the result has, where another one is the best on validation or might be."""
    epoch, score = (summary.figure(name, None) for name in ("best_epoch", "best_score"))
    if epoch is None:
        return "–"
    best = f"epoch {epoch:,}, the best on validation ({units.percent(score, 2)})"
    if summary.figure("keep", None) == "best":
        return f"of {best}"
    return f"of the last epoch; {best.replace(', the', ' was the')}" if epoch != summary.epoch else "–"


def _time(summary: Summary) -> str:
    median_s = summary.figure("seconds_per_epoch", summary.median_epoch_seconds)
    total_s = summary.figure("seconds", sum(summary.epoch_seconds))
    if median_s is None:
        return "–"
    return f"{units.seconds(median_s)} (median; {units.seconds(total_s)} in all)"


WORK = {
    "gathering neighbours": ("GA", "∇GA"),
    "dense layers": ("AV", "AV+loss+∇AV", "∇AV"),
    "edge layers": ("AE", "∇AE"),
    "passing rows on": ("SC", "∇SC"),
    "stepping weights": ("WU",),
}
LEAST_SHARE = 0.005  # what rounds to nothing is left out


def _time_spent(summary: Summary) -> str:
    """What threads did in epochs, the most first; for tasks in other processes, it is unknown how long they waited."""
    tasks = summary.task_seconds
    spent = {name: sum(tasks[kind] for kind in kinds) for name, kinds in WORK.items()}
    spent["other tasks"] = sum(tasks.values()) - sum(spent.values())
    total, threads = sum(tasks.values()), summary.config.get("threads")
    if not total:
        return "–"
    waiting = 0.0
    if _has_threads_alone(summary) and threads:
        waiting = max(0.0, threads * sum(summary.epoch_seconds) - total)
    shares = {name: seconds / (total + waiting) for name, seconds in spent.items()}
    ordered = [*sorted(shares.items(), key=lambda each: -each[1]), ("waiting", waiting / (total + waiting))]
    texts = [f"{units.percent(share, 0)} {name}" for name, share in ordered if share >= LEAST_SHARE]
    return ", ".join(texts) + ("" if _has_threads_alone(summary) else " (of the time of all tasks)")


def _work(summary: Summary) -> str:
    work = (summary.result or {}).get("work")
    if isinstance(work, dict):
        work = work.get("summary")
    return str(work) if work else "–"
