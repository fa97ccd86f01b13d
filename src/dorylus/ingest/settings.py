"""The settings of an ingest."""

from dataclasses import dataclass
from os import PathLike
from typing import Any

from dorylus.errors import ConfigError, given, unknown_value
from dorylus.graph import MAX_VERTICES, parse_feature_dtype
from dorylus.units import parse_bytes

REORDERINGS = ("none", "degree")

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
