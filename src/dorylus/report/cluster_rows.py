"""Rows of the closing table that only runs on several servers, or asynchronous ones, have something to say in."""

from collections import Counter
from typing import Any

from dorylus.report import units
from dorylus.report.summary import Summary, ages_of

# What travels, in the order of an epoch, as people read it.
TRAFFIC = ("ghosts", "ghost_gradients", "weights", "weight_gradients", "weight_exchange")

BAR_COLUMNS = 24
BLOCKS = " ▏▎▍▌▋▊▉█"
YOUNGEST, OLDEST = -3, 6  # ages beyond these are put together: a wide bound would make a long table


def cluster_rows(summary: Summary) -> list[tuple[str, str]]:
    """What the servers were, how busy, what they sent, and how old what they read was; dashes where that is nothing."""
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
    told = [_count(servers, "graph server"), _count(parameters, "parameter server")]
    told += [f"on {_count(summary.machines, 'machine')}"] if summary.machines else []
    told += [f"async with staleness {_setting(summary, 'staleness', 0)}"] if asynchronous else []
    return ", ".join(told)


def _setting(summary: Summary, name: str, default: Any) -> Any:
    return summary.told(name, summary.config.get(name, default))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _busy(summary: Summary) -> str:
    wall_s = sum(summary.epoch_seconds)
    seen = {name: spent_s / wall_s for name, spent_s in summary.busy_seconds.items()} if wall_s else {}
    shares = {name: share for name, share in summary.told("busy", seen).items() if share}
    told = " · ".join(f"{name} {units.percent(share, 0)}" for name, share in shares.items())
    return f"{told} of the time" if told else "–"


def _sent(summary: Summary) -> str:
    counted = summary.told("traffic", summary.traffic)
    epochs = summary.told("epochs", len(summary.epoch_seconds))
    kinds = [kind for kind in TRAFFIC if counted.get(kind)] + [kind for kind in counted if kind not in TRAFFIC]
    sizes = [f"{units.size(counted[kind] / epochs)} {kind.replace('_', ' ')}" for kind in kinds if epochs]
    rounded = sizes and _setting(summary, "ghost_precision", "float32") == "bf16"
    return (" · ".join(sizes) or "–") + (" (ghosts in bf16)" if rounded else "")


def _ages(summary: Summary) -> str:
    ages = _within(ages_of(summary.told("ages", summary.ages)))
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
    waits = summary.told("waits", summary.waits)
    return _count(waits, "time") if waits else "–"
