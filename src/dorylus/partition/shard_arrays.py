"""A shard as named arrays, and back: what a store of shards holds for each server."""

from collections.abc import Mapping
from typing import Any

from dorylus.graph.arrays import AnyArray
from dorylus.graph.degrees import Degrees
from dorylus.partition.shard import Csr, Ids, Shard

_EDGES = ("indptr", "indices", "edge_weight")
_PARTS = ("ghosts", "owners", "counts", "weights", "loops", *_EDGES)


def side_arrays(shard: Shard, side: str) -> dict[str, AnyArray]:
    """The arrays of a side, "in" or "out", without those of its edges."""
    ghosts, owners = getattr(shard, f"{side}_ghosts"), getattr(shard, f"{side}_owners")
    degrees = shard.degrees if side == "in" else shard.out_degrees
    found = (ghosts, owners, degrees.counts, degrees.weights, degrees.loops)
    return {name: array for name, array in zip(_names(side), found, strict=False) if array is not None}


def edge_names(side: str) -> list[str]:
    """The names of a side's offsets, columns and weights."""
    return [f"{side}_{part}" for part in _EDGES]


def from_arrays(
    arrays: Mapping[str, AnyArray], server: int, num_servers: int, num_vertices: int, directed: bool
) -> Shard:
    """The shard made of these arrays; KeyError or ValueError where they do not fit together."""
    ids = arrays["ids"]
    ghosts, owners, degrees, edges = _side(arrays, "in", ids, num_servers)
    out = _side(arrays, "out", ids, num_servers) if directed else (ghosts, owners, degrees, None)
    return Shard(
        server,
        num_servers,
        num_vertices,
        directed,
        ids,
        in_ghosts=ghosts,
        out_ghosts=out[0],
        in_owners=owners,
        out_owners=out[1],
        degrees=degrees,
        out_degrees=out[2],
        edges=edges,
        out=out[3],
    )


def _names(side: str) -> list[str]:
    return [f"{side}_{part}" for part in _PARTS]


def _side(arrays: Mapping[str, AnyArray], side: str, ids: Ids, num_servers: int) -> tuple[Ids, AnyArray, Degrees, Csr]:
    found: list[Any] = [arrays[name] if "weight" not in name else arrays.get(name) for name in _names(side)]
    ghosts, owners, counts, weights, loops, indptr, indices, edge_weight = found
    columns = ids.size + ghosts.size
    if (counts.size, loops.size, indptr.size, owners.size) != (columns, columns, ids.size + 1, num_servers + 1):
        raise ValueError(f"arrays of a shard with {ids.size} vertices and {ghosts.size} ghosts have other sizes")
    return ghosts, owners, Degrees(counts, weights, loops), (indptr, indices, edge_weight)
