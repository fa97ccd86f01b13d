"""hash: every vertex to the part that a fixed hash of its number names; no edge is looked at."""

import numpy as np
from numpy.typing import NDArray

from dorylus.graph.arrays import IdArray
from dorylus.graph.ingest.progress import Tell
from dorylus.partition.reading import Reading

STEP = 1 << 20  # vertices hashed together


def hash_parts(reading: Reading, servers: int, seed: int, tell: Tell) -> IdArray:
    """int32 [N]; the same for every graph and seed, so that anybody can tell a vertex's server from its number."""
    parts = np.empty(reading.graph.num_vertices, np.int32)
    for begin in range(0, parts.size, STEP):
        end = min(begin + STEP, parts.size)
        parts[begin:end] = _split_mix(np.arange(begin, end, dtype=np.uint64)) % np.uint64(servers)
    return parts


def _split_mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
