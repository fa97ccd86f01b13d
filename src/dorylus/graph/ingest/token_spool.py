"""Names kept on disk in the order of their numbers, in files without a name that vanish with the process."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dorylus.graph.ingest.batches import Tokens
from dorylus.graph.ingest.scratch_file import ScratchFile

BLOCK_NAMES = 1 << 16
BLOCK_BYTES = 8 << 20


class TokenSpool:
    """Names in the order they were added."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = Path(tempfile.gettempdir()) if folder is None else folder
        self._bytes, self._ends = ScratchFile(folder), ScratchFile(folder)
        self._count = self._num_bytes = 0

    def __len__(self) -> int:
        return self._count

    @property
    def num_bytes(self) -> int:
        """What names and their places take on disk, where all of them are now."""
        self._flush()
        return self._num_bytes + 8 * self._count

    def append(self, names: Tokens) -> None:
        """Add names at the end."""
        if not len(names):
            return
        begin, end = int(names.offsets[0]), int(names.offsets[-1])
        self._bytes.append(names.bytes[begin:end].data)
        self._ends.append((names.offsets[1:] - begin + self._num_bytes).astype("<i8").view(np.uint8).data)
        self._num_bytes += end - begin
        self._count += len(names)

    def blocks(self) -> Iterator[Tokens]:
        """All names, some at a time."""
        self._flush()
        begin = 0
        for first in range(0, self._count, BLOCK_NAMES):
            raw = self._ends.read(8 * first, 8 * min(BLOCK_NAMES, self._count - first))
            offsets = np.concatenate([[begin], np.frombuffer(raw, "<i8")]).astype(np.int64)
            yield from self._cut(offsets)
            begin = int(offsets[-1])

    def close(self) -> None:
        """Give the disk space back."""
        self._bytes.close()
        self._ends.close()

    def _flush(self) -> None:
        self._bytes.flush()
        self._ends.flush()

    def _cut(self, offsets: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Iterator[Tokens]:
        """The names between offsets, in pieces of bounded size unless one name is longer."""
        first, last = 0, len(offsets) - 1
        while first < last:
            fitting = int(np.searchsorted(offsets, offsets[first] + BLOCK_BYTES, side="right")) - 1
            after = min(max(fitting, first + 1), last)
            begin, end = int(offsets[first]), int(offsets[after])
            content = np.frombuffer(self._bytes.read(begin, end - begin), np.uint8)
            yield Tokens(content, offsets[first : after + 1] - begin)
            first = after
