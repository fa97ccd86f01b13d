"""Rows of vertices on their way from the order of the input to that of the store: the same one, or another.

Another order is made as an external sort is: rows are dealt out, as they come, to regions of a scratch file, each for a
range of new numbers and small enough to be put in order in memory.

The ids that vertices had in the input, kept beside the graph.

The order of vertices by falling degree, found in a pass over edges on disk.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError
from dorylus.graph import AnyArray, BoolArray, IdArray, NewFolder, inverse, raw_bytes
from dorylus.ingest.batches import Numbering, Tokens, format_id
from dorylus.ingest.numbering import BLOCK_IDS, DenseIds
from dorylus.ingest.scratch import EdgeScratch, ScratchFile
from dorylus.progress import StageProgress, Tell

STEP = 1 << 12  # names whose lengths are added up at a time
MOST_NAMES = 1 << 20  # of a region


class VertexOrder(Protocol):
    """Gives what comes by the numbers of the input in the order of the store."""

    def rows(self, blocks: Iterable[AnyArray], dtype: Any, row_shape: tuple[int, ...]) -> Iterable[AnyArray]:
        """The rows of blocks, which are of ``dtype`` and ``row_shape``, in other blocks."""
        ...

    def mask(self, mask: BoolArray) -> BoolArray:
        """A bool a vertex."""
        ...


class AsGiven:
    """The order of the input."""

    def rows(self, blocks: Iterable[AnyArray], dtype: Any, row_shape: tuple[int, ...]) -> Iterable[AnyArray]:
        """The blocks as they are."""
        return blocks

    def mask(self, mask: BoolArray) -> BoolArray:
        """The mask as it is."""
        return mask


class Reordered:
    """Another order (int32 [N], new number -> old); regions take ``memory_bytes`` and lie in a file in ``folder``."""

    def __init__(self, order: IdArray, memory_bytes: int, folder: Path) -> None:
        self.order, self.place = order, inverse(order, order.size)
        self._memory_bytes, self._folder = memory_bytes, folder

    def rows(self, blocks: Iterable[AnyArray], dtype: Any, row_shape: tuple[int, ...]) -> Iterator[AnyArray]:
        """The rows by new number."""
        dtype = np.dtype(dtype)
        row_bytes = dtype.itemsize * int(np.prod(row_shape))
        step = max(1, self._memory_bytes // 4 // max(row_bytes, 8))
        firsts = np.arange(0, self.order.size, step)
        with _Regions(self, firsts, firsts * row_bytes, self._folder) as regions:
            for block in blocks:
                for region, some in regions.deal(len(block)):
                    regions.put(region, raw_bytes(block[some], dtype))
            for _, rank, raw in regions:
                yield np.frombuffer(raw, dtype).reshape(-1, *row_shape)[rank]

    def names(self, blocks: Callable[[], Iterable[Tokens]]) -> Iterator[Tokens]:
        """The names by new number; they are gone through twice."""
        lengths = self._lengths(blocks())
        firsts, begins = self._cut(lengths, max(1, self._memory_bytes // 32))
        with _Regions(self, firsts, begins, self._folder) as regions:
            for block in blocks():
                for region, some in regions.deal(len(block)):
                    regions.put(region, block.take(some).bytes.data)
            for old, rank, raw in regions:
                offsets = np.concatenate([[0], np.cumsum(lengths[old], dtype=np.int64)])
                yield Tokens(np.frombuffer(raw, np.uint8), offsets).take(rank)

    def mask(self, mask: BoolArray) -> BoolArray:
        """The mask by new number."""
        return mask[self.order]

    def _cut(self, lengths: NDArray[np.int32], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(first new numbers, first bytes) of regions of about ``most`` bytes, none of too many names."""
        firsts, begins, total = [0], [0], 0
        for begin in range(0, self.order.size, STEP):
            if total - begins[-1] >= most or begin - firsts[-1] >= MOST_NAMES:
                firsts.append(begin)
                begins.append(total)
            total += int(lengths[self.order[begin : begin + STEP]].sum(dtype=np.int64))
        return np.array(firsts), np.array(begins)

    def _lengths(self, blocks: Iterable[Tokens]) -> NDArray[np.int32]:
        lengths, done = np.empty(self.order.size, np.int32), 0
        for block in blocks:
            lengths[done : done + len(block)] = np.diff(block.offsets)
            done += len(block)
        return lengths


class _Regions:
    """Regions of a file, from the bytes ``begins`` on, for rows whose new numbers are from ``firsts`` on."""

    def __init__(self, vertices: Reordered, firsts: NDArray[np.int64], begins: NDArray[np.int64], folder: Path) -> None:
        self._vertices, self._firsts, self._begins, self._ends = vertices, firsts, begins, begins.copy()
        self._dealt = 0
        self._file = ScratchFile(folder)

    def deal(self, count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """The positions of the next ``count`` rows by the region they belong to."""
        new = self._vertices.place[self._dealt : self._dealt + count]
        self._dealt += count
        region = np.searchsorted(self._firsts, new, side="right") - 1
        by_region = np.argsort(region, kind="stable")
        cuts = np.flatnonzero(np.diff(region[by_region], prepend=-1, append=-1))
        for begin, end in pairwise(cuts.tolist()):
            yield int(region[by_region[begin]]), by_region[begin:end]

    def put(self, region: int, raw: memoryview) -> None:
        """Adds rows to a region."""
        self._file.write(raw, int(self._ends[region]))
        self._ends[region] += len(raw)

    def __iter__(self) -> Iterator[tuple[IdArray, NDArray[np.int64], bytes]]:
        """Of each region: the old numbers of its rows as they lie, which of them comes at each place, their bytes."""
        bounds = [*self._firsts.tolist(), self._vertices.order.size]
        for (first, last), begin, end in zip(pairwise(bounds), self._begins, self._ends, strict=True):
            wanted = self._vertices.order[first:last]
            lying = np.sort(wanted)
            yield lying, np.searchsorted(lying, wanted), self._file.read(int(begin), int(end - begin))

    def __enter__(self) -> "_Regions":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write_ids(folder: NewFolder, numbering: Numbering, num_vertices: int, order: AsGiven | Reordered) -> bool:
    """Writes the arrays of ids that are not the vertices' numbers; whether there are such.

    A numbering that gave ids their numbers has ``original()``: blocks of int64, or :class:`Tokens`.
    """
    original = getattr(numbering, "original", None)
    if original is None or isinstance(numbering, DenseIds):
        return _write_numbers(folder, order)
    if numbering.num_vertices != num_vertices:
        raise DataError(
            f"the edges name {numbering.num_vertices:,} vertices, but the graph is to have {num_vertices:,}: give a "
            "file with the ids of all vertices, or leave num_vertices out."
        )
    blocks = iter(original())
    first = next(blocks, np.empty(0, np.int64))
    if isinstance(first, Tokens):
        _write_texts(folder, order.names(original) if isinstance(order, Reordered) else chain((first,), blocks))
    else:
        _write_array(folder, order.rows(chain((first,), blocks), "<i8", ()))
    return True


def called(numbering: Numbering, number: int) -> str:
    """What the input calls the vertex with a number."""
    for block in getattr(numbering, "original", lambda: ())():
        if number < len(block):
            return format_id(block[number])
        number -= len(block)
    return str(number)


def _write_numbers(folder: NewFolder, order: AsGiven | Reordered) -> bool:
    """Numbers need no ids, unless vertices get others."""
    if not isinstance(order, Reordered):
        return False
    old = order.order
    _write_array(folder, (old[begin : begin + BLOCK_IDS] for begin in range(0, old.size, BLOCK_IDS)))
    return True


def _write_array(folder: NewFolder, blocks: Iterable[Any]) -> None:
    with folder.array("ids", "<i8") as writer:
        for block in blocks:
            writer.write(block)


def _write_texts(folder: NewFolder, blocks: Iterable[Tokens]) -> None:
    with folder.array("ids.offsets", "<i8") as offsets, folder.array("ids.bytes", "|u1") as texts:
        offsets.write(np.zeros(1, np.int64))
        for block in blocks:
            begin, end = int(block.offsets[0]), int(block.offsets[-1])
            offsets.write(block.offsets[1:] - begin + texts.num_rows)
            texts.write(block.bytes[begin:end])


BYTES_PER_VERTEX = 12
"""What is in memory at most: a degree and a number, or two numbers and the length of a name."""

OFFSETS_AT_ONCE = 1 << 20


def degree_order(edges: EdgeScratch, num_vertices: int, tell: Tell, *, loops: bool = True) -> IdArray:
    """int32 [N], new number -> old: most edges first, in and out, those with as many by their old numbers.

    Edges that are repeated count as often as they come, and those to oneself only with ``loops``.
    """
    keys, total, done = np.zeros(num_vertices, np.int64), edges.num_edges, 0
    for rows, columns, _ in edges.blocks():
        counted = slice(None) if loops else rows != columns
        for ends in (rows, columns):
            np.subtract.at(keys, ends[counted].astype(np.intp), 1)  # numbers of other types take it five times as long
        done += rows.size
        tell(StageProgress("counting degrees", done, total, "edges"))
    return _sorted_by(keys)


def _sorted_by(keys: NDArray[np.int64]) -> IdArray:
    """The places of ``keys``, least first and stable, sorted within the array itself: it is not needed any more."""
    np.maximum(keys, -(1 << 31), out=keys)
    order = np.empty(keys.size, np.int32)
    steps = [slice(begin, begin + OFFSETS_AT_ONCE) for begin in range(0, keys.size, OFFSETS_AT_ONCE)]
    for step in steps:
        keys[step] = keys[step] << 32 | np.arange(step.start, min(step.stop, keys.size))
    keys.sort()
    for step in steps:
        order[step] = keys[step] & 0xFFFFFFFF
    return order
