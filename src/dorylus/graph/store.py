"""The graph store: a folder of raw arrays and a manifest, written atomically and memory-mapped when opened.

docs/store-format.md specifies the manifest and the arrays of every version.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from dorylus.errors import DataError, GraphError
from dorylus.graph import validate
from dorylus.graph.array_files import FolderFiles, StoredRows
from dorylus.graph.array_folder import compare_checksums, files_of, map_arrays, new_folder, stored_rows
from dorylus.graph.arrays import AnyArray, FloatArray, IdArray, OffsetArray, TextIds
from dorylus.graph.coerce import MAX_CLASSES, MAX_VERTICES
from dorylus.graph.features import SparseFeatures, check_float16_rows, check_float16_sparse, parse_feature_dtype
from dorylus.graph.graph import MASKS, Graph
from dorylus.graph.locations import Address, full_address
from dorylus.graph.manifest import SWITCH, TEXT, FolderKind, format_json, read_manifest, whole_number

STORE = FolderKind(
    noun="store",
    cure="Give a folder that dorylus ingest, dorylus convert or Graph.save wrote; one of shards goes with its graph, "
    "as partition=.",
    again="Copy or ingest it again.",
    manifest="manifest.json",
    format="dorylus-graph",
    version=1,
    versions=(1, 2, 3),
    facts={
        "name": TEXT,
        "directed": SWITCH,
        "num_vertices": whole_number(MAX_VERTICES),
        "num_edges": whole_number(),
        "num_features": whole_number(1 << 31),
        "num_classes": whole_number(MAX_CLASSES),
    },
    needed=("indptr", "indices", *MASKS),
    dtypes=frozenset({"<i8", "<i4", "<f4", "<f2", "|u1", "|b1"}),
)
WITH_EXTRAS = 2  # the version of a store with out-edges or ids
WITH_HALF = 3  # the version of a store with float16 features

OUT_EDGES = ("out.indptr", "out.indices", "out.edge_weight")
IDS = ("ids", "ids.offsets", "ids.bytes")
EXTRAS = frozenset({*OUT_EDGES, *IDS})
NAMES = {"class_names": "num_classes", "feature_names": "num_features"}
"""Optional fields of the manifest, and the field with the number of names."""
SPARSE = ("features.indptr", "features.indices", "features.values")
_DTYPES = {
    "indptr": ("<i8",),
    "indices": ("<i4",),
    "edge_weight": ("<f4",),
    "features": ("<f4", "<f2"),
    "labels": ("<i8", "|u1"),
    **dict.fromkeys(MASKS, ("|b1",)),
    **dict(zip(SPARSE, (("<i8",), ("<i4",), ("<f4", "<f2")), strict=True)),
}


def version_of(dtypes: Mapping[str, str]) -> int:
    """The lowest version of a store that can hold arrays of these dtypes, given by name."""
    if "<f2" in dtypes.values():
        return WITH_HALF
    return STORE.version if EXTRAS.isdisjoint(dtypes) else WITH_EXTRAS


def check_types(manifest: dict[str, Any]) -> None:
    """Raise ValueError for an array of version 1 whose dtype is not allowed."""
    for name, dtypes in _DTYPES.items():
        dtype = manifest["arrays"].get(name, {}).get("dtype", dtypes[0])
        if dtype not in dtypes:
            raise ValueError(f"{STORE.manifest} says that {name} is {dtype}, not {' or '.join(dtypes)}")


def check_extras(manifest: dict[str, Any]) -> None:
    """Raise ValueError for an array of version 2 or 3 whose dtype or shape does not match the counts."""
    entries, vertices, edges = manifest["arrays"], manifest["num_vertices"], manifest["num_edges"]
    if not EXTRAS.isdisjoint(entries) and manifest["version"] < WITH_EXTRAS:
        raise ValueError(f"array {min(EXTRAS & set(entries))!r} in version {manifest['version']}")
    halves = [name for name, entry in entries.items() if entry["dtype"] == "<f2"]
    if halves and (manifest["version"] < WITH_HALF or halves[0] not in ("features", "features.values")):
        raise ValueError(f"{halves[0]} is <f2 in version {manifest['version']}")
    for field, count in NAMES.items():
        listed = manifest.get(field, [])
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise ValueError(f"{STORE.manifest} says {field} = {format_json(listed)}, which is not a list of texts")
        if field in manifest and len(listed) != manifest[count]:
            raise ValueError(f"{STORE.manifest} says {count} = {manifest[count]}, but lists {len(listed)} {field}")
    for names in (OUT_EDGES[:2], IDS[1:]):
        if len(entries.keys() & set(names)) == 1:
            raise ValueError(f"one of the arrays {names[0]!r} and {names[1]!r} without the other")
    forms = {
        **dict(zip(OUT_EDGES, (("<i8", [vertices + 1]), ("<i4", [edges]), ("<f4", [edges])), strict=True)),
        "ids": ("<i8", [vertices]),
        "ids.offsets": ("<i8", [vertices + 1]),
    }
    for name in forms.keys() & entries.keys():
        if (entries[name]["dtype"], entries[name]["shape"]) != forms[name]:
            raise ValueError(f"{name} is {entries[name]['dtype']} {entries[name]['shape']}, not {forms[name]}")


class OutEdges(NamedTuple):
    """The out-edges of every vertex as CSR: row u lists the destinations of u's out-edges, ascending."""

    indptr: OffsetArray
    indices: IdArray
    edge_weight: FloatArray | None


@dataclass(frozen=True, eq=False)
class StoredSparseRows:
    """The rows of sparse features in files, read on demand as :class:`~dorylus.graph.features.SparseFeatures`."""

    indptr: StoredRows
    indices: StoredRows
    values: StoredRows
    num_columns: int

    def permute(self, order: AnyArray) -> SparseFeatures:
        """The matrix of the rows with these numbers, in this order."""
        begin, end = self.indptr[order], self.indptr[order + 1]
        indptr = np.zeros(order.size + 1, np.int64)
        np.cumsum(end - begin, out=indptr[1:])
        entries = np.arange(indptr[-1]) + np.repeat(begin - indptr[:-1], end - begin)
        return SparseFeatures(indptr, self.indices[entries], self.values[entries], self.num_columns)

    def to_dense(self, rows: AnyArray) -> FloatArray:
        """float32 [rows, columns]."""
        return self.permute(rows).to_dense()


@dataclass(frozen=True, eq=False)
class StoredVertices:
    """The features, labels and training mask of a store, read on demand; no edges."""

    num_vertices: int
    features: StoredRows | StoredSparseRows
    labels: StoredRows | None
    train_mask: StoredRows


def is_store(address: Address) -> bool:
    """Whether the address is a folder with a store's manifest."""
    return STORE.is_at(address)


def save(graph: Graph, path: Address, *, overwrite: bool = False, feature_dtype: str | None = None) -> None:
    """Write ``graph`` as a store at ``path``, a local folder or an fsspec address (s3://...).

    An existing store is replaced only with ``overwrite``. ``feature_dtype`` converts the features. The out-edges of the
    store that the graph was opened from are written too.
    """
    dtypes = {}
    if feature_dtype is not None:
        dtypes["features.values" if graph.sparse_features else "features"] = parse_feature_dtype(feature_dtype)
        if feature_dtype == "float16":
            _check_half(graph)
    facts = {
        "name": str(graph.name),
        "directed": bool(graph.directed),
        "num_vertices": graph.num_vertices,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
        "num_classes": graph.num_classes,
        **{field: list(names) for field in NAMES if (names := getattr(graph, field)) is not None},
    }
    with new_folder(path, STORE, overwrite=overwrite) as folder:
        folder.facts.update(facts)
        for name, array in arrays_of(graph).items():
            folder.write(name, array, dtypes.get(name))
        for name, array in {**_id_arrays(graph), **_extras_of(graph, folder.entries)}.items():
            folder.write(name, array)
        folder.facts["version"] = version_of({name: entry["dtype"] for name, entry in folder.entries.items()})
        graph.check_files()


def _check_half(graph: Graph) -> None:
    """Refuse features that do not fit into float16."""
    if isinstance(graph.features, SparseFeatures):
        check_float16_sparse(graph.features)
        return
    step = max(1, validate.STEP // max(1, graph.num_features))
    for begin in range(0, graph.num_vertices, step):
        check_float16_rows(graph.features[begin : begin + step], begin)


def _extras_of(graph: Graph, written: Mapping[str, Mapping[str, Any]]) -> dict[str, AnyArray]:
    """The out-edges of the graph's own store; nothing if another graph has replaced it."""
    if graph.store is None or not is_store(graph.store):
        return {}
    known, edges = stored_checksums(graph.store), ("indptr", "indices", "edge_weight")
    if any(known.get(name) != written.get(name, {}).get("crc32") for name in edges):
        return {}
    return _extras(graph.store, OUT_EDGES)


def _id_arrays(graph: Graph) -> dict[str, AnyArray]:
    if graph.ids is None:
        return {}
    if isinstance(graph.ids, TextIds):
        return {"ids.offsets": graph.ids.offsets, "ids.bytes": graph.ids.content}
    return {"ids": graph.ids}


def open_store(path: Address, *, verify: bool = False) -> Graph:
    """The graph of the store at ``path``, its arrays read-only views of the files.

    Sizes are always compared with the manifest, checksums with ``verify``.
    """
    manifest = read_manifest(path, STORE)
    if verify:
        compare_checksums(path, STORE, manifest)
    try:
        check_extras(manifest)
        check_types(manifest)
        files = files_of(full_address(path), STORE, manifest)
        arrays = map_arrays(path, STORE, manifest, only=lambda name: name not in OUT_EDGES, files=files)
        graph = _graph(manifest, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, GraphError) as error:
        raise _damaged(path, error) from error
    if files is not None:
        _ = files.sums  # read now: the store may be replaced or removed later
    object.__setattr__(graph, "store", full_address(path))
    object.__setattr__(graph, "files", files)
    return graph


def verify_store(path: Address, tell: Callable[[int, int], None]) -> int:
    """Compare every array with its checksum; returns their number. ``tell`` is called with bytes read and the total."""
    return compare_checksums(path, STORE, read_manifest(path, STORE), tell)


def has_block_sums(path: Address) -> bool:
    """Whether the store has block checksums; those of older versions have none."""
    return "blocks" in read_manifest(path, STORE)


def open_vertices(path: Address) -> StoredVertices:
    """The vertices of a store that was opened and checked before, read on demand."""
    manifest = read_manifest(path, STORE)

    def rows(name: str) -> StoredRows:
        return stored_rows(path, STORE, manifest, name, files)

    try:
        files = files_of(path, STORE, manifest)
        features: StoredRows | StoredSparseRows
        if "features" in manifest["arrays"]:
            features = rows("features")
        else:
            indptr, indices, values = map(rows, SPARSE)
            features = StoredSparseRows(indptr, indices, values, manifest["num_features"])
        labels = rows("labels") if "labels" in manifest["arrays"] else None
        return StoredVertices(manifest["num_vertices"], features, labels, rows("train_mask"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, error) from error


def open_out_edges(path: Address, files: FolderFiles | None = None) -> OutEdges | None:
    """The out-edges of a directed store, mapped but not checked; None if it has none.

    ``files``: the files of the graph that was opened from the store; a store that has changed since is refused.
    """
    arrays = _extras(path, OUT_EDGES, files)
    if "out.indptr" not in arrays:
        return None
    return OutEdges(arrays["out.indptr"], arrays["out.indices"], arrays.get("out.edge_weight"))


def open_ids(path: Address) -> OffsetArray | tuple[OffsetArray, AnyArray] | None:
    """The vertices' ids in the input, mapped: int64 [N], or (offsets, bytes) of strings; None: their numbers."""
    arrays = _extras(path, IDS)
    if "ids.offsets" in arrays:
        return arrays["ids.offsets"], arrays["ids.bytes"]
    return arrays.get("ids")


def _extras(path: Address, names: tuple[str, ...], files: FolderFiles | None = None) -> dict[str, AnyArray]:
    manifest = read_manifest(path, STORE) if files is None else files.manifest
    try:
        check_extras(manifest)
        return map_arrays(path, STORE, manifest, only=names.__contains__, files=files)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(path, error) from error


def stored_checksums(path: Address) -> dict[str, int]:
    """The checksum of every array of a store, by name, from its manifest."""
    manifest = read_manifest(path, STORE)
    return {name: entry["crc32"] for name, entry in manifest["arrays"].items()}


def _damaged(folder: Address, error: Exception) -> DataError:
    # The rest of a GraphError is the cure for arrays in memory.
    return STORE.damaged(folder, str(error).partition(". ")[0] if isinstance(error, GraphError) else error)


def arrays_of(graph: Graph) -> dict[str, AnyArray]:
    """The arrays of a store of this graph, by name."""
    arrays: dict[str, AnyArray | None] = {
        "indptr": graph.indptr,
        "indices": graph.indices,
        "edge_weight": graph.edge_weight,
        "labels": graph.labels,
        **{name: getattr(graph, name) for name in MASKS},
    }
    if isinstance(graph.features, SparseFeatures):
        parts = (graph.features.indptr, graph.features.indices, graph.features.values)
        arrays.update(zip(SPARSE, parts, strict=True))
    else:
        arrays["features"] = graph.features
    return {name: array for name, array in arrays.items() if array is not None}


def _graph(manifest: dict[str, Any], arrays: dict[str, AnyArray]) -> Graph:
    unknown = set(arrays) - {"indptr", "indices", "edge_weight", "labels", "features", *MASKS, *SPARSE, *IDS}
    if unknown:
        raise ValueError(f"unknown array {min(unknown)!r}")
    missing = [name for name in SPARSE if name not in arrays]
    if "features" in arrays:
        features: Any = arrays["features"]
    elif missing:
        raise ValueError(f"{STORE.manifest} lists no array {'features' if len(missing) == 3 else missing[0]!r}")
    else:
        indptr, indices, values = (arrays[name] for name in SPARSE)
        features = SparseFeatures(indptr, indices, values, manifest["num_features"])
        features.check_columns()
    others: dict[str, Any] = {name: arrays[name] for name in MASKS}
    others |= {field: tuple(manifest[field]) for field in NAMES if field in manifest}
    graph = Graph(
        arrays["indptr"],
        arrays["indices"],
        features=features,
        labels=arrays.get("labels"),
        edge_weight=arrays.get("edge_weight"),
        directed=manifest["directed"],
        name=manifest["name"],
        num_classes=manifest["num_classes"],
        ids=TextIds(arrays["ids.offsets"], arrays["ids.bytes"]) if "ids.offsets" in arrays else arrays.get("ids"),
        **others,
        trust="everything",  # checked before it was saved; bounds are always checked, as kernels rely on them
    )
    _check_counts(manifest, graph)
    if graph.labels is not None:  # a pass over vertices, cheap beside edges and features
        validate.check_labels(graph.labels, graph.num_vertices, graph.num_classes)
    return graph


def _check_counts(manifest: dict[str, Any], graph: Graph) -> None:
    for name in ("num_vertices", "num_edges", "num_features"):
        if manifest[name] != getattr(graph, name):
            raise ValueError(f"the manifest says {name} = {manifest[name]}, the arrays say {getattr(graph, name)}")
    if graph.labels is not None and len(graph.labels) != graph.num_vertices:
        raise ValueError(f"{len(graph.labels)} labels for {graph.num_vertices} vertices")
    if graph.edge_weight is not None and graph.edge_weight.shape != graph.indices.shape:
        raise ValueError(f"{len(graph.edge_weight)} weights for {graph.num_edges} edges")
