"""About how many different ids there are, counted in 64 KiB: HyperLogLog, whose error is 0.4 % here.

Where ids do not fit into memory, this says how much memory they would take.
"""

import numpy as np
from numpy.typing import NDArray

from dorylus.ingest.batches import Ends, Tokens

BITS = 16
MARGIN = 1.02  # five times the error
_ALPHA = 0.7213 / (1 + 1.079 / (1 << BITS))
_PIECE_IDS = 1 << 16
_PIECE_BYTES = 1 << 18
_BASE = 0x9E3779B97F4A7C15  # odd, and so of a long period


class DistinctIds:
    """Counts ids, each once."""

    def __init__(self) -> None:
        self._ranks = np.zeros(1 << BITS, np.uint8)

    def add(self, ids: Ends) -> None:
        """Counts these too."""
        if isinstance(ids, Tokens):
            self._add_names(ids)
            return
        for begin in range(0, len(ids), _PIECE_IDS):
            self._add_keys(ids[begin : begin + _PIECE_IDS].astype(np.uint64))

    def most(self) -> int:
        """As many as there are, or a little more."""
        free = int(np.count_nonzero(self._ranks == 0))
        count = self._ranks.size
        found = _ALPHA * count * count / float(np.sum(np.ldexp(1.0, -self._ranks.astype(np.int64))))
        if found <= 2.5 * count and free:
            found = count * float(np.log(count / free))
        return int(found * MARGIN) + 1

    def _add_keys(self, keys: NDArray[np.uint64]) -> None:
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        keys ^= keys >> np.uint64(31)
        rest = (keys << np.uint64(BITS)) | np.uint64(1 << (BITS - 1))
        ranks = (65 - np.frexp(rest.astype(np.float64))[1]).astype(np.uint8)  # zeros before the first one, and one
        np.maximum.at(self._ranks, (keys >> np.uint64(64 - BITS)).astype(np.intp), ranks)

    def _add_names(self, names: Tokens) -> None:
        first = 0
        while first < len(names):
            end = names.offsets[first] + _PIECE_BYTES
            fitting = int(np.searchsorted(names.offsets, end, side="right")) - 1
            last = min(max(fitting, first + 1), first + _PIECE_IDS, len(names))
            self._add_keys(_keys(names, first, last))
            first = last


def _keys(names: Tokens, first: int, last: int) -> NDArray[np.uint64]:
    """A number for each name: its bytes are the coefficients of a polynomial, modulo 2^64."""
    offsets = names.offsets[first : last + 1] - names.offsets[first]
    content = names.bytes[names.offsets[first] : names.offsets[last]].astype(np.uint64) + np.uint64(1)
    lengths = np.diff(offsets)
    powers = np.full(int(lengths.max(initial=0)) + 1, _BASE, np.uint64)
    powers[0] = 1
    powers = np.cumprod(powers, dtype=np.uint64)
    content *= powers[np.arange(content.size) - np.repeat(offsets[:-1], lengths)]
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(content, dtype=np.uint64)])
    keys: NDArray[np.uint64] = sums[offsets[1:]] - sums[offsets[:-1]]
    return keys
