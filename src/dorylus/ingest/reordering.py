"""The vertex order of a store: that of the input or by descending degree, applied to rows and ids out of core.

Rows are permuted like in an external sort: they are distributed to regions of a scratch file, each for a range of new
numbers and small enough to be sorted in memory.
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
from dorylus.ingest.scratch import EdgeScratch, UnlinkedFile
from dorylus.progress import ReportStage, StageProgress

STEP = 1 << 12  # names whose lengths are summed at a time
MOST_NAMES = 1 << 20  # names of a region


class VertexOrder(Protocol):
    """Converts rows and masks from the order of the input to the order of the store."""

    def rows(self, blocks: Iterable[AnyArray], dtype: Any, row_shape: tuple[int, ...]) -> Iterable[AnyArray]:
        """The rows of ``blocks``, which have ``dtype`` and ``row_shape``, in the order of the store."""
        ...

    def mask(self, mask: BoolArray) -> BoolArray:
        """A mask in the order of the store."""
        ...


class InputOrder:
    """The order of the input."""

    def rows(self, blocks: Iterable[AnyArray], dtype: Any, row_shape: tuple[int, ...]) -> Iterable[AnyArray]:
        """The blocks unchanged."""
        return blocks

    def mask(self, mask: BoolArray) -> BoolArray:
        """The mask unchanged."""
        return mask


class Reordered:
    """A new order (int32 [N], new number -> old), applied in ``memory_bytes`` with a scratch file in ``folder``."""

    def __init__(self, order: IdArray, memory_bytes: int, folder: Path) -> None:
        self.order, self.new_numbers = order, inverse(order, order.size)
        self._memory_bytes, self._folder = memory_bytes, folder

    def rows(self, blocks: Iterable[AnyArray], dtype: Any, row_shape: tuple[int, ...]) -> Iterator[AnyArray]:
        """The rows by new number."""
        dtype = np.dtype(dtype)
        row_bytes = dtype.itemsize * int(np.prod(row_shape))
        step = max(1, self._memory_bytes // 4 // max(row_bytes, 8))
        firsts = np.arange(0, self.order.size, step)
        with _Regions(self, firsts, firsts * row_bytes, self._folder) as regions:
            for block in blocks:
                for region, some in regions.distribute(len(block)):
                    regions.put(region, raw_bytes(block[some], dtype))
            for _, rank, raw in regions:
                yield np.frombuffer(raw, dtype).reshape(-1, *row_shape)[rank]

    def names(self, blocks: Callable[[], Iterable[Tokens]]) -> Iterator[Tokens]:
        """The names by new number; ``blocks`` is iterated twice."""
        lengths = self._lengths(blocks())
        firsts, begins = self._region_bounds(lengths, max(1, self._memory_bytes // 32))
        with _Regions(self, firsts, begins, self._folder) as regions:
            for block in blocks():
                for region, some in regions.distribute(len(block)):
                    regions.put(region, block.take(some).bytes.data)
            for old, rank, raw in regions:
                offsets = np.concatenate([[0], np.cumsum(lengths[old], dtype=np.int64)])
                yield Tokens(np.frombuffer(raw, np.uint8), offsets).take(rank)

    def mask(self, mask: BoolArray) -> BoolArray:
        """The mask by new number."""
        return mask[self.order]

    def _region_bounds(self, lengths: NDArray[np.int32], most: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(first new numbers, first bytes) of regions of about ``most`` bytes and at most MOST_NAMES names."""
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
    """Regions of a scratch file: region i starts at byte ``begins[i]`` and holds new numbers from ``firsts[i]``."""

    def __init__(self, vertices: Reordered, firsts: NDArray[np.int64], begins: NDArray[np.int64], folder: Path) -> None:
        self._vertices, self._firsts, self._begins, self._ends = vertices, firsts, begins, begins.copy()
        self._distributed = 0
        self._file = UnlinkedFile(folder)

    def distribute(self, count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """(region, positions) of the next ``count`` rows."""
        new = self._vertices.new_numbers[self._distributed : self._distributed + count]
        self._distributed += count
        region = np.searchsorted(self._firsts, new, side="right") - 1
        by_region = np.argsort(region, kind="stable")
        bounds = np.flatnonzero(np.diff(region[by_region], prepend=-1, append=-1))
        for begin, end in pairwise(bounds.tolist()):
            yield int(region[by_region[begin]]), by_region[begin:end]

    def put(self, region: int, raw: memoryview) -> None:
        """Append rows to a region."""
        self._file.write(raw, int(self._ends[region]))
        self._ends[region] += len(raw)

    def __iter__(self) -> Iterator[tuple[IdArray, NDArray[np.int64], bytes]]:
        """Per region: the old numbers of its rows in file order, the permutation to the new order, the rows' bytes."""
        bounds = [*self._firsts.tolist(), self._vertices.order.size]
        for (first, last), begin, end in zip(pairwise(bounds), self._begins, self._ends, strict=True):
            new_order = self._vertices.order[first:last]
            stored = np.sort(new_order)
            yield stored, np.searchsorted(stored, new_order), self._file.read(int(begin), int(end - begin))

    def __enter__(self) -> "_Regions":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def write_ids(folder: NewFolder, numbering: Numbering, num_vertices: int, order: InputOrder | Reordered) -> bool:
    """Write the original ids if they differ from the vertices' numbers; returns whether they do.

    A numbering that assigned numbers has ``original()``: blocks of int64, or :class:`Tokens`.
    """
    original = getattr(numbering, "original", None)
    if original is None or isinstance(numbering, DenseIds):
        return _write_numbers(folder, order)
    if numbering.num_vertices != num_vertices:
        raise DataError(
            f"the edges name {numbering.num_vertices:,} vertices, but the graph has {num_vertices:,}: give a file "
            "with the ids of all vertices, or leave num_vertices out."
        )
    blocks = iter(original())
    first = next(blocks, np.empty(0, np.int64))
    if isinstance(first, Tokens):
        _write_names(folder, order.names(original) if isinstance(order, Reordered) else chain((first,), blocks))
    else:
        _write_array(folder, order.rows(chain((first,), blocks), "<i8", ()))
    return True


def original_id(numbering: Numbering, number: int) -> str:
    """The id in the input of the vertex with a number, for error messages."""
    for block in getattr(numbering, "original", lambda: ())():
        if number < len(block):
            return format_id(block[number])
        number -= len(block)
    return str(number)


def _write_numbers(folder: NewFolder, order: InputOrder | Reordered) -> bool:
    """Numeric ids are stored only if the vertices are renumbered."""
    if not isinstance(order, Reordered):
        return False
    old = order.order
    _write_array(folder, (old[begin : begin + BLOCK_IDS] for begin in range(0, old.size, BLOCK_IDS)))
    return True


def _write_array(folder: NewFolder, blocks: Iterable[Any]) -> None:
    with folder.array("ids", "<i8") as writer:
        for block in blocks:
            writer.write(block)


def _write_names(folder: NewFolder, blocks: Iterable[Tokens]) -> None:
    with folder.array("ids.offsets", "<i8") as offsets, folder.array("ids.bytes", "|u1") as names:
        offsets.write(np.zeros(1, np.int64))
        for block in blocks:
            begin, end = int(block.offsets[0]), int(block.offsets[-1])
            offsets.write(block.offsets[1:] - begin + names.num_rows)
            names.write(block.bytes[begin:end])


BYTES_PER_VERTEX = 12
"""The most memory of a reordering: a degree and a number, or two numbers and the length of a name."""

OFFSETS_AT_ONCE = 1 << 20


def degree_order(edges: EdgeScratch, num_vertices: int, tell: ReportStage, *, loops: bool = True) -> IdArray:
    """int32 [N], new number -> old: by descending in- plus out-degree, ties by old number.

    Repeated edges count each time, self loops only with ``loops``.
    """
    keys, total, done = np.zeros(num_vertices, np.int64), edges.num_edges, 0
    for rows, columns, _ in edges.blocks():
        counted = slice(None) if loops else rows != columns
        for ends in (rows, columns):
            np.subtract.at(keys, ends[counted].astype(np.intp), 1)  # other index types are five times slower
        done += rows.size
        tell(StageProgress("counting degrees", done, total, "edges"))
    return _sorted_by(keys)


def _sorted_by(keys: NDArray[np.int64]) -> IdArray:
    """The stable argsort of ``keys``, computed in place: ``keys`` is overwritten."""
    np.maximum(keys, -(1 << 31), out=keys)
    order = np.empty(keys.size, np.int32)
    steps = [slice(begin, begin + OFFSETS_AT_ONCE) for begin in range(0, keys.size, OFFSETS_AT_ONCE)]
    for step in steps:
        keys[step] = keys[step] << 32 | np.arange(step.start, min(step.stop, keys.size))
    keys.sort()
    for step in steps:
        order[step] = keys[step] & 0xFFFFFFFF
    return order
