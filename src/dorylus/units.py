"""Amounts as people write them: sizes in bytes, read and written; seconds, shares and numbers, written."""

import math
import re

from dorylus.errors import ConfigError, given

_POWERS = ("", "k", "m", "g", "t")
UNITS = {f"{prefix}b": 1000**power for power, prefix in enumerate(_POWERS)} | {
    f"{prefix}ib": 1024**power for power, prefix in enumerate(_POWERS) if prefix
}


MOST = 1 << 60


def parse_bytes(amount: int | str, what: str = "memory") -> int:
    """The number of bytes that ``amount`` stands for: 4294967296, "4GiB", "800 MB", "1.5GB"; at least one.

    KiB, MiB, GiB, TiB are powers of 1024; kB, MB, GB, TB powers of 1000.
    """
    if isinstance(amount, bool) or not isinstance(amount, int | str):
        raise ConfigError(f"{given(what, amount)}: give a number of bytes, or text like '4GiB' or '800MB'.")
    number = amount if isinstance(amount, int) else _bytes_of(amount, what)
    if number < 1:
        raise ConfigError(
            f"{given(what, amount)}: an amount of memory is at least one byte. Give one like '4GiB' or '800MB'."
        )
    if number > MOST:
        raise ConfigError(f"{given(what, amount)}: no machine has so much. Give at most {MOST >> 50:,} PiB.")
    return number


def format_bytes(number: int) -> str:
    """A number of bytes as people read it: 512 B, 1.5 GiB."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number >= 1024**power:
            return f"{number / 1024**power:.1f} {unit}"
    return f"{number} B"


def _bytes_of(text: str, what: str) -> int:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text, re.IGNORECASE | re.ASCII)
    if match is None:
        raise ConfigError(f"{given(what, text)} is no amount: give a number and a unit, like '4GiB' or '800MB'.")
    number, unit = match[1], match[2].lower()
    if unit not in UNITS and unit:
        raise ConfigError(f"{given(what, text)}: {match[2]!r} is no unit. Use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB.")
    if not unit and "." in number:
        raise ConfigError(f"{given(what, text)}: a part of a byte. Name a unit, like '{number}GiB'.")
    return int(number) if not unit else round(float(number) * UNITS[unit])


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
