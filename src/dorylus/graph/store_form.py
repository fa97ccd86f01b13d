"""The form of a store: what its manifest says, which arrays it has in which version (docs/store-format.md)."""

from collections.abc import Mapping
from typing import Any

from dorylus.graph import canonical
from dorylus.graph.graph import MASKS
from dorylus.graph.manifest import SWITCH, TEXT, Kind, whole_number

STORE = Kind(
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
        "num_vertices": whole_number(canonical.MAX_VERTICES),
        "num_edges": whole_number(),
        "num_features": whole_number(1 << 31),
        "num_classes": whole_number(canonical.MAX_CLASSES),
    },
    needed=("indptr", "indices", *MASKS),
    dtypes=frozenset({"<i8", "<i4", "<f4", "<f2", "|u1", "|b1"}),
)
WITH_EXTRAS = 2  # the version of a store that has any of the arrays below
WITH_HALF = 3  # that of one whose features are float16

OUT_EDGES = ("out.indptr", "out.indices", "out.edge_weight")
IDS = ("ids", "ids.offsets", "ids.bytes")
EXTRAS = frozenset({*OUT_EDGES, *IDS})
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
    """The version of a store that holds arrays of these types, by name."""
    if "<f2" in dtypes.values():
        return WITH_HALF
    return STORE.version if EXTRAS.isdisjoint(dtypes) else WITH_EXTRAS


def check_types(manifest: dict[str, Any]) -> None:
    """The arrays of version 1 have types that they can have."""
    for name, dtypes in _DTYPES.items():
        found = manifest["arrays"].get(name, {}).get("dtype", dtypes[0])
        if found not in dtypes:
            raise ValueError(f"{STORE.manifest} says that {name} is {found}, not {' or '.join(dtypes)}")


def check_extras(manifest: dict[str, Any]) -> None:
    """The arrays of version 2 have the types and lengths that the counts ask for."""
    entries, vertices, edges = manifest["arrays"], manifest["num_vertices"], manifest["num_edges"]
    if not EXTRAS.isdisjoint(entries) and manifest["version"] < WITH_EXTRAS:
        raise ValueError(f"array {min(EXTRAS & set(entries))!r} in version {manifest['version']}")
    halves = [name for name, entry in entries.items() if entry["dtype"] == "<f2"]
    if halves and (manifest["version"] < WITH_HALF or halves[0] not in ("features", "features.values")):
        raise ValueError(f"{halves[0]} is <f2 in version {manifest['version']}")
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
