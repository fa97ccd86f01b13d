"""Edges kept on disk as they were read, until it is known which numbers their ends are to have."""

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import numpy as np

from dorylus.graph.arrays import FloatArray, IdArray
from dorylus.graph.ingest.scratch_file import ScratchFile
from dorylus.kernels import EdgeBlock


class PairSpool:
    """Takes edges as a sort does, and gives them back as often as asked, in the order and the blocks they came in."""

    def __init__(self, folder: Path, *, weighted: bool) -> None:
        self._file = ScratchFile(folder)
        self._types = ("<i4", "<i4", "<f4") if weighted else ("<i4", "<i4")
        self._counts: list[int] = []

    @property
    def num_bytes(self) -> int:
        """What they take on disk, where all of them are now."""
        self._file.flush()
        return 4 * len(self._types) * self.num_edges

    @property
    def num_edges(self) -> int:
        """How many were added."""
        return sum(self._counts)

    def add(self, rows: IdArray, columns: IdArray, weights: FloatArray | None = None) -> None:
        """Adds the edges (rows[e], columns[e]), with weights where all have them."""
        for values in (rows, columns, weights):
            if values is not None:
                self._file.append(np.ascontiguousarray(values).view(np.uint8).data)
        self._counts.append(rows.size)

    def blocks(self) -> Iterator[EdgeBlock]:
        """All edges."""
        self._file.flush()
        begin = 0
        for count in self._counts:
            raw = self._file.read(begin, 4 * count * len(self._types))
            parts = [np.frombuffer(raw, kind, count, 4 * count * part) for part, kind in enumerate(self._types)]
            yield parts[0], parts[1], parts[2] if len(parts) == 3 else None
            begin += len(raw)

    def close(self) -> None:
        """Gives the disk space back."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
