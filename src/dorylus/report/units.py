"""Numbers formatted for people: seconds, bytes, shares."""

import math


def seconds(value: float) -> str:
    """A duration in the unit that suits it: 4.1 ms, 2.35 s, 3 min 05 s, 2 h 07 min."""
    if not math.isfinite(value):
        return "–"
    if value < 1:
        return f"{value * 1e3:.3g} ms"
    if value < 59.995:
        return f"{value:.3g} s"
    minutes, rest = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def size(num_bytes: float) -> str:
    """A size in bytes, KiB, MiB or GiB, as memory is counted."""
    value = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit != "MiB" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.2f} GiB"


def percent(share: float | None, digits: int = 1) -> str:
    """A fraction as a percentage; a dash where there is none."""
    if share is None or not math.isfinite(share):
        return "–"
    return f"{share * 100:.{digits}f} %"


def number(value: float | None, digits: int = 4) -> str:
    """A number in a few digits; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}g}"
