"""Graphs: what they are, where they come from, where they are kept, and the matrix that Gather multiplies by."""

from dorylus.graph import canonical, features, store, validate
from dorylus.graph.adjacency import Adjacency, Degrees, Norm, adjacency, has_self_loop, inverse, weight_sums
from dorylus.graph.array_folder import (
    NewFolder,
    check_target,
    checksum,
    compare_checksums,
    files_of,
    map_arrays,
    new_folder,
    stored_rows,
)
from dorylus.graph.array_writer import ArrayWriter, raw_bytes
from dorylus.graph.arrays import AnyArray, BoolArray, FloatArray, IdArray, OffsetArray, bring_in, let_go
from dorylus.graph.canonical import MAX_VERTICES
from dorylus.graph.datasets.catalogue import known_names, load
from dorylus.graph.draft import writing_alone
from dorylus.graph.edges import csr_from_edges
from dorylus.graph.features import SparseFeatures, feature_dtype, widened
from dorylus.graph.generators.block_model import communities
from dorylus.graph.generators.cycle import ring
from dorylus.graph.generators.recursive import rmat
from dorylus.graph.graph import Graph
from dorylus.graph.manifest import CHECKSUM, SWITCH, TEXT, FolderFiles, FolderKind, read_manifest, whole_number
from dorylus.graph.places import Address, disk_folder, file_system_in_memory, full_address, is_elsewhere, not_on_a_disk
from dorylus.graph.reorder import order
from dorylus.graph.store import (
    OUT_EDGES,
    STORE,
    OutEdges,
    arrays_of,
    has_block_sums,
    is_store,
    open_ids,
    open_out_edges,
    open_vertices,
    stored_checksums,
    verify_store,
    version_of,
)
from dorylus.graph.stored_rows import StoredSparseRows, StoredVertices

__all__ = [
    "CHECKSUM",
    "MAX_VERTICES",
    "OUT_EDGES",
    "STORE",
    "SWITCH",
    "TEXT",
    "Address",
    "Adjacency",
    "AnyArray",
    "ArrayWriter",
    "BoolArray",
    "Degrees",
    "FloatArray",
    "FolderFiles",
    "FolderKind",
    "Graph",
    "IdArray",
    "NewFolder",
    "Norm",
    "OffsetArray",
    "OutEdges",
    "SparseFeatures",
    "StoredSparseRows",
    "StoredVertices",
    "adjacency",
    "arrays_of",
    "bring_in",
    "canonical",
    "check_target",
    "checksum",
    "communities",
    "compare_checksums",
    "csr_from_edges",
    "disk_folder",
    "feature_dtype",
    "features",
    "file_system_in_memory",
    "files_of",
    "full_address",
    "has_block_sums",
    "has_self_loop",
    "inverse",
    "is_elsewhere",
    "is_store",
    "known_names",
    "let_go",
    "load",
    "map_arrays",
    "new_folder",
    "not_on_a_disk",
    "open_ids",
    "open_out_edges",
    "open_vertices",
    "order",
    "raw_bytes",
    "read_manifest",
    "ring",
    "rmat",
    "store",
    "stored_checksums",
    "stored_rows",
    "validate",
    "verify_store",
    "version_of",
    "weight_sums",
    "whole_number",
    "widened",
    "writing_alone",
]
