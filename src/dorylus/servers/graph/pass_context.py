"""What the parts of a graph server share in one pass: its shard, its matrices, and the back end that works on them.

A matrix has one row per own vertex. One that others' rows are gathered from has ghost rows after those: in-ghosts for
rows gathered forward, out-ghosts for cotangents gathered backward.
"""

from dataclasses import dataclass, field

from dorylus.backends import Backend, Index, Matrix, NumberFormat
from dorylus.partition import Ghosts, Layout, LocalShard
from dorylus.saga import Slot
from dorylus.servers.graph.matrices import Matrices


@dataclass(frozen=True)
class Grad:
    """The name of the matrix of a slot's cotangent."""

    slot: Slot


@dataclass(frozen=True)
class Extra:
    """The name of a matrix a gather keeps for its own gradient."""

    slot: Slot
    what: str


@dataclass(frozen=True)
class Published:
    """The name of a matrix that ∇SC fills for the sources' ∇GA: own rows, then out-ghosts."""

    slot: Slot
    what: str


@dataclass(frozen=True, eq=False)
class PassContext:
    """What gathers work on. ``gathered_format`` is the number format in which gathered values are stored.

    ``ids`` are the original ids of own rows and in-ghosts, where the back end reads them.
    """

    shard: LocalShard
    layout: Layout
    ghosts: Ghosts
    out_ghosts: Ghosts
    matrices: Matrices
    training: bool
    seed: int
    gathered_format: NumberFormat
    backend: Backend
    ids: Index = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", self.backend.place(self.shard.ids))

    @property
    def num_rows(self) -> int:
        """How many vertices the server owns."""
        return self.shard.num_vertices

    def values(self, slot: Slot) -> Matrix:
        """The matrix of a slot."""
        narrow = slot.gathered and not slot.exact
        rows = self.num_rows + (self.ghosts.num_rows if slot.gathered else 0)
        number_format = self.gathered_format if narrow else NumberFormat.FLOAT32
        return self.matrices.get(slot, rows, slot.columns, number_format)

    def wide(self, slot: Slot, begin: int, end: int) -> Matrix:
        """Some rows of a slot, as float32."""
        return self.backend.widened(self.values(slot)[begin:end])

    def cotangent(self, slot: Slot) -> Matrix:
        """The matrix of a slot's cotangent, own rows only, always float32."""
        return self.matrices.get(Grad(slot), self.num_rows, slot.columns)

    def extra(self, slot: Slot, what: str, columns: int) -> Matrix:
        """A matrix a gather keeps for its own gradient."""
        return self.matrices.get(Extra(slot, what), self.num_rows, columns)

    def published(self, slot: Slot, what: str, columns: int, *, narrow: bool = False) -> Matrix:
        """A matrix that others' ∇GA reads."""
        number_format = self.gathered_format if narrow else NumberFormat.FLOAT32
        rows = self.num_rows + self.out_ghosts.num_rows
        return self.matrices.get(Published(slot, what), rows, columns, number_format)

    def store(self, source: Matrix, target: Matrix, begin: int, end: int) -> None:
        """Write rows into the rows begin:end of a matrix, in its number format."""
        self.backend.store(source, target[begin:end])
