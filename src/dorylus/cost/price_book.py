"""The price book: what servers, functions and traffic cost, with where and when each price was seen."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from os import PathLike
from pathlib import Path
from typing import Self, TypeVar

from dorylus.cost.price_file import ARCHITECTURES, Prices, read_prices
from dorylus.cost.rows import FunctionService, Instance, Row, TransferPath
from dorylus.errors import ConfigError, DataError, unknown_name
from dorylus.small_files import read_small

OURS = ("aws.toml", "azure.toml", "google.toml", "historic.toml")
OTHER_NAMES = {"aarch64": "arm64", "amd64": "x86_64", "x64": "x86_64"}  # as operating systems call them

R = TypeVar("R", bound=Row)


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
        """This book with more rows; a row of the same name takes the old one's place whole."""
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
        return _find("instance type", name, self.instances, {era: book.instances for era, book in self.past.items()})

    def function(self, name: str) -> FunctionService:
        """The function service of this name."""
        return _find("function service", name, self.functions, {era: book.functions for era, book in self.past.items()})

    def transfer(self, name: str) -> TransferPath:
        """The way of this name that data travels."""
        return _find("transfer path", name, self.transfers, {era: book.transfers for era, book in self.past.items()})

    def historic(self, name: str) -> "PriceBook":
        """The book of the past of this name, as ``"dorylus-2021"``."""
        if name not in self.past:
            raise ConfigError(unknown_name("historic price book", name, self.past))
        return self.past[name]

    def nearest_instance(self, cores: int, memory_bytes: int, arch: str) -> Instance:
        """The cheapest type without GPU that covers a machine: at least its cores and memory, same processor.

        Of equally cheap ones, that with more network, then the first by name. Where none covers it, that with the most
        vCPUs, then the most memory: :meth:`Instance.covers` tells.
        """
        wanted = OTHER_NAMES.get(arch.lower(), arch.lower())
        if wanted not in ARCHITECTURES:
            raise ConfigError(unknown_name("architecture", arch, (*ARCHITECTURES, *OTHER_NAMES)))
        fit = [each for each in self.instances.values() if each.arch == wanted and not each.gpus]
        if not fit:
            raise ConfigError(f"the price book has no {wanted} instance type without GPU: add one, or name a type.")
        covering = [each for each in fit if each.covers(cores, memory_bytes)]
        if covering:
            return min(covering, key=lambda each: (each.usd_per_hour, -(each.network_gbps or 0), each.name))
        return max(fit, key=lambda each: (each.vcpus, each.memory_gib))


def _find(what: str, name: str, rows: Mapping[str, R], past: Mapping[str, Mapping[str, R]]) -> R:
    if name in rows:
        return rows[name]
    old = [book for book, known in past.items() if name in known]
    hint = f" It is in the price book of the past {old[0]!r}." if old else ""
    raise ConfigError(f"{unknown_name(what, name, rows)}{hint} Others can be added by a price book file of your own.")


def _read(path: Path) -> str:
    try:
        return read_small(path).decode()
    except (OSError, ValueError) as error:
        why = "it is not text in UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", error)
        raise DataError(
            f"the price book {path} cannot be read: {why}. Give the path of a TOML file of prices "
            "(docs/cost.md), or leave price_book away, and ours is used."
        ) from error
