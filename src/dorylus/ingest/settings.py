"""What an ingest may be told."""

from dataclasses import dataclass
from os import PathLike
from typing import Any

from dorylus.errors import ConfigError, given, unknown_name
from dorylus.graph import MAX_VERTICES, parse_feature_dtype
from dorylus.sizes import parse_bytes

REORDERINGS = ("none", "degree")

Rows = str | PathLike[str] | Any | None
"""A row a vertex: a file (.npy, .parquet), an array, or none."""


@dataclass(frozen=True, kw_only=True)
class IngestSettings:
    """How edges become a store.

    - ``undirected``: store the reverse of every edge too. A directed store also lists the out-edges of every vertex.
    - ``drop_duplicates``: store every edge once; one given with two weights is refused.
    - ``drop_self_loops``: leave out edges from a vertex to itself.
    - ``reorder``: "degree" numbers the vertices anew, most edges first; the store keeps what they were called.
    - ``memory``: what the process may take, page cache and all: a number of bytes, "4GiB", "800MB".
    - ``num_vertices``: left out, as many as features or labels have rows, or else as the edges name.
    - ``features``, ``labels``: files or arrays with a row a vertex. ``train``, ``val``, ``test``: the same with the
      numbers of the vertices of each split, or with a bool a vertex; nobody is trained on and in another split.
    - ``feature_dtype``: "float16" rounds features to half the bytes; one that is too large for it is refused.
    - ``name``: left out, the name of the store's folder.
    - ``overwrite``: replace a store that is there already.
    """

    undirected: bool = True
    drop_duplicates: bool = True
    drop_self_loops: bool = False
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
            raise ConfigError(unknown_name("vertex order", self.reorder, REORDERINGS))
        if self.num_vertices is not None and not 0 <= self.num_vertices <= MAX_VERTICES:
            raise ConfigError(
                f"{given('num_vertices', self.num_vertices)}: a graph has from 0 to {MAX_VERTICES:,} vertices. Give "
                "their number, or leave it out to have as many as the files name."
            )

    @property
    def memory_bytes(self) -> int:
        """What the process may take."""
        return parse_bytes(self.memory)

    @property
    def splits(self) -> dict[str, Rows]:
        """The rows of the splits by the name of their mask."""
        return {"train_mask": self.train, "val_mask": self.val, "test_mask": self.test}

    @property
    def rows(self) -> list[str]:
        """Which settings give something about every vertex, by its place or number."""
        names = ("features", "labels", "train", "val", "test")
        return [name for name in names if getattr(self, name) is not None]
