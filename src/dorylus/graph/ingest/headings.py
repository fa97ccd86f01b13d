"""A heading that was taken for an edge: nothing else in the input has its two names."""

import numpy as np

from dorylus.graph.array_folder import stored_rows
from dorylus.graph.arrays import AnyArray
from dorylus.graph.manifest import read_manifest
from dorylus.graph.places import Address
from dorylus.graph.store_form import STORE


def lone_first_edge(store: Address) -> tuple[str, str] | None:
    """The names of vertices 0 and 1, where one edge joins them and they have no other; None elsewhere.

    Vertices are named, and numbered as they appear, so that these are the names of the input's first line.
    """
    manifest = read_manifest(store, STORE)

    def first(name: str, count: int) -> AnyArray:
        return stored_rows(store, STORE, manifest, name)[np.arange(count)]

    if manifest["num_vertices"] <= 2:  # nothing would be left
        return None
    ends = {"out.indptr": [0, 1, 1], "indptr": [0, 0, 1]} if manifest["directed"] else {"indptr": [0, 1, 2]}
    if any(first(name, 3).tolist() != wanted for name, wanted in ends.items()):
        return None
    if first("indices", 1).item() != (0 if manifest["directed"] else 1):
        return None
    begin, middle, end = first("ids.offsets", 3).tolist()
    content = first("ids.bytes", end).tobytes()
    return content[begin:middle].decode(), content[middle:end].decode()
