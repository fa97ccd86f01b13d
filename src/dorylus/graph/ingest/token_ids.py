"""Dense numbers for names, and the choice of a numbering."""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus import kernels
from dorylus.errors import DataError
from dorylus.graph.ingest.batches import EdgeBatch, EdgeSource, Tokens
from dorylus.graph.ingest.ids import UNLIMITED, ByAppearance, Dense, Mapped
from dorylus.graph.ingest.name_checks import first_bad, refusal
from dorylus.graph.ingest.token_spool import TokenSpool


class MappedTokens(ByAppearance):
    """Numbers for names.

    The table holds 128 bits a name; the names lie in a scratch file in ``scratch`` (default: the system's folder).
    """

    def __init__(
        self,
        *,
        vertices: EdgeSource | None = None,
        fixed: bool = False,
        memory_bytes: int | None = None,
        scratch: Path | None = None,
    ) -> None:
        limit = UNLIMITED if memory_bytes is None else memory_bytes
        self._table, self._names = kernels.NameIds(limit), TokenSpool(scratch)
        super().__init__(self._table, limit)
        self._begin(vertices, fixed)

    @property
    def scratch_bytes(self) -> int:
        """What the names take on disk."""
        return self._names.num_bytes

    def original(self) -> Iterator[Tokens]:
        """The names, by number; the offsets of each block begin at 0."""
        return self._names.blocks()

    def close(self) -> None:
        """Give the scratch file's space back."""
        self._names.close()

    @staticmethod
    def bytes_for(num_vertices: int) -> int:
        """What the table of so many names takes; the names lie on disk."""
        return kernels.NameIds.bytes_for(num_vertices)

    def _pairs(self, batch: EdgeBatch) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        source, destination = _tokens_of(batch)
        pair = (source.bytes, source.offsets), (destination.bytes, destination.offsets)
        before = len(self._table)
        sources, destinations, new = self._table.pairs(*pair, fixed=self._fixed)
        names = Tokens(*new)
        if (bad := first_bad(names)) is not None:
            # Looked for only now: the first edge that names it.
            edge = int(np.flatnonzero((sources == before + bad) | (destinations == before + bad))[0])
            raise refusal(names, bad, batch.place(edge))
        self._names.append(names)
        return sources, destinations


AnyNumbering: TypeAlias = Dense | Mapped | MappedTokens


def make_numbering(
    ids: str = "auto",
    *,
    strings: bool = False,
    num_vertices: int | None = None,
    vertices: EdgeSource | None = None,
    fixed: bool = False,
    memory_bytes: int | None = None,
    scratch: Path | None = None,
) -> AnyNumbering:
    """The numbering for ``ids`` as given to ``open_edges``, whose result says whether they are ``strings``."""
    if strings:
        return MappedTokens(vertices=vertices, fixed=fixed, memory_bytes=memory_bytes, scratch=scratch)
    if ids == "map" or (ids == "auto" and vertices is not None):
        return Mapped(vertices=vertices, fixed=fixed, memory_bytes=memory_bytes)
    if vertices is not None:
        raise DataError(
            "a list of vertices gives numbers to ids, but ids='dense' says they have them. Drop one of both."
        )
    return Dense(num_vertices)


def _tokens_of(batch: EdgeBatch) -> tuple[Tokens, Tokens]:
    if isinstance(batch.source, Tokens) and isinstance(batch.destination, Tokens):
        return batch.source, batch.destination
    raise DataError("the edges have numbers for ends, but names were asked for. Number them by ids='map'.")
