"""Reads a price book file, strictly: a price without source or date, or with a key nobody reads, is refused.

The file is TOML. Rows are read into the dataclasses of :mod:`dorylus.cost.rows` by their fields' names and types, so
what a row may hold is written down once.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import date
from decimal import Decimal
from itertools import pairwise
from typing import Any, TypeVar

from dorylus.cost.rows import FunctionService, Instance, Row, Tier, TransferPath
from dorylus.errors import DataError, unknown_name

FORMAT = 1
ARCHITECTURES = ("arm64", "x86_64")
SECTIONS = ("functions", "historic", "instances", "sources", "transfer")
DATE = re.compile(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?")
MAY_BE_ZERO = {"billed_ends", "free_requests", "gpus", "minimum_ms"}  # every other whole number is at least 1

R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Prices:
    """What one file, or one historic set in it, holds: rows by name."""

    instances: Mapping[str, Instance] = field(default_factory=dict)
    functions: Mapping[str, FunctionService] = field(default_factory=dict)
    transfers: Mapping[str, TransferPath] = field(default_factory=dict)
    historic: Mapping[str, "Prices"] = field(default_factory=dict)


def read_prices(text: str, where: str) -> Prices:
    """The rows of a price book file's text; ``where`` names it in errors."""
    try:
        content = tomllib.loads(text, parse_float=Decimal)
    except tomllib.TOMLDecodeError as error:
        raise DataError(f"{where} is not TOML: {error}.") from error
    found = content.pop("format", None)
    if found != FORMAT:
        raise DataError(
            f"{where} says format = {found}, but only {FORMAT} is known: write `format = {FORMAT}` at its top."
        )
    return _prices(content, where)


def _prices(content: Any, where: str) -> Prices:
    _require_table(content, where)
    for section, rows in content.items():
        if section not in SECTIONS:
            raise DataError(f"{where}: {unknown_name('section', section, SECTIONS)}")
        _require_table(rows, f"{where}: {section}")
    sources = content.get("sources", {})
    for name, source in sources.items():
        if not isinstance(source, str) or not source.strip():
            raise DataError(f"{where}: sources.{name} is {source!r}: write in words where the prices were seen.")
    return Prices(
        _section(Instance, content, "instances", sources, where),
        _section(FunctionService, content, "functions", sources, where),
        _section(TransferPath, content, "transfer", sources, where),
        {name: _prices(rows, f"{where}: historic.{name}") for name, rows in content.get("historic", {}).items()},
    )


def _section(
    kind: type[R], content: Mapping[str, Any], section: str, sources: Mapping[str, str], where: str
) -> dict[str, R]:
    rows = content.get(section, {})
    return {name: _row(kind, name, values, sources, f"{where}: {section}.{name}") for name, values in rows.items()}


def _row(kind: type[R], name: str, values: Any, sources: Mapping[str, str], where: str) -> R:
    _require_table(values, where)
    known = {each.name: each for each in fields(kind) if each.name != "name"}
    for key in values:
        if key not in known:
            raise DataError(f"{where}: {unknown_name('key', key, known)}")
    for key, each in known.items():
        if key not in values and each.default is MISSING:
            raise DataError(f"{where} has no {key}. Every {kind.__name__} row needs one{_why(key)}.")
    read = {key: _READERS[known[key].type](value, key, f"{where}.{key}") for key, value in values.items()}
    if read["source"] not in sources:
        raise DataError(f"{where}: {unknown_name('source', read['source'], sources)} Sources stand under [sources].")
    return kind(name=name, **(read | {"source": sources[read["source"]]}))


def _why(key: str) -> str:
    if key == "source":
        return ", so that a price can be looked up again: a name that stands under [sources]"
    return ', so that a price is known to be old: date = "2026-08-31", "2026-08" or "2026"' if key == "date" else ""


def _require_table(value: Any, where: str) -> None:
    if not isinstance(value, dict):
        raise DataError(f"{where} is {value!r}, but must be a table.")


def _text(value: Any, key: str, where: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where} is {value!r}, but must be text.")
    if key == "date":
        _require_date(value, where)
    if key == "arch" and value not in ARCHITECTURES:
        raise DataError(f"{where}: {unknown_name('architecture', value, ARCHITECTURES)}")
    return value


def _require_date(text: str, where: str) -> None:
    match = DATE.fullmatch(text)
    year, month, day = (int(part or 1) for part in match.groups()) if match else (0, 0, 0)
    try:
        date(year, month, day)
    except ValueError as error:
        raise DataError(f'{where} is {text!r}: write a date as "2026-08-31", "2026-08" or "2026".') from error


def _amount(value: Any, key: str, where: str) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not Decimal(value).is_finite() or value < 0:
        raise DataError(f"{where} is {value!r}, but must be a number that is not negative.")
    if key in ("memory_gib", "spot_factor") and value == 0:
        raise DataError(f"{where} is 0, but must be positive.")
    return Decimal(value)


def _count(value: Any, key: str, where: str) -> int:
    least = 0 if key in MAY_BE_ZERO else 1
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise DataError(f"{where} is {value!r}, but must be a whole number, at least {least}.")
    return value


def _flag(value: Any, key: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise DataError(f"{where} is {value!r}, but must be true or false.")
    return value


def _tiers(value: Any, key: str, where: str) -> tuple[Tier, ...]:
    if not isinstance(value, list) or not value:
        raise DataError(
            f"{where} is {value!r}, but must list at least one tier: {{ from_gb_s = 0, usd_per_gb_s = ... }}."
        )
    tiers = []
    for index, each in enumerate(value):
        place = f"{where}[{index}]"
        _require_table(each, place)
        if set(each) != {"from_gb_s", "usd_per_gb_s"}:
            raise DataError(f"{place} has the keys {sorted(each)}, but a tier has from_gb_s and usd_per_gb_s.")
        tiers.append(Tier(*(_amount(each[k], k, f"{place}.{k}") for k in ("from_gb_s", "usd_per_gb_s"))))
    starts = [tier.from_gb_s for tier in tiers]
    if starts[0] != 0 or any(later <= earlier for earlier, later in pairwise(starts)):
        raise DataError(f"{where} start at {[str(s) for s in starts]}: the first starts at 0, each later one after it.")
    return tuple(tiers)


_READERS: dict[Any, Callable[[Any, str, str], Any]] = {
    str: _text,
    int: _count,
    int | None: _count,
    bool: _flag,
    Decimal: _amount,
    Decimal | None: _amount,
    tuple[Tier, ...]: _tiers,
}
