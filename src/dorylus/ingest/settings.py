"""The settings of an ingest, and which columns of its tables are what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral
from os import PathLike
from typing import Any

from dorylus.errors import ConfigError, given, unknown_name, unknown_value
from dorylus.graph import MAX_VERTICES, parse_feature_dtype
from dorylus.units import parse_bytes

REORDERINGS = ("none", "degree")
SPLITS = ("train", "val", "test")
Fill = float | str | Mapping[str, Any] | None

Rows = str | PathLike[str] | Any | None
"""One row per vertex: a file (.npy, .parquet), an array, or None."""


@dataclass(frozen=True, kw_only=True)
class IngestSettings:
    """How edges become a store.

    - ``undirected``: store the reverse of every edge too. A directed store also lists the out-edges of every vertex.
    - ``drop_duplicates``: store every edge once; one given with two weights is refused.
    - ``drop_self_loops``: drop edges from a vertex to itself.
    - ``drop_unknown``: drop edges whose ends are not all among the listed vertices; otherwise one is refused.
    - ``reorder``: "degree" renumbers the vertices by degree, highest first; the store keeps their ids.
    - ``memory``: the memory limit of the process, page cache included: a number of bytes, "4GiB", "800MB".
    - ``num_vertices``: left out, the number of rows of features or labels, or else as many as the edges name.
    - ``features``, ``labels``: files or arrays with one row per vertex. ``train``, ``val``, ``test``: files or arrays
      with the vertex numbers of each split, or one bool per vertex; no training vertex is in another split.
    - ``feature_dtype``: "float16" rounds features to half the bytes; a value too large for float16 is refused.
    - ``name``: left out, the name of the store's folder.
    - ``overwrite``: replace a store that is there already.
    """

    undirected: bool = True
    drop_duplicates: bool = True
    drop_self_loops: bool = False
    drop_unknown: bool = False
    reorder: str = "none"
    memory: int | str = "2GiB"
    num_vertices: int | None = None
    features: Rows = None
    labels: Rows = None
    train: Rows = None
    val: Rows = None
    test: Rows = None
    feature_dtype: str = "float32"
    name: str | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        parse_bytes(self.memory)
        parse_feature_dtype(self.feature_dtype)
        if self.reorder not in REORDERINGS:
            raise ConfigError(unknown_value("reorder", self.reorder, REORDERINGS))
        if self.num_vertices is not None and not 0 <= self.num_vertices <= MAX_VERTICES:
            raise ConfigError(
                f"{given('num_vertices', self.num_vertices)}: a graph has from 0 to {MAX_VERTICES:,} vertices. Give "
                "their number, or leave it out to use as many as the files name."
            )

    @property
    def memory_bytes(self) -> int:
        """The memory limit of the process."""
        return parse_bytes(self.memory)

    @property
    def splits(self) -> dict[str, Rows]:
        """The rows of the splits by the name of their mask."""
        return {"train_mask": self.train, "val_mask": self.val, "test_mask": self.test}

    @property
    def rows(self) -> list[str]:
        """The names of the settings that hold data per vertex."""
        names = ("features", "labels", "train", "val", "test")
        return [name for name in names if getattr(self, name) is not None]


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a vertex table are what.

    - ``id``: the column of ids; left out, the column "id" if there is one, else rows are numbered from 0.
    - ``label``: the column of classes, texts, whole numbers or booleans; an empty value is no label.
    - ``features``: names, or patterns like "f*"; left out, all columns that are not id, label or split.
    - ``categories``: names or patterns of features whose values are categories although they are numbers.
    - ``split``: a column with train, val and test; or {"train": ..., "val": ..., "test": ...} with, for each, a share
      of the labelled vertices of every class (0.6), a column of booleans, a mask, or a list of ids.
    - ``fill``: what replaces missing features: a number, "mean", or {column: number, "mean" or category}.
    - ``seed``: of a split by shares.
    """

    id: str | None = None
    label: str | None = None
    features: str | Sequence[str] | None = None
    categories: str | Sequence[str] = ()
    split: str | Mapping[str, Any] | None = None
    fill: Fill = None
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.split, Mapping):
            self._check_split(self.split)
        elif not isinstance(self.split, str | None):
            raise ConfigError(
                f"{given('split', self.split)}: a split is a column of vertices, or a share of each name, as in "
                "{'train': 0.6, 'val': 0.2}."
            )
        for setting in ("features", "categories"):
            value = getattr(self, setting)
            if not all(isinstance(name, str) for name in _names_of(value)):
                raise ConfigError(f"{given(setting, value)}: columns of vertices are given by name.")
        if isinstance(self.fill, str) and self.fill != "mean":
            raise ConfigError(
                f"{given('fill', self.fill)}: missing features are filled with a number, 'mean', or {{column: value}}."
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or self.seed < 0:
            raise ConfigError(f"{given('seed', self.seed)}: the seed of a split is a whole number, 0 or more.")

    def _check_split(self, split: Mapping[str, Any]) -> None:
        for name in split:
            if name not in SPLITS:
                raise ConfigError(unknown_name("split", str(name), SPLITS))
        shares = [value for value in split.values() if _is_share(value)]
        if shares and len(shares) < len(split):
            raise ConfigError(f"{given('split', dict(split))}: give shares for all splits, or for none.")
        if any(not 0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
            raise ConfigError(f"{given('split', dict(split))}: shares are from 0 to 1, and at most 1 together.")

    @property
    def shares(self) -> dict[str, float] | None:
        """The shares of a split by shares; the test vertices are the rest unless their share is given."""
        if not isinstance(self.split, Mapping) or not any(map(_is_share, self.split.values())):
            return None
        shares = {name: float(self.split.get(name, 0)) for name in SPLITS}
        if "test" not in self.split:
            shares["test"] = max(0.0, 1 - shares["train"] - shares["val"])
        return shares

    def fill_of(self, column: str) -> Any:
        """What replaces a missing value of a column; None: nothing."""
        return self.fill.get(column) if isinstance(self.fill, Mapping) else self.fill


def _names_of(value: Any) -> Sequence[Any]:
    return [] if value is None else value if isinstance(value, Sequence) else [value]


def _is_share(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))
