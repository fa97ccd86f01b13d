"""The checksums of a file's blocks, as they were when it was written."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError
from dorylus.kernels import crc32, crc32_blocks

Bytes = NDArray[np.uint8]
Buffer = bytes | memoryview | Bytes


def damaged(name: str, wrong: tuple[int, int]) -> DataError:
    """The sentence for a file that has a block which was not written so."""
    return DataError(
        f"{name} is damaged: its bytes from {wrong[0]:,} to {wrong[1]:,} are not those that were written, by their "
        "checksum. Copy or ingest the store again, and check the disk it is on."
    )


class BlockSums:
    """CRC-32 of every ``block_bytes`` of a file of so many bytes."""

    def __init__(self, sums: NDArray[np.uint32], block_bytes: int, size: int) -> None:
        self._sums, self._block, self._size = sums, block_bytes, size

    @property
    def block_bytes(self) -> int:
        """The bytes of a block; the last may have fewer."""
        return self._block

    def first_wrong(self, found: Buffer, offset: int) -> tuple[int, int] | None:
        """Where the first block begins and ends that was not written so; whole blocks, from an offset on."""
        first = offset // self._block
        sums = crc32_blocks(found, self._block)
        differ = np.flatnonzero(sums != self._sums[first : first + sums.size])
        return None if not differ.size else self._range(first + int(differ[0]))

    def check(self, found: Bytes, offset: int, more: Callable[[int, int], Bytes], name: str) -> None:
        """Refuse bytes, read from an offset on, that were not written so.

        ``more(begin, end)`` reads others, where a block begins before them or ends behind them.
        """
        end = offset + found.size
        begin = min(-(-offset // self._block) * self._block, end)  # of the first whole block
        stop = max(begin, end if end == self._size else end // self._block * self._block)
        wrong = self.first_wrong(found[begin - offset : stop - offset], begin) if begin < stop else None
        parts = {part // self._block for part, is_part in ((offset, offset < begin), (end - 1, stop < end)) if is_part}
        for block in parts:
            if not self._is_right(found, offset, block, more):
                wrong = wrong or self._range(block)
        if wrong is not None:
            raise damaged(name, wrong)

    def _is_right(self, found: Bytes, offset: int, block: int, more: Callable[[int, int], Bytes]) -> bool:
        """Whether a block of which some bytes were read is as it was written."""
        begin, end = self._range(block)
        near, far = max(begin, offset), min(end, offset + found.size)
        total = crc32(more(begin, near)) if begin < near else 0
        total = crc32(found[near - offset : far - offset], total)
        if far < end:
            total = crc32(more(far, end), total)
        return total == int(self._sums[block])

    def _range(self, block: int) -> tuple[int, int]:
        return block * self._block, min((block + 1) * self._block, self._size)
