"""What an ingest takes on disk at the worst moment, and whether there is so much."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dorylus.errors import DataError
from dorylus.graph.sizes import format_bytes

_WHOLE_BLOCKS = 128 << 10  # files, of which there are a score, end within a block; the manifest and the folder


class Counts(NamedTuple):
    """How much there is to write: edges as they are read, and as they are sorted for a direction; ids, and names."""

    num_edges: int
    num_stored: int
    num_vertices: int
    ids_bytes: int = 0
    names_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Space:
    """The bytes of each part of an ingest.

    Scratch files: ``pairs`` as they were read (only to reorder them), ``spool`` of a sort, which gives back what it
    reads, ``names`` of vertices, ``dealt`` rows of vertices on their way to another order. Arrays: ``csr`` of one
    direction, of which ``offsets`` are a part, ``rows`` of vertices, their ``ids``.
    """

    pairs: int
    spool: int
    names: int
    dealt: int
    csr: int
    offsets: int
    rows: int
    ids: int
    directed: bool

    @classmethod
    def of(
        cls,
        counts: Counts,
        *,
        weighted: bool,
        directed: bool,
        reordered: bool,
        features_bytes: int = 0,
        rows_bytes: int = 0,
    ) -> "Space":
        """Of an ingest of so much; features are among the ``rows_bytes``."""
        record, offsets = record_bytes(weighted), 8 * (counts.num_vertices + 1)
        return cls(
            pairs=counts.num_edges * record if reordered else 0,
            spool=counts.num_stored * record,
            names=counts.names_bytes,
            dealt=max(features_bytes, counts.ids_bytes) if reordered else 0,
            csr=counts.num_stored * (record - 4) + offsets,
            offsets=offsets,
            rows=rows_bytes,
            ids=counts.ids_bytes,
            directed=directed,
        )

    @property
    def store(self) -> int:
        """All arrays of the store."""
        return self.csr * (2 if self.directed else 1) + self.rows + self.ids

    @property
    def most(self) -> int:
        """All files together at the worst moment."""
        kept = self.names + self.rows + (self.ids if self.pairs else 0)
        dealing = self.pairs + kept + self.dealt
        sorting = self.pairs + kept + self.spool
        return max(dealing, sorting, kept + self._writing, self.store + self.names)

    @property
    def _writing(self) -> int:
        """While a sort's file shrinks and arrays grow; of two directions, the second's file grows meanwhile."""
        # An edge leaves the file before it is in an array, where it takes 4 bytes less: with every edge less is on
        # disk. Only offsets may all come before the first edge, if no other vertex has one.
        last = self.spool + self.offsets
        # While the first of two directions is written, an edge that leaves its file goes to the second's: in the end
        # that is all of the spool, beside the csr. The second is written beside the csr of the first, which is more.
        return self.csr + last if self.directed else last


def record_bytes(weighted: bool) -> int:
    """What an edge takes in a scratch file."""
    return 12 if weighted else 8


def check_space(folder: Path, space: Space, already: int = 0) -> None:
    """Refuses to go on where less is free than will be taken beside the bytes that ``already`` are."""
    free, most = shutil.disk_usage(folder).free, space.most + _WHOLE_BLOCKS
    if free + already < most:
        taken = f"{format_bytes(already)} of it are taken and " if already else ""
        raise DataError(
            f"{folder.parent} needs {format_bytes(most)} of space for the store, which will have "
            f"{format_bytes(space.store)}, and for scratch files beside it, but {taken}{format_bytes(free)} are free. "
            "Make room, or give a place on a larger disk."
        )
