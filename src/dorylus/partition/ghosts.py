"""Ghosts: the rows of remote vertices on one server, laid out so that each message fills one range.

Ghost rows follow a server's own rows in a matrix. They are sorted by the interval in which their owner has them,
needed rows first, like own rows (:mod:`dorylus.partition.layout`): an interval's rows of a level are consecutive here,
too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Ghosts:
    """The ghosts of one server in one direction; rows count from the first ghost.

    ``first`` [intervals + 1] is where the ghosts of each interval of the cluster begin, ``ends`` [levels, intervals]
    where those needed at a level end. ``ids`` are the vertices in the order of their rows. A level that needs every
    ghost may use another order within each interval, ``whole``; its ranges are the same.
    """

    ids: Ids
    whole: Ids
    first: NDArray[np.int64]
    ends: NDArray[np.int64]

    @property
    def num_rows(self) -> int:
        """How many ghosts there are."""
        return self.ids.size

    def rows(self, level: int, interval: int) -> tuple[int, int]:
        """The range of ghost rows that an interval fills at a level."""
        return int(self.first[interval]), int(self.ends[level, interval])

    def num_needed(self, level: int) -> int:
        """How many ghosts are needed at a level: the rows that one exchange receives."""
        return int((self.ends[level] - self.first[:-1]).sum())

    def ids_at(self, level: int | None) -> Ids:
        """The vertices in the order of their rows at a level (None: a level that needs all of them)."""
        every = level is None or self.num_needed(level) == self.num_rows
        return self.whole if every else self.ids

    def everything(self) -> "Ghosts":
        """The same ghosts, all needed at every level, for evaluation and prediction."""
        return Ghosts(self.whole, self.whole, self.first, np.broadcast_to(self.first[1:], self.ends.shape))


def make_ghosts(ids: Ids, interval: Ids, level: NDArray[np.int8], num_intervals: int, num_layers: int) -> Ghosts:
    """The ghosts in order, given the interval of each and the deepest level that needs it (-1: none)."""
    by_place = np.lexsort((ids, -level.astype(np.int16), interval))
    first = np.zeros(num_intervals + 1, np.int64)
    np.cumsum(np.bincount(interval, minlength=num_intervals), out=first[1:])
    ends = np.empty((num_layers + 1, num_intervals), np.int64)
    for depth in range(num_layers + 1):
        ends[depth] = first[:-1] + np.bincount(interval[level >= depth], minlength=num_intervals)
    ordered = ids[by_place]
    return Ghosts(ordered, ordered, first, ends)


@dataclass(frozen=True, eq=False)
class SendList:
    """The own rows that a peer has as ghosts, in the peer's order; each vertex occurs once.

    ``ghosts`` are the peer's; ``offset`` is the first of them that this server owns; ``all_rows`` are the own rows of
    those it owns, and ``orders`` the same in the order of each level.
    """

    ghosts: Ghosts
    offset: int
    all_rows: Ids
    orders: tuple[Ids, ...]

    def has_ghosts_in(self, interval: int) -> bool:
        """Whether the peer has a ghost of this interval, at any level."""
        return bool(self.ghosts.first[interval] < self.ghosts.first[interval + 1])

    def rows(self, level: int, interval: int) -> Ids:
        """The own rows to send; row i of the message goes to ghost row i of the peer's range for level and interval."""
        begin, end = self.ghosts.rows(level, interval)
        return self.orders[level][begin - self.offset : end - self.offset]
