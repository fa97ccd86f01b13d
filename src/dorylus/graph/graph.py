"""Graph: edges, features, labels and masks of a training run, validated once and immutable."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from html import escape
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from dorylus.errors import GraphError, unknown_name
from dorylus.files import check_is_path
from dorylus.graph import validate
from dorylus.graph.arrays import AnyArray, BoolArray, FloatArray, HalfArray, IdArray, OffsetArray, TextIds, VertexIds
from dorylus.graph.coerce import as_float32, as_ids, as_integers, as_labels, as_mask, as_offsets
from dorylus.graph.features import SparseFeatures, as_features, reciprocal, to_float32
from dorylus.graph.locations import is_remote

if TYPE_CHECKING:
    import networkx
    import scipy.sparse

    from dorylus.graph.array_files import FolderFiles

Features: TypeAlias = FloatArray | HalfArray | SparseFeatures
Trust: TypeAlias = Literal["nothing", "edges", "everything"]
MASKS = ("train_mask", "val_mask", "test_mask")

MOST_ORIGIN = 1 << 16  # characters

_NAMES = ("ids", "class_names", "feature_names")
_ATTRIBUTES = (
    "features",
    "labels",
    *MASKS,
    "num_classes",
    "name",
    "num_vertices",
    "undirected",
    "edge_weight",
    *_NAMES,
)
_MEANT = {
    each: ours
    for ours, names in {
        "features": "x feat feats feature node_feat node_features X",
        "labels": "y label target targets classes",
        "train_mask": "train train_idx train_index",
        "val_mask": "val valid valid_mask val_idx",
        "test_mask": "test test_idx",
        "edge_weight": "weight weights edge_attr edge_weights",
        "num_vertices": "num_nodes n_nodes n",
        "is no argument of Graph.from_edges: give undirected=False for edges of one direction.": "directed",
        "is no argument of Graph.from_edges: give its two rows, as in Graph.from_edges(*edge_index).": "edge_index",
    }.items()
    for each in names.split()
}
_ABSENT: Any = None  # a field left out: features without columns, or a mask that selects no vertex


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """A graph with features, labels and masks, stored by in-edges.

    Row v of the CSR (indptr int64 [N + 1], indices int32 [E]) lists the sources of v's in-edges in ascending order:
    what Gather reads. An edge u -> v, column (u, v) of PyG's ``edge_index``, is entry u of row v. An undirected graph
    stores both directions of every edge.

    - ``features``: float32 [N, F], float16 [N, F] (half the bytes; computation is in float32) or
      :class:`SparseFeatures`; left out, [N, 0].
    - ``labels``: int64 [N] with -1 for none, or uint8 [N, C] of zeros and ones (multi-label), or None.
    - ``edge_weight``: float32 [E] in the order of ``indices``, or None for an unweighted graph.
    - ``train_mask``, ``val_mask``, ``test_mask``: bool [N]; left out, all False.
    - ``num_classes``: left at 0, the number of ``class_names``, the largest label + 1, or the number of label columns.
    - ``ids``: the vertices' ids in the input, int64 [N] or :class:`TextIds`; None if they are the vertex numbers.
    - ``class_names``, ``feature_names``: names of classes and of feature columns, or None.

    ``trust`` skips the checks that take a pass over the "edges" (order, both directions) or over "everything", for
    arrays that are correct by construction. That every edge names an existing vertex is always checked: kernels would
    read outside their arrays.
    """

    indptr: OffsetArray
    indices: IdArray
    features: Features = _ABSENT
    labels: AnyArray | None = None
    edge_weight: FloatArray | None = None
    train_mask: BoolArray = _ABSENT
    val_mask: BoolArray = _ABSENT
    test_mask: BoolArray = _ABSENT
    directed: bool = False
    name: str = "graph"
    num_classes: int = field(default=0, kw_only=True)
    ids: VertexIds | None = field(default=None, kw_only=True)
    class_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    feature_names: tuple[str, ...] | None = field(default=None, kw_only=True)
    store: str | None = field(default=None, init=False)  # the store it was opened from; a derived graph has none
    files: FolderFiles | None = field(default=None, init=False)  # the files of that store, if it is local
    origin: Mapping[str, Any] | None = field(
        default=None, init=False
    )  # [graph] of a run.toml; a derived graph has none
    _normalised: Features | None = field(default=None, kw_only=True)  # the very features that are row-normalised
    trust: InitVar[Trust] = field(default="nothing", kw_only=True)

    def __post_init__(self, trust: Trust) -> None:
        self._coerce_rows()
        validate.check_offsets(self.indptr, self.indices.size)
        validate.check_edges(self.indptr, self.indices)
        self._coerce_attributes()
        validate.check_feature_rows(self.features.shape, self.num_vertices)
        self._coerce_names()
        if trust == "nothing":
            self._check_edges()
        if trust != "everything":
            self._check_vertices()

    @classmethod
    def from_edges(
        cls,
        source: Any,
        destination: Any = None,
        num_vertices: int | None = None,
        *,
        undirected: bool = True,
        edge_weight: Any = None,
        **attributes: Any,
    ) -> Graph:
        """The graph of an edge list in any order; repeated edges are stored once.

        ``undirected`` adds the reverse of every edge. ``num_vertices`` left out is the largest vertex number + 1.
        ``attributes`` are the other fields of :class:`Graph`: features, labels, masks, name, num_classes.
        """
        from dorylus.graph.edges import csr_from_edges

        if destination is None:
            raise GraphError(
                "Graph.from_edges takes the sources and the destinations of edges: give both, or the two rows of an "
                "edge index by Graph.from_edges(*edge_index)."
            )
        for name in attributes:
            if name not in _ATTRIBUTES:
                raise GraphError(unknown_name("argument of Graph.from_edges", name, _ATTRIBUTES, _MEANT))
        indptr, indices, weight = csr_from_edges(
            source, destination, num_vertices, undirected=undirected, weight=edge_weight
        )
        return cls(indptr, indices, edge_weight=weight, directed=not undirected, trust="edges", **attributes)

    @property
    def num_vertices(self) -> int:
        """How many vertices there are."""
        return self.indptr.size - 1

    @property
    def num_edges(self) -> int:
        """How many directed edges are stored: an undirected edge counts twice."""
        return self.indices.size

    @property
    def num_features(self) -> int:
        """How many feature columns there are."""
        return int(self.features.shape[1])

    @property
    def multilabel(self) -> bool:
        """Whether a vertex may have several labels."""
        return self.labels is not None and self.labels.ndim == 2

    @property
    def sparse_features(self) -> bool:
        """Whether the features are a :class:`SparseFeatures`."""
        return isinstance(self.features, SparseFeatures)

    @property
    def feature_dtype(self) -> np.dtype[Any]:
        """The dtype of the features: float32 or float16."""
        return (self.features.values if isinstance(self.features, SparseFeatures) else self.features).dtype

    @property
    def is_row_normalised(self) -> bool:
        """Whether :meth:`row_normalised` made the features: known also of a store, and of a graph with other masks."""
        return self._normalised is not None

    def in_degrees(self) -> OffsetArray:
        """int64 [N], the number of in-edges of each vertex."""
        return np.diff(self.indptr)

    def edge_list(self) -> tuple[IdArray, IdArray]:
        """(source, destination) of every directed edge, int32 [E], by ascending destination, then source."""
        numbers = np.arange(self.num_vertices, dtype=np.int32)
        return self.indices, np.repeat(numbers, self.in_degrees())

    def row_normalised(self) -> Graph:
        """The same graph with each feature row divided by its sum; rows that sum to zero are left as they are.

        A graph whose features are row-normalised already is returned as it is.
        """
        if self.is_row_normalised:
            return self
        if isinstance(self.features, SparseFeatures):
            features: Features = self.features.row_normalised()
        else:
            sums = self.features.sum(axis=1, dtype=np.float64).astype(np.float32)
            features = to_float32(self.features) * reciprocal(sums)[:, None]
        graph = replace(self, features=features, _normalised=features, trust="everything")
        if self.origin is not None:
            object.__setattr__(graph, "origin", {**self.origin, "row_normalise": True})
        return graph

    def with_features(self, names: Sequence[str]) -> Graph:
        """The same graph with feature columns of these names, in this order; one that it lacks is zero everywhere."""
        position = {name: column for column, name in enumerate(names)}
        place = np.array([position[name] for name in self.feature_names or ()], np.int32)
        if isinstance(self.features, SparseFeatures):
            features: Features = self.features.with_columns(place, len(names))
        else:
            dense = np.zeros((self.num_vertices, len(names)), self.features.dtype)
            dense[:, place] = self.features
            features = dense
        normalised = features if self.is_row_normalised else None
        return replace(self, features=features, feature_names=tuple(names), _normalised=normalised, trust="everything")

    def check_files(self) -> None:
        """Refuse to continue if files of its store have changed since it was opened."""
        if self.files is not None:
            self.files.check()

    def save(self, path: str | PathLike[str], *, overwrite: bool = False, feature_dtype: str | None = None) -> None:
        """Write the graph as a store folder, atomically.

        ``feature_dtype``: "float32", or "float16", which rounds features to half the bytes; left out, their own type.
        """
        from dorylus.graph.store import save

        check_is_path("path", path, "my-graph")
        save(self, path, overwrite=overwrite, feature_dtype=feature_dtype)

    @classmethod
    def open(cls, path: str | PathLike[str], *, verify: bool = False) -> Graph:
        """The graph of a store folder, memory-mapped; ``verify`` also reads every byte and compares checksums."""
        from dorylus.graph.store import open_store

        check_is_path("path", path, "my-graph")
        return open_store(path, verify=verify)

    @classmethod
    def ingest(cls, edges: Any, store: str | PathLike[str], **settings: Any) -> Graph:
        """The graph of an edge list larger than memory, written as a store folder and opened.

        ``edges``: files (a path, several, a pattern, a folder), a tuple of arrays (source, destination, perhaps
        weight), or one array of shape [E, 2] or [2, E]. ``settings``, each with its default:

        - undirected=True, drop_duplicates=True, drop_self_loops=False: which edges are stored.
        - memory="2GiB": the memory limit of the process. reorder="none", or "degree": most edges first.
        - features, labels, train, val, test: .npy or .parquet files, or arrays, with one row per vertex (splits also
          with vertex numbers). feature_dtype="float32", or "float16". num_vertices: left out, the number of those
          rows, or as many as the edges name.
        - vertices: all ids in the order of those rows, which names and ids="map" need; or a table with the columns of
          :meth:`from_tables` (id, label, features, categories, split, seed, fill, drop_unknown).
        - format, columns, delimiter, header, comments="#%", dtype, ids="auto": how files are read.
        - name, overwrite=False, and tell, which is called with the progress of every stage.

        See also :class:`dorylus.ingest.settings.IngestSettings`, ``open_edges`` and docs/cli.md.
        """
        from dorylus.ingest import ingest_edges

        check_is_path("store", store, "my-graph")
        ingest_edges(edges, store, **settings)
        return cls.open(store)

    @classmethod
    def from_tables(cls, edges: Any, vertices: Any, **options: Any) -> Graph:
        """The graph of a table of edges and a table of vertices, whose rows are joined by id.

        Each is a table in memory (pandas, polars, DuckDB, pyarrow: anything with ``__arrow_c_stream__``) or CSV or
        Parquet files. The rows of ``vertices`` are the vertices in their order.

        - source, target, weight: columns of edges; left out, the first two, or all of a table of two or three.
        - id: the column of ids, texts or whole numbers; left out, "id" if there is one, else rows count from 0.
        - label: the column of classes, texts, whole numbers or booleans; an empty value is no label.
        - features: names, or patterns like "f*", of numbers, booleans, lists of numbers or categories (texts; also
          numbers named in ``categories``); left out, all other columns.
        - fill: what replaces missing features: a number, "mean", or {column: value}; otherwise one is refused.
        - split: a column with train, val and test; shares of every class, {"train": .6, "val": .2}, chosen by ``seed``
          (the rest is test); or {"train": ...} with a column of booleans, a mask, or a list of ids.
        - undirected=True, drop_self_loops=False; drop_unknown=False: edges to an id that no vertex has are refused.
        - format, delimiter, header, comments, ids: how files of edges are read.

        See docs/tables.md. ``Graph.ingest`` with the same columns writes a store within a memory limit.
        """
        from dorylus.ingest import graph_of_tables

        graph = graph_of_tables(edges, vertices, **options)
        if all(map(is_path, (edges, vertices))):
            tables = {"edges": absolute_paths(edges), "vertices": absolute_paths(vertices), **options}
            note_origin(graph, tables=tables)
        return graph

    @classmethod
    def from_pyg(cls, data: Any, *, split: int | None = None) -> Graph:
        """The graph of a PyG ``Data``; ``split`` chooses a column of masks that hold several."""
        from dorylus.graph.interop import pyg

        return pyg.from_pyg(data, split=split)

    def to_pyg(self) -> Any:
        """A PyG ``Data`` with x, edge_index, y, masks and, for weighted graphs, edge_weight."""
        from dorylus.graph.interop import pyg

        return pyg.to_pyg(self)

    @classmethod
    def from_dgl(cls, graph: Any, *, weight: str = "weight", split: int | None = None) -> Graph:
        """The graph of a homogeneous ``DGLGraph`` with ndata feat, label and masks, and edata ``weight``."""
        from dorylus.graph.interop import dgl

        return dgl.from_dgl(graph, weight=weight, split=split)

    def to_dgl(self) -> Any:
        """A ``DGLGraph`` with ndata feat, label, masks and, for weighted graphs, edata weight."""
        from dorylus.graph.interop import dgl

        return dgl.to_dgl(self)

    @classmethod
    def from_networkx(
        cls,
        graph: networkx.Graph,
        *,
        features: str | None = None,
        labels: str | None = None,
        weight: str | None = None,
    ) -> Graph:
        """The graph of a NetworkX graph, vertices numbered in its node order.

        ``features`` and ``labels`` name node attributes, ``weight`` an edge attribute. Left out, they are "x", "y" and
        "weight" where the graph has those; a name that is given must be there. Masks are the node attributes
        train_mask, val_mask and test_mask.
        """
        from dorylus.graph.interop import networkx

        return networkx.from_networkx(graph, features=features, labels=labels, weight=weight)

    def to_networkx(self) -> networkx.Graph:
        """A NetworkX ``Graph`` or ``DiGraph`` with node attributes x, y and the masks."""
        from dorylus.graph.interop import networkx

        return networkx.to_networkx(self)

    @classmethod
    def from_scipy(cls, matrix: scipy.sparse.sparray | scipy.sparse.spmatrix, **attributes: Any) -> Graph:
        """The graph of a SciPy sparse matrix: entry (u, v) is the edge u -> v and its weight."""
        from dorylus.graph.interop import scipy

        return scipy.from_scipy(matrix, **attributes)

    def to_scipy(self) -> scipy.sparse.csr_array[np.float32, tuple[int, int]]:
        """The adjacency matrix as a SciPy CSR array: entry (u, v) is the weight of edge u -> v, or 1."""
        from dorylus.graph.interop import scipy

        return scipy.to_scipy(self)

    @classmethod
    def from_ogb(cls, dataset: Any, *, root: str | PathLike[str] | None = None, download: bool = True) -> Graph:
        """The graph of an OGB node-property data set, given as its name or as the loaded object."""
        from dorylus.graph.interop import ogb

        return ogb.from_ogb(dataset, root=root, download=download)

    def to_ogb(self) -> tuple[dict[str, Any], AnyArray | None, dict[str, AnyArray]]:
        """OGB's library-agnostic form: (graph dict, labels [N, tasks], split index)."""
        from dorylus.graph.interop import ogb

        return ogb.to_ogb(self)

    def __repr__(self) -> str:
        *sizes, split = self._rows().items()
        figures = [value.replace(" ", f" {name} ", 1) if " " in value else f"{value} {name}" for name, value in sizes]
        return f"Graph({self.name!r}: {', '.join(figures)}, {split[1]})"

    def _repr_html_(self) -> str:
        """A table, for notebooks."""
        return html_table(f"Graph {self.name!r}", self._rows())

    def _rows(self) -> dict[str, str]:
        """Its sizes, by name."""
        kind = ("directed" if self.directed else "undirected") + ("" if self.edge_weight is None else ", weighted")
        form = "sparse " if self.sparse_features else "float16 " if self.feature_dtype == np.float16 else ""
        split = " / ".join(f"{int(getattr(self, name).sum()):,} {name.removesuffix('_mask')}" for name in MASKS)
        return {
            "vertices": f"{self.num_vertices:,}",
            "directed edges": f"{self.num_edges:,} ({kind})",
            f"{form}features": f"{self.num_features:,}",
            "labels" if self.multilabel else "classes": f"{self.num_classes:,}",
            "split": split,
        }

    def _coerce_rows(self) -> None:
        object.__setattr__(self, "indptr", as_offsets(self.indptr))
        object.__setattr__(self, "indices", as_ids(self.indices))

    def _coerce_attributes(self) -> None:
        set_field = object.__setattr__
        features = as_features(self.features, self.num_vertices)
        # Features that replace the normalised ones are others.
        same = self._normalised is not None and self._normalised is self.features
        set_field(self, "_normalised", features if same else None)
        set_field(self, "features", features)
        if self.labels is not None:
            set_field(self, "labels", as_labels(self.labels))
        if self.edge_weight is not None:
            set_field(self, "edge_weight", np.ascontiguousarray(as_float32(self.edge_weight, "edge_weight")))
        for name in MASKS:
            set_field(self, name, as_mask(getattr(self, name), self.num_vertices, name))
        named = 0 if self.class_names is None else len(self.class_names)
        set_field(self, "num_classes", self.num_classes or named or _count_classes(self.labels))

    def _coerce_names(self) -> None:
        for name, count in (("class_names", self.num_classes), ("feature_names", self.num_features)):
            names = getattr(self, name)
            if names is None:
                continue
            object.__setattr__(self, name, tuple(map(str, names)))
            if len(names) != count:
                raise GraphError(f"there are {len(names):,} {name}, but {count:,} of those: give one name for each.")
        ids = self.ids
        if ids is not None and not isinstance(ids, TextIds):
            object.__setattr__(self, "ids", ids := as_integers(ids, "ids").astype(np.int64, copy=False))
        if ids is not None and len(ids) != self.num_vertices:
            raise GraphError(f"there are {len(ids):,} ids, but {self.num_vertices:,} vertices: give one id for each.")

    def _check_edges(self) -> None:
        validate.check_ascending(self.indptr, self.indices)
        if self.edge_weight is not None:
            validate.check_weights(self.indptr, self.indices, self.edge_weight)
        if not self.directed:
            validate.check_symmetric(self.indptr, self.indices, self.edge_weight)

    def _check_vertices(self) -> None:
        if isinstance(self.features, SparseFeatures):
            self.features.check()
        else:
            validate.check_features(self.features, self.num_vertices)
        if self.labels is not None:
            validate.check_labels(self.labels, self.num_vertices, self.num_classes)
        for name in MASKS:
            validate.check_mask(getattr(self, name), self.labels, name)


def note_origin(graph: Graph, **origin: Any) -> Graph:
    """The graph, with the note of how it is made again where that is short plain data: names, paths and numbers."""
    plain = _plain({name: value for name, value in origin.items() if value is not None})
    if graph.origin is None and plain is not None and len(repr(plain)) <= MOST_ORIGIN:
        object.__setattr__(graph, "origin", plain)
    return graph


def is_path(value: Any) -> bool:
    """Whether it is a path or a list of paths."""
    several = value if isinstance(value, list | tuple) else [value]
    return all(isinstance(each, str | PathLike) for each in several)


def absolute_paths(value: Any) -> Any:
    """A path, or a list of paths, that names the same files from any working directory."""
    if isinstance(value, list | tuple):
        return [absolute_paths(each) for each in value]
    return value if is_remote(value) else os.path.abspath(os.path.expanduser(value))


def _plain(value: Any) -> Any:
    """The value as TOML holds it; None if it cannot."""
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        table = {str(name): _plain(each) for name, each in value.items() if each is not None}
        return None if any(each is None for each in table.values()) else table
    if isinstance(value, list | tuple):
        several = [_plain(each) for each in value]
        return None if any(each is None for each in several) else several
    return None


def html_table(title: str, rows: Mapping[str, str]) -> str:
    """A table of names and values, for notebooks; both may hold any text."""
    lines = [f"<tr><th style='text-align: left'>{escape(name)}</th><td>{escape(rows[name])}</td></tr>" for name in rows]
    return f"<table><caption>{escape(title)}</caption>{''.join(lines)}</table>"


def _count_classes(labels: AnyArray | None) -> int:
    if labels is None or labels.size == 0:
        return 0
    return labels.shape[1] if labels.ndim == 2 else max(int(labels.max()), -1) + 1
