"""The files of a folder of arrays: memory-mapped or read row by row, and compared with the state they were opened in.

Reading rows on demand is for servers that need some rows and must not hold the rest. A memory-mapped file would not do:
rows are scattered, and every touched page counts as memory in use.
"""

import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, overload

import numpy as np

from dorylus.backends import crc32, watch_mapping
from dorylus.graph.arrays import AnyArray
from dorylus.graph.locations import Address, file_system_in_memory, location_of
from dorylus.graph.manifest import FolderKind
from dorylus.paging import BlockSums, FileState, ReadOnlyFile, changed, damaged

SUMS_FILE = "blocks.crc32"
PART_BYTES = 16 << 20  # bytes compared with their checksums at a time


def file_name(array: str) -> str:
    """The name of the file that holds an array."""
    return f"{array}.bin"


class FolderFiles:
    """The files of a local folder and their state when it was opened. Mapped files stay open for later comparison."""

    def __init__(self, folder: Address, kind: FolderKind, manifest: dict[str, Any]) -> None:
        self.folder, self.manifest, self._kind = Path(folder), manifest, kind
        self._states: dict[str, FileState] = {}
        self._held: dict[str, int] = {}
        for name in manifest["arrays"]:
            try:
                self._states[name] = FileState.of(self._path(name))
            except OSError as error:
                raise kind.damaged(folder, f"{file_name(name)} cannot be read ({error.strerror})") from error

    def map(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
        """An array as a read-only view of its file."""
        path = self._path(name)
        if name not in self._held:
            self._held[name] = self._open(name)
        with os.fdopen(self._held[name], "rb", buffering=0, closefd=False) as file:
            mapped = np.memmap(file, dtype=dtype, mode="r", shape=shape)
        mapped.filename = path  # NumPy sets it only for files that it opened itself
        sentence = f"{changed(path, 'was cut short')}"
        watch_mapping(mapped, len(mapped._mmap), f"error: {sentence}")  # type: ignore[attr-defined]
        return np.asarray(mapped)

    def open(self, name: str) -> BinaryIO:
        """The file of an array, opened for reading."""
        return os.fdopen(self._open(name), "rb", buffering=0)

    def block_file(self, name: str) -> ReadOnlyFile:
        """The file of an array, to be read page by page and compared with checksums."""
        try:
            return ReadOnlyFile(self._path(name), self._states[name], self.sums.get(name))
        except OSError as error:
            raise self._removed_error(name) from error

    def check(self) -> None:
        """Refuse a mapped file that has changed: the data read from it may mix two graphs, or be zeros."""
        for name, descriptor in self._held.items():
            now = FileState.of(descriptor)
            self._states[name].compare(now, self._path(name))
            if now.ctime_ns != self._states[name].ctime_ns:  # its modification time may have been reset
                self._compare_content(name, descriptor)
                if not self._states[name].explains(now):
                    raise changed(self._path(name), "was written to and back, or renamed,")
                self._states[name] = now

    def _compare_content(self, name: str, descriptor: int) -> None:
        """Refuse a file whose content differs from its block checksums, where the folder has them.

        A file that was replaced or removed keeps its content while it is open.
        """
        sums, begin = self.sums.get(name), 0
        if sums is None:
            return
        part = PART_BYTES // sums.block_bytes * sums.block_bytes
        while block := os.pread(descriptor, part, begin):
            if sums.first_wrong(block, begin) is not None:
                raise changed(self._path(name), "was written to")
            begin += len(block)

    @cached_property
    def bytes_in_memory(self) -> int:
        """The bytes of all arrays if their file system is in memory (tmpfs); else 0.

        The kernel charges them to the control group that wrote them. A run counts them as its own: they often are, and
        the group cannot be read back.
        """
        if file_system_in_memory(self.folder) is None:
            return 0
        return sum(state.size for state in self._states.values())

    @cached_property
    def sums(self) -> dict[str, BlockSums]:
        """The checksums of the blocks of every array."""
        return read_sums(self.folder, self._kind, self.manifest)

    def __del__(self) -> None:
        for descriptor in self._held.values():
            os.close(descriptor)

    def _path(self, name: str) -> str:
        return str(self.folder / file_name(name))

    def _open(self, name: str) -> int:
        try:
            descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise self._removed_error(name) from error
        try:
            self._states[name].compare(FileState.of(descriptor), self._path(name))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _removed_error(self, name: str) -> Exception:
        return changed(self._path(name), "was removed")


def count_blocks(size: int, block_bytes: int) -> int:
    """The number of blocks of a file of ``size`` bytes."""
    return -(-size // block_bytes)


def read_sums(folder: Address, kind: FolderKind, manifest: Mapping[str, Any]) -> dict[str, BlockSums]:
    """The block checksums of every array; empty for a folder of an older version, which has none."""
    blocks = manifest.get("blocks")
    if blocks is None:
        return {}
    sizes = {name: manifest["arrays"][name]["bytes"] for name in sorted(manifest["arrays"])}
    expected = 4 * sum(count_blocks(size, blocks["bytes"]) for size in sizes.values())
    location = location_of(folder)
    size = location.sizes().get(SUMS_FILE, expected)
    if size != expected:  # checked before reading: a wrong file may have any size
        raise kind.damaged(folder, f"{SUMS_FILE} has {size:,} bytes instead of {expected:,}")
    try:
        raw = location.read(SUMS_FILE)
    except OSError as error:
        raise kind.damaged(folder, f"{SUMS_FILE} cannot be read ({error.strerror or error})") from error
    if crc32(raw) != blocks["crc32"]:
        raise kind.damaged(folder, f"the checksum of {SUMS_FILE} differs from the one in {kind.manifest}")
    by_array, begin, sums = {}, 0, np.frombuffer(raw, "<u4")
    for name, size in sizes.items():
        end = begin + count_blocks(size, blocks["bytes"])
        by_array[name] = BlockSums(sums[begin:end], blocks["bytes"], size)
        begin = end
    return by_array


BLOCK_BYTES = 1 << 20


class StoredRows:
    """The rows of an array in a file, with all or some of its columns."""

    def __init__(
        self,
        open_file: Callable[[], BinaryIO],
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        columns: slice | None = None,
        *,
        name: str = "a file",
        sums: BlockSums | None = None,
    ) -> None:
        self._open_file, self.dtype, self.shape, self._columns = open_file, dtype, shape, columns
        self._name, self._sums = name, sums

    def __len__(self) -> int:
        return self.shape[0]

    @overload
    def __getitem__(self, rows: AnyArray) -> AnyArray: ...

    @overload
    def __getitem__(self, rows: tuple[slice, slice]) -> "StoredRows": ...

    def __getitem__(self, rows: AnyArray | tuple[slice, slice]) -> "AnyArray | StoredRows":
        """The rows with these numbers, in this order; ``[:, columns]`` is a view of all rows with some columns."""
        if isinstance(rows, tuple):
            return StoredRows(self._open_file, self.dtype, self.shape, rows[1], name=self._name, sums=self._sums)
        return self._read_rows(rows)

    def _read_rows(self, rows: AnyArray) -> AnyArray:
        """Read the file in its own order; of each block, from the first requested row to the last."""
        row_bytes = self.dtype.itemsize * int(np.prod(self.shape[1:]))
        columns = self._columns or slice(None)
        width = tuple(len(range(each)[columns]) for each in self.shape[1:])
        out = np.empty((rows.size, *width), self.dtype)
        if not out.size:
            return out
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        blocks = ascending // max(1, BLOCK_BYTES // row_bytes)
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        with self._open_file() as file:
            for begin, end in zip(starts, [*starts[1:], rows.size], strict=True):
                first, last = int(ascending[begin]), int(ascending[end - 1])
                read = self._read(file, first * row_bytes, (last + 1 - first) * row_bytes)
                block = read.reshape(-1, *self.shape[1:])
                out[order[begin:end]] = (block[:, columns] if width else block)[ascending[begin:end] - first]
        return out

    def _read(self, file: BinaryIO, offset: int, count: int) -> AnyArray:
        """``count`` bytes from ``offset``; where blocks have checksums, whole blocks are read and compared."""
        if self._sums is None:
            return np.frombuffer(self._bytes(file, offset, offset + count), self.dtype)
        step, size = self._sums.block_bytes, self.dtype.itemsize * int(np.prod(self.shape))
        begin, end = offset // step * step, min(-(-(offset + count) // step) * step, size)
        content = self._bytes(file, begin, end)
        if (wrong := self._sums.first_wrong(content, begin)) is not None:
            raise damaged(self._name, wrong)
        return np.frombuffer(content, self.dtype, count // self.dtype.itemsize, offset - begin)

    def _bytes(self, file: BinaryIO, begin: int, end: int) -> memoryview:
        file.seek(begin)
        parts = bytearray()
        while begin + len(parts) < end:
            part = file.read(end - begin - len(parts))
            if not part:
                raise changed(self._name, f"ended at byte {begin + len(parts):,}, before byte {end:,},")
            parts += part
        return memoryview(parts)
