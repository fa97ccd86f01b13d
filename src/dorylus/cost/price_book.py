"""The price book: what servers, functions and traffic cost, with where and when each price was seen.

Its rows are instance types, function services and transfer paths. Prices are exact decimals. A file is read strictly: a
price without source or date, or with an unknown key, is refused.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import date
from decimal import Decimal
from functools import partial
from importlib.resources import files
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar

from dorylus.cost.money import product
from dorylus.errors import ConfigError, DataError, given, unknown_name, unknown_value
from dorylus.files import read_small

BYTES_PER_GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Row:
    """What every row has: its name, and where and when its price was seen (``date`` as exact as it is known)."""

    name: str
    source: str
    date: str
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Instance(Row):
    """A server that is rented by the hour."""

    arch: str
    vcpus: int
    memory_gib: Decimal
    usd_per_hour: Decimal
    network_gbps: Decimal | None = None  # sustained, not in a burst
    spot_factor: Decimal | None = None  # median spot price over on-demand price
    gpu: str = ""
    gpus: int = 0

    @property
    def memory_bytes(self) -> int:
        """Its memory in bytes."""
        return int(product(self.memory_gib, BYTES_PER_GIB))

    def covers(self, cores: int, memory_bytes: int) -> bool:
        """Whether it has at least these cores and this memory."""
        return self.vcpus >= cores and self.memory_bytes >= memory_bytes


@dataclass(frozen=True)
class Tier:
    """A price that holds from so many GB-s of a month on, until the next tier."""

    from_gb_s: Decimal
    usd_per_gb_s: Decimal


@dataclass(frozen=True)
class Rounding:
    """How a service rounds what a call used: time up to a step and a least time, memory up to a step."""

    granularity_ms: int = 1
    minimum_ms: int = 0
    memory_step_mb: int = 1


@dataclass(frozen=True, kw_only=True)
class FunctionService(Row):
    """A service that runs functions, paid by memory x time (GB = 1024 MB), vCPU x time and requests.

    ``free_gb_s`` and ``free_requests`` are what a month gives away, used only with ``free_tier``. Limits are None where
    the service has none or they were not looked up.
    """

    tiers: tuple[Tier, ...]
    usd_per_million_requests: Decimal
    granularity_ms: int
    cold_start_billed: bool
    arch: str = ""
    usd_per_vcpu_s: Decimal = Decimal(0)
    minimum_ms: int = 0
    memory_step_mb: int = 1
    free_gb_s: Decimal = Decimal(0)
    free_requests: int = 0
    memory_min_mb: int | None = None
    memory_max_mb: int | None = None
    mb_per_vcpu: int | None = None
    timeout_s: int | None = None
    payload_limit_mb: int | None = None

    @property
    def rounding(self) -> Rounding:
        """How calls are rounded, for the :class:`~dorylus.cost.Meter`."""
        return Rounding(self.granularity_ms, self.minimum_ms, self.memory_step_mb)


@dataclass(frozen=True, kw_only=True)
class TransferPath(Row):
    """A path that data takes. Each of ``billed_ends`` pays ``usd_per_gb``: both ends of cross-zone traffic do."""

    what: str
    usd_per_gb: Decimal
    billed_ends: int

    @property
    def usd_per_gb_moved(self) -> Decimal:
        """What moving one GB costs in all."""
        return product(self.usd_per_gb, self.billed_ends)


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
    version = content.pop("format", None)
    if version != FORMAT:
        raise DataError(
            f"{where} says format = {version}, but only {FORMAT} is known: write `format = {FORMAT}` at its top."
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


OURS = ("aws.toml", "azure.toml", "google.toml", "historic.toml")
OTHER_NAMES = {"aarch64": "arm64", "amd64": "x86_64", "x64": "x86_64"}  # as operating systems call them


@dataclass(frozen=True)
class PriceBook:
    """Rows by name: ``instances``, ``functions`` (services that run them), ``transfers``, and books of the past."""

    instances: Mapping[str, Instance]
    functions: Mapping[str, FunctionService]
    transfers: Mapping[str, TransferPath]
    past: Mapping[str, "PriceBook"] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None) -> Self:
        """The price book that comes with the package, with the rows of a file of the user's put over it."""
        folder = files("dorylus.cost") / "prices"
        book = cls({}, {}, {})
        for name in OURS:
            book = book.with_rows(read_prices((folder / name).read_text("utf-8"), f"prices/{name}"))
        return book if path is None else book.with_rows(read_prices(_read(Path(path)), str(path)))

    def with_rows(self, prices: Prices) -> Self:
        """This book with more rows; a row replaces the one of the same name entirely."""
        past = dict(self.past)
        for name, rows in prices.historic.items():
            past[name] = past.get(name, type(self)({}, {}, {})).with_rows(rows)
        return type(self)(
            {**self.instances, **prices.instances},
            {**self.functions, **prices.functions},
            {**self.transfers, **prices.transfers},
            past,
        )

    def instance(self, name: str) -> Instance:
        """The instance type of this name."""
        past = {era: book.instances for era, book in self.past.items()}
        return _find(partial(unknown_value, "instance"), name, self.instances, past)

    def function(self, name: str) -> FunctionService:
        """The function service of this name."""
        past = {era: book.functions for era, book in self.past.items()}
        return _find(partial(unknown_value, "function_service"), name, self.functions, past)

    def transfer(self, name: str) -> TransferPath:
        """The transfer path of this name."""
        past = {era: book.transfers for era, book in self.past.items()}
        return _find(partial(unknown_name, "transfer path"), name, self.transfers, past)

    def historic(self, name: str) -> "PriceBook":
        """The book of the past of this name, as ``"dorylus-2021"``."""
        if name not in self.past:
            raise ConfigError(unknown_name("historic price book", name, self.past))
        return self.past[name]

    def nearest_instance(self, cores: int, memory_bytes: int, arch: str) -> Instance:
        """The cheapest type without GPU that covers a machine: at least its cores and memory, same processor.

        Of equally cheap ones, that with more network, then the first by name. Where none covers it, that with the most
        vCPUs, then the most memory: :meth:`Instance.covers` decides.
        """
        processor = OTHER_NAMES.get(arch.lower(), arch.lower())
        if processor not in ARCHITECTURES:
            raise ConfigError(unknown_name("architecture", arch, (*ARCHITECTURES, *OTHER_NAMES)))
        fit = [each for each in self.instances.values() if each.arch == processor and not each.gpus]
        if not fit:
            raise ConfigError(f"the price book has no {processor} instance type without GPU: add one, or name a type.")
        covering = [each for each in fit if each.covers(cores, memory_bytes)]
        if covering:
            return min(covering, key=lambda each: (each.usd_per_hour, -(each.network_gbps or 0), each.name))
        return max(fit, key=lambda each: (each.vcpus, each.memory_gib))


def _find(
    refusal: Callable[[str, Mapping[str, R]], str],
    name: str,
    rows: Mapping[str, R],
    past: Mapping[str, Mapping[str, R]],
) -> R:
    if name in rows:
        return rows[name]
    old = [book for book, known in past.items() if name in known]
    hint = f" It is in the price book of the past {old[0]!r}." if old else ""
    raise ConfigError(f"{refusal(name, rows)}{hint} Others can be added by a {given('price_book')} of your own.")


def _read(path: Path) -> str:
    try:
        return read_small(path).decode()
    except (OSError, ValueError) as error:
        why = "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", error)
        raise DataError(
            f"{given('price_book', str(path))} cannot be read: {why}. Give the path of a TOML file of prices "
            f"(docs/cost.md), or leave {given('price_book')} out, and ours is used."
        ) from error
