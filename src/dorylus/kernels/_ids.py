"""Dense numbers for ids, given in the order in which ids first appear: source before destination, edge after edge.

Both tables take a limit in bytes and raise OverflowError before an id would lead them past it; ``bytes_for(num_ids)``
gives what a table of that many takes. With ``fixed`` no id is added, and one that is not known gets -1.
"""

import secrets

from dorylus.kernels import _native
from dorylus.kernels._arrays import Bytes, Ints, Offsets
from dorylus.kernels._edge_text import Names


class NumberIds:
    """Numbers for int64 ids."""

    def __init__(self, limit_bytes: int = 2**63 - 1) -> None:
        self._table = _native.NumberIds(limit_bytes)

    def __len__(self) -> int:
        return len(self._table)

    @staticmethod
    def bytes_for(num_ids: int) -> int:
        """What a table of ``num_ids`` takes."""
        return _native.NumberIds.bytes_for(num_ids)

    def pairs(self, source: Offsets, destination: Offsets, *, fixed: bool = False) -> tuple[Ints, Ints]:
        """int32 [E] each: the numbers of both ends of every edge."""
        return self._table.pairs(source, destination, fixed)

    def ids(self, first: int, count: int) -> Offsets:
        """int64 [count]: the ids with the numbers from ``first`` on."""
        return self._table.ids(first, count)


class NameIds:
    """Numbers for names, known by 128 bits of a keyed hash: the names themselves are the caller's to keep."""

    def __init__(self, limit_bytes: int = 2**63 - 1) -> None:
        self._table = _native.NameIds(limit_bytes, secrets.randbits(64), secrets.randbits(64))

    def __len__(self) -> int:
        return len(self._table)

    @staticmethod
    def bytes_for(num_ids: int) -> int:
        """What a table of ``num_ids`` takes, the names not counted."""
        return _native.NameIds.bytes_for(num_ids)

    def pairs(
        self, source: Names, destination: Names, *, fixed: bool = False
    ) -> tuple[Ints, Ints, tuple[Bytes, Offsets]]:
        """The numbers of both ends of every edge, and the names that are new, in the order of their numbers."""
        sources, destinations, new_bytes, new_offsets = self._table.pairs(*source, *destination, fixed)
        return sources, destinations, (new_bytes, new_offsets)
