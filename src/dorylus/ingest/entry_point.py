"""The entry points of an ingest: edges in files, arrays or tables become a store, or a graph in memory.

Of a table of vertices (``vertex_table``) the ids are listed first: its rows are the vertices in their order, and edges
are joined to them by id.
"""

from ast import literal_eval
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.backends import WeightClash
from dorylus.errors import ConfigError, DataError, DorylusError, GraphError, given, spelled, unknown_name
from dorylus.graph import (
    STORE,
    Address,
    AnyArray,
    FloatArray,
    Graph,
    IdArray,
    TextIds,
    as_float32,
    as_integers,
    check_target,
    csr_from_edges,
    is_remote,
    repeated_edge_error,
)
from dorylus.ingest.attributes import check_disjoint
from dorylus.ingest.batches import EdgeBatch, EdgeSource, Tokens, locate_by_number
from dorylus.ingest.budget import IDS_SHARE, NO_READER_MEMORY, shares_of, too_many_ids
from dorylus.ingest.numbering import AnyNumbering, DenseIds, IdTableFullError, NumberedByAppearance, make_numbering
from dorylus.ingest.pipeline import Ingested, PeekedBatches, VertexBound, ingest, read_edges
from dorylus.ingest.readers.files import FileEdges, open_edges, open_vertices
from dorylus.ingest.readers.options import ReadOptions
from dorylus.ingest.readers.table import TableEdges, is_arrow_table
from dorylus.ingest.reordering import original_id
from dorylus.ingest.row_files import ComputedRows
from dorylus.ingest.settings import IngestSettings, TableColumns
from dorylus.ingest.vertex_table import VertexTable
from dorylus.process_memory import give_back, resident_bytes
from dorylus.progress import ReportStage, silent

BATCH = 1 << 20


class ArrayEdges:
    """A source of the edges source[e] -> destination[e] in arrays, which may be memory-mapped; weights are optional."""

    def __init__(self, source: Any, destination: Any, weight: Any = None, *, batch: int = BATCH) -> None:
        self._source = as_integers(source, "source")
        self._destination = as_integers(destination, "destination")
        self._weight = None if weight is None else np.asarray(weight)
        self._batch = batch
        sizes = [len(each) for each in (self._source, self._destination, self._weight) if each is not None]
        if len(set(sizes)) > 1:
            counts = " and ".join(map(str, sizes))
            raise GraphError(f"there are {counts} sources, destinations and weights. Give one of each per edge.")
        self.num_edges = len(self._source)
        self.total_bytes: int | None = 16 * self.num_edges

    @classmethod
    def of_pairs(cls, pairs: Any) -> "ArrayEdges":
        """The edges of an array [E, 2] or [2, E]; in a 2 by 2 array the rows are the edges."""
        array = np.asarray(pairs)
        if array.ndim != 2 or 2 not in array.shape:
            raise GraphError(f"edges have shape {list(array.shape)}. Edges are of shape [edges, 2] or [2, edges].")
        source, destination = array.T if array.shape[1] == 2 else array
        return cls(source, destination)

    def __iter__(self) -> Iterator[EdgeBatch]:
        """The batches in order."""
        for begin in range(0, self.num_edges, self._batch):
            end = min(begin + self._batch, self.num_edges)
            source = np.asarray(self._source[begin:end], dtype=np.int64)
            destination = np.asarray(self._destination[begin:end], dtype=np.int64)
            weight = None if self._weight is None else as_float32(self._weight[begin:end], "edge_weight")
            yield EdgeBatch(source, destination, weight, 16 * end, locate_by_number(begin))


READING = frozenset({"format", "columns", "delimiter", "header", "comments", "dtype", "ids"})
"""Options of ``open_edges``: how files are read."""
COLUMNS = frozenset(each.name for each in fields(TableColumns))
ENDS = ("source", "target", "weight")
OF_TABLES = frozenset({*ENDS, "undirected", "drop_duplicates", "drop_self_loops", "drop_unknown", "name"})
"""Settings of ``graph_of_tables`` of its own."""
IN_TABLE = COLUMNS - {"features"}
"""Settings that make ``vertices`` a table of vertices; ``features`` are then names of its columns."""


def ingest_edges(
    edges: Any, store: Address, *, vertices: Any = None, tell: ReportStage = silent, **options: Any
) -> Ingested:
    """Write edges as a store: files, arrays, or a source of batches.

    Arrays are a tuple (source, destination[, weight]), or one array of shape [E, 2] or [2, E].

    ``options`` are those of :class:`IngestSettings` and, for files, of ``open_edges``. ``vertices`` are files, or an
    array of numbers, that list all ids in the order of the store. With any option of :class:`TableColumns` they are a
    table with ids, features, labels and split.
    """
    known = {each.name for each in fields(IngestSettings)} | READING | COLUMNS
    for name in sorted(options.keys() - known):
        raise ConfigError(unknown_name("setting", name, known | {"vertices"}))
    reading = {name: value for name, value in options.items() if name in READING}
    if is_arrow_table(vertices) or options.keys() & IN_TABLE:
        return _ingest_tables(edges, vertices, store, options, reading, tell)
    settings = IngestSettings(**{name: value for name, value in options.items() if name not in READING})
    if vertices is not None and reading.get("ids", "auto") == "auto":
        reading["ids"] = "map"  # a list numbers arbitrary ids; names are recognised either way
    source, ids = _source_of(edges, reading), str(reading.get("ids", "auto"))
    if vertices is None:
        _check_rows_have_ids(source, ids, settings)
    strings = bool(getattr(source, "strings", False))
    listed = None if vertices is None else _listed(vertices, strings=strings)
    with _numbering(source, ids, listed, settings, store) as numbering:
        return _ingested(source, numbering, store, settings, tell)


def _ingested(
    source: EdgeSource, numbering: AnyNumbering, store: Address, settings: IngestSettings, tell: ReportStage
) -> Ingested:
    # The table of listed vertices is complete, and part of what is resident.
    grows = isinstance(numbering, NumberedByAppearance) and not numbering.fixed
    made = ingest(source, numbering, store, settings, tell, ids_bytes=_ids_bytes(settings) if grows else 0)
    if not isinstance(source, FileEdges):
        return made
    return replace(made, num_files=source.num_files, left_out=tuple(source.left_out), unchecked=tuple(source.unchecked))


def _ingest_tables(
    edges: Any,
    vertices: Any,
    store: Address,
    options: Mapping[str, Any],
    reading: Mapping[str, Any],
    tell: ReportStage,
) -> Ingested:
    """Write edges and a table of vertices as a store."""
    given_columns = sorted(options.keys() & IN_TABLE)
    if vertices is None:
        raise ConfigError(
            f"{given(given_columns[0], options[given_columns[0]])} names columns of a table of vertices, but none is "
            f"given: name its file by {given('vertices', ...)}."
        )
    for name in ("labels", "train", "val", "test", "num_vertices"):
        if options.get(name) is not None:
            other = (
                "the rows of the table" if name == "num_vertices" else given("split" if name != "labels" else "label")
            )
            raise ConfigError(f"{given(name, options[name])}, but vertices are a table: use {other} instead.")
    others = {name: value for name, value in options.items() if name not in READING | COLUMNS}
    settings = IngestSettings(**others)
    check_target(store, STORE, settings.overwrite)  # before a large table is read
    shares_of(settings.memory_bytes, after_table=True)
    table = VertexTable.open(vertices, TableColumns(**{name: options[name] for name in options.keys() & COLUMNS}))
    source, strings = _joined_source(edges, table, reading)
    listed = None if table.id is None else table.ids(strings=strings)
    ids = "dense" if listed is None else "map"
    with _numbering(source, ids, listed, settings, store) as numbering:
        rows = {"features": table.feature_rows(), "labels": table.label_rows(), **table.split_rows(numbering)}
        give_back()
        return _ingested(source, numbering, store, replace(settings, **rows), tell)


def _joined_source(edges: Any, table: VertexTable, reading: Mapping[str, Any]) -> tuple[EdgeSource, bool]:
    """The edges with ends of the kind that the table's ids have, and whether those are texts.

    Ids are numbers if both hold whole numbers, else texts.
    """
    requested = str(reading.get("ids", "auto"))
    if table.id is None:
        return _source_of(edges, {**reading, "ids": "dense"}), False
    if requested == "strings" or (requested == "auto" and table.ids_are_texts()):
        source = _source_of(edges, {**reading, "ids": "strings"})
        strings = bool(getattr(source, "strings", False))
        if not strings:
            raise DataError(
                f"the ids in column {table.id!r} of {table.table.name} are texts, but the edges are arrays of numbers: "
                "give both the same ids."
            )
        return source, True
    source = _source_of(edges, {**reading, "ids": "auto"} if requested == "auto" else reading)
    if getattr(source, "strings", False):
        return source, True
    return _source_of(edges, {**reading, "ids": "map"}), False


def graph_of_tables(
    edges: Any,
    vertices: Any,
    *,
    source: str | int | None = None,
    target: str | int | None = None,
    weight: str | int | None = None,
    undirected: bool = True,
    drop_duplicates: bool = True,
    drop_self_loops: bool = False,
    drop_unknown: bool = False,
    name: str = "graph",
    **options: Any,
) -> Graph:
    """The graph of a table of edges and a table of vertices, in memory."""
    known = READING | COLUMNS
    for option in sorted(options.keys() - known):
        raise ConfigError(unknown_name("setting", option, known | OF_TABLES))
    reading = {option: value for option, value in options.items() if option in READING}
    if (source, target, weight) != (None, None, None):
        if "columns" in reading:
            raise ConfigError(
                f"{given('columns', reading['columns'])} and source, target or weight: give one of the two."
            )
        ends = (0 if source is None else source, 1 if target is None else target)
        reading["columns"] = ends if weight is None else (*ends, weight)
    columns = TableColumns(**{option: value for option, value in options.items() if option in COLUMNS})
    table = VertexTable.open(vertices, columns)
    with _spelling_columns("columns" in options):
        batches, strings = _joined_source(edges, table, reading)
    listed = None if table.id is None else table.ids(strings=strings)
    numbering = make_numbering(
        "dense" if listed is None else "map", strings=strings, vertices=listed, fixed=listed is not None
    )
    numbering.drop_unknown = drop_unknown
    try:
        kept = _KeptEdges()
        bound = VertexBound(table.num_rows, f"{table.table.name} has {table.num_rows:,} rows, one per vertex")
        read_edges(PeekedBatches.of(batches), numbering, kept, bound, None, silent)
        masks = {f"{split}_mask": _mask_of(rows, table) for split, rows in table.split_rows(numbering).items()}
        for scored in ("val_mask", "test_mask"):
            if "train_mask" in masks and scored in masks:
                check_disjoint(np.packbits(masks["train_mask"]), masks[scored], scored)
        indptr, indices, edge_weight = kept.csr(table.num_rows, undirected=undirected, drop_self_loops=drop_self_loops)
        features, labels = table.feature_rows(), table.label_rows()
        arrays: dict[str, Any] = dict(masks)
        if features is not None:
            arrays["features"] = np.concatenate(list(features.blocks()))
        if labels is not None:
            arrays["labels"] = np.concatenate(list(labels.blocks()))
        return Graph(
            indptr,
            indices,
            edge_weight=edge_weight,
            directed=not undirected,
            name=name,
            ids=_ids_of(numbering),
            class_names=table.class_names or None,
            feature_names=table.feature_names or None,
            trust="edges",
            **arrays,
        )
    except GraphError as error:
        if not isinstance(clash := error.__cause__, WeightClash):
            raise
        first, second = (original_id(numbering, number) for number in (clash.column, clash.row))
        raise repeated_edge_error(first, second, clash.first, clash.second) from error
    finally:
        getattr(numbering, "close", lambda: None)()


@contextmanager
def _spelling_columns(as_given: bool) -> Iterator[None]:
    """In an error raised within, ``columns`` are spelled as source, target and weight, unless they were given so."""
    try:
        yield
    except DorylusError as error:
        if not as_given:
            error.message = spelled(error.message, _as_ends)
        raise


def _as_ends(name: str, value: str | None) -> str | None:
    if name != "columns":
        return None
    if not value:
        return "source, target and weight" if value is None else "source= and target="
    try:
        columns = literal_eval(value)
    except (ValueError, SyntaxError):  # shortened
        return "source= and target="
    return ", ".join(f"{end}={column!r}" for end, column in zip(ENDS, columns, strict=False))


class _KeptEdges:
    """An edge sink in memory."""

    def __init__(self) -> None:
        self._rows: list[IdArray] = []
        self._columns: list[IdArray] = []
        self._weights: list[FloatArray] = []

    def add(self, rows: IdArray, columns: IdArray, weights: FloatArray | None) -> None:
        """Add the edges (rows[e], columns[e])."""
        self._rows.append(rows)
        self._columns.append(columns)
        if weights is not None:
            self._weights.append(weights)

    def close(self) -> None:
        """Release the memory."""
        self.__init__()  # type: ignore[misc]

    def csr(self, num_vertices: int, *, undirected: bool, drop_self_loops: bool) -> Any:
        """(indptr, indices, weight) of all edges."""
        empty = np.empty(0, np.int32)
        rows, columns = (np.concatenate([empty, *each]) for each in (self._rows, self._columns))
        weight = np.concatenate(self._weights) if self._weights else None
        if drop_self_loops:
            kept = rows != columns
            rows, columns, weight = rows[kept], columns[kept], None if weight is None else weight[kept]
        return csr_from_edges(columns, rows, num_vertices, undirected=undirected, weight=weight)


def _mask_of(rows: Any, table: VertexTable) -> AnyArray:
    if isinstance(rows, ComputedRows):
        return np.concatenate(list(rows.blocks()))
    if rows.dtype == np.bool_:
        return np.asarray(rows)
    mask = np.zeros(table.num_rows, np.bool_)
    mask[rows] = True
    return mask


def _ids_of(numbering: AnyNumbering) -> Any:
    """The ids by number: int64 [N] or texts; None if they are the numbers."""
    if isinstance(numbering, DenseIds):
        return None
    blocks = list(numbering.original())
    if not numbering.strings:
        return np.concatenate([np.empty(0, np.int64), *blocks])
    tokens = [each for each in blocks if isinstance(each, Tokens)]
    ends = np.cumsum([0, *(length for each in tokens for length in np.diff(each.offsets))], dtype=np.int64)
    parts = [each.bytes[each.offsets[0] : each.offsets[-1]] for each in tokens]
    return TextIds(ends, np.concatenate([np.empty(0, np.uint8), *parts]))


def _source_of(edges: Any, reading: Mapping[str, Any]) -> EdgeSource:
    if is_arrow_table(edges):
        for name in sorted(reading.keys() - {"ids", "columns"}):
            raise ConfigError(
                f"{given(name, reading[name])} says how to read files, but the edges are in memory: leave it out."
            )
        return TableEdges(edges, ReadOptions.of(**reading))
    source = _in_memory(edges)
    if source is None:
        return open_edges(_paths(edges), **reading)
    for name in sorted(reading.keys() - {"ids"}):
        raise ConfigError(
            f"{given(name, reading[name])} says how to read files, but the edges are in memory: leave it out."
        )
    return source


def _in_memory(edges: Any) -> EdgeSource | None:
    """The source of edges that are arrays or a source already; None for files."""
    if hasattr(edges, "total_bytes"):
        source: EdgeSource = edges
        return source
    if hasattr(edges, "shape"):
        return ArrayEdges.of_pairs(edges)
    if isinstance(edges, tuple) and len(edges) in (2, 3) and not isinstance(edges[0], str | PathLike):
        return ArrayEdges(*edges)
    return None


def _paths(edges: Any) -> list[str | PathLike[str]]:
    paths = list(edges) if isinstance(edges, Iterable) and not isinstance(edges, str | PathLike) else [edges]
    for path in paths:
        if not isinstance(path, str | PathLike):
            within = "" if path is edges else f" of {type(path).__name__}"
            raise ConfigError(
                f"edges are given as {type(edges).__name__}{within}: give files, a tuple of arrays (source, "
                "destination[, weight]), or one array of shape [edges, 2] or [2, edges]."
            )
    return paths


def _check_rows_have_ids(source: EdgeSource, ids: str, settings: IngestSettings) -> None:
    """Refuse rows of vertices that are numbered in order of appearance: no row could be assigned to a vertex."""
    names = bool(getattr(source, "strings", False))
    if settings.rows and (names or ids == "map"):
        kind = "ids are names" if names else f"{given('ids', 'map')} treats ids as names"
        raise ConfigError(
            f"rows of vertices are given ({', '.join(settings.rows)}), but {kind}, which are numbered as they appear "
            f"in the edges. Say which vertex each row belongs to by {given('vertices', ...)}: a file with all ids, in "
            "the order of the rows."
        )


@contextmanager
def _numbering(
    source: EdgeSource, ids: str, listed: EdgeSource | None, settings: IngestSettings, store: Address
) -> Iterator[AnyNumbering]:
    """The numbering of ids; names are in a scratch file beside the store until it is written."""
    strings = bool(getattr(source, "strings", False))
    _check_list_fits(listed, settings)
    memory_bytes, fixed = _ids_bytes(settings), listed is not None
    scratch = None if is_remote(store) else _existing(Path(store).absolute().parent)
    resident = resident_bytes()
    try:
        numbering = make_numbering(
            ids, strings=strings, vertices=listed, fixed=fixed, memory_bytes=memory_bytes, scratch=scratch
        )
    except IdTableFullError as error:
        raise too_many_ids(error, settings, resident, getattr(source, "held", NO_READER_MEMORY)) from error
    except OSError as error:
        raise DataError(
            f"could not write the names of vertices beside the store {store}: {error}. Check the free space and "
            "permissions."
        ) from error
    numbering.drop_unknown = settings.drop_unknown
    try:
        yield numbering
    finally:
        getattr(numbering, "close", lambda: None)()


def _ids_bytes(settings: IngestSettings) -> int:
    return settings.memory_bytes // IDS_SHARE


def _check_list_fits(listed: EdgeSource | None, settings: IngestSettings) -> None:
    """Refuse a list of vertices that needs too much memory to read."""
    held = getattr(listed, "held", NO_READER_MEMORY)
    if held.num_bytes:
        shares_of(settings.memory_bytes, ids_bytes=_ids_bytes(settings), held=held)


def _listed(vertices: Any, *, strings: bool) -> EdgeSource:
    """The source of the listed vertices; refused if their ids are of another kind than those of the edges."""
    if hasattr(vertices, "shape") and not strings:
        return ArrayEdges(vertices, vertices)
    listed = open_vertices(vertices, ids="strings" if strings else "map")
    if listed.strings and not strings:
        raise DataError(
            f"{vertices} lists names, but the ends of edges are numbers. List the ids that the edges have, or read "
            f"those as names too by {given('ids', 'strings')}."
        )
    if strings and not listed.strings:
        raise DataError(
            f"{vertices} lists numbers, but the ends of edges are names. List those, one name per line of text or per "
            "row of Parquet."
        )
    return listed


def _existing(folder: Path) -> Path:
    return folder if folder.is_dir() else _existing(folder.parent)
