"""What crosses parts: for some parts together, who has which vertex as a ghost, found in one pass over the edges."""

from dataclasses import dataclass

import numpy as np

from dorylus import kernels
from dorylus.graph.arrays import BoolArray, IdArray
from dorylus.graph.ingest.progress import Progress, Tell, silent
from dorylus.partition.reading import Reading

TOGETHER = 32  # parts looked at in one pass: a bit each
STEP = 1 << 22  # vertices counted together


@dataclass(frozen=True, eq=False)
class Across:
    """Of ``TOGETHER`` parts from ``first`` on: bits of the parts that have an in-edge from, an out-edge to a vertex.

    Not those of the part that owns it. ``num_cut`` counts the edges between any two parts.
    """

    first: int
    num_cut: int
    readers: IdArray
    writers: IdArray | None  # None: not asked for

    @classmethod
    def of(
        cls, reading: Reading, parts: IdArray, first: int, tell: Tell = silent, *, writers: bool = False
    ) -> "Across":
        """Found by a pass over the in-edges, with 4 or 8 bytes a vertex."""
        read_by = np.zeros(parts.size, np.int32)
        written_by = np.zeros(parts.size, np.int32) if writers else None
        num_cut = done = 0
        for _, begin, (near, indices, _) in reading.links.blocks():
            bits = read_by, written_by
            num_cut += kernels.partition_across(near, indices, parts, *bits, first_part=first, first_row=begin)
            done += indices.size
            tell(Progress("counting cut edges", done, reading.graph.num_edges, "edges"))
        return cls(first, num_cut, read_by, written_by)

    def num_read(self) -> int:
        """How many in-ghosts these parts have."""
        return _count(self.readers)

    def num_written(self) -> int:
        """How many out-ghosts these parts have."""
        return 0 if self.writers is None else _count(self.writers)

    def sources(self, part: int) -> BoolArray:
        """Whose edges lead to a part, of other parts' vertices."""
        return _has(self.readers, part - self.first)

    def targets(self, part: int) -> BoolArray:
        """To whom edges of a part lead, of other parts' vertices."""
        assert self.writers is not None
        return _has(self.writers, part - self.first)


def _count(bits: IdArray) -> int:
    blocks = (bits[begin : begin + STEP].view(np.uint32) for begin in range(0, bits.size, STEP))
    return sum(int(np.bitwise_count(block).sum(dtype=np.int64)) for block in blocks)


def _has(bits: IdArray, number: int) -> BoolArray:
    found: BoolArray = (bits & np.uint32(1 << number).astype(np.int32)) != 0
    return found
