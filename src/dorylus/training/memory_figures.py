"""A way to hold a run's matrices, and what that comes to."""

from collections import Counter
from dataclasses import dataclass, field

from dorylus.servers.holding import Holding
from dorylus.training.memory_shape import FLOAT


@dataclass(frozen=True, kw_only=True)
class Way:
    """A way to hold a run's matrices. ``half``: what is gathered is stored in two bytes.

    ``kept``: autograd's graphs are kept in memory from forward to backward. ``rows``: how many rows training needs at
    each level, and ``edges_into``: how many edges end in them; all at all of them when not given. ``reordered``: rows
    are not in the graph's own order.
    """

    holding: Holding
    static_blocks: int
    intervals: int
    threads: int
    half: bool = False
    kept: bool = True
    rows: tuple[int, ...] | None = None
    edges_into: tuple[int, ...] | None = None
    reordered: bool = False

    def item(self, narrow: bool) -> int:
        """The bytes of a number, of those that may be stored in two or of others."""
        return 2 if narrow and self.half else FLOAT


@dataclass
class Figures:
    """Bytes by kind, in memory at the worst moment and in files; and what an epoch reads and writes.

    ``droppable``: the part in memory that is the store's files, read row after row: the kernel can do without it.
    ``matrices``: the most that matrices take at once of all that is in memory.
    """

    resident: Counter[str] = field(default_factory=Counter)
    on_disk: Counter[str] = field(default_factory=Counter)
    read: int = 0
    written: int = 0
    droppable: int = 0
    matrices: int = 0

    @property
    def peak(self) -> int:
        """The most that is in memory at once."""
        return sum(self.resident.values())
