"""The files of a folder of arrays, as they were when it was opened: whoever opens one later gets the same, or an error.

A store is written once and never changed. One that is replaced, cut short or written to while it is in use would give
numbers of two graphs; a run compares sizes and times after every epoch, and reads of a store also compare checksums.
"""

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from dorylus.graph.arrays import AnyArray
from dorylus.graph.manifest import Kind
from dorylus.graph.places import Address, file_system_in_memory, place_of
from dorylus.kernels import crc32, watch_mapping
from dorylus.paging import BlockSums, FileState, ReadOnlyFile, changed

SUMS_FILE = "blocks.crc32"
PART_BYTES = 16 << 20  # that are compared with their checksums at a time


def file_name(array: str) -> str:
    """The file of an array."""
    return f"{array}.bin"


class FolderFiles:
    """The files of a folder of this machine. Those that are mapped stay open, so that they can be compared."""

    def __init__(self, folder: Address, kind: Kind, manifest: dict[str, Any]) -> None:
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
        mapped.filename = path  # NumPy has one only where it opened the file itself
        sentence = f"{changed(path, 'was cut short')}"
        watch_mapping(mapped, len(mapped._mmap), f"error: {sentence}")  # type: ignore[attr-defined]
        return np.asarray(mapped)

    def open(self, name: str) -> BinaryIO:
        """An array's file, to be read."""
        return os.fdopen(self._open(name), "rb", buffering=0)

    def block_file(self, name: str) -> ReadOnlyFile:
        """An array's file, to be read page by page, all of it compared with checksums."""
        try:
            return ReadOnlyFile(self._path(name), self._states[name], self.sums.get(name))
        except OSError as error:
            raise self._gone(name) from error

    def check(self) -> None:
        """Refuse if a file that is mapped has changed: what was read of it may be of two graphs, or zeros."""
        for name, descriptor in self._held.items():
            now = FileState.of(descriptor)
            self._states[name].compare(now, self._path(name))
            if now.ctime_ns != self._states[name].ctime_ns:  # its times may have been set back
                self._compare_content(name, descriptor)
                if not self._states[name].explains(now):
                    raise changed(self._path(name), "was written to and back, or renamed,")
                self._states[name] = now

    def _compare_content(self, name: str, descriptor: int) -> None:
        """Refuse a file whose content is not what was written, by its checksums where the folder has them.

        A file that was replaced or removed is kept as it was while it is open.
        """
        sums, begin = self.sums.get(name), 0
        if sums is None:
            return
        part = PART_BYTES // sums.block_bytes * sums.block_bytes
        while found := os.pread(descriptor, part, begin):
            if sums.first_wrong(found, begin) is not None:
                raise changed(self._path(name), "was written to")
            begin += len(found)

    @cached_property
    def bytes_in_memory(self) -> int:
        """The bytes of all arrays, where the file system they are on is memory and no disk; else 0.

        They are charged to the control group that wrote them. A run counts them as its own: they often are, and
        nothing says which group it was.
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
            raise self._gone(name) from error
        try:
            self._states[name].compare(FileState.of(descriptor), self._path(name))
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _gone(self, name: str) -> Exception:
        return changed(self._path(name), "was removed")


def count_blocks(size: int, block_bytes: int) -> int:
    """How many blocks a file of so many bytes has."""
    return -(-size // block_bytes)


def read_sums(folder: Address, kind: Kind, manifest: Mapping[str, Any]) -> dict[str, BlockSums]:
    """The checksums of the blocks of every array; none where the folder was written by a Dorylus that made none."""
    blocks = manifest.get("blocks")
    if blocks is None:
        return {}
    sizes = {name: manifest["arrays"][name]["bytes"] for name in sorted(manifest["arrays"])}
    expected = 4 * sum(count_blocks(size, blocks["bytes"]) for size in sizes.values())
    place = place_of(folder)
    size = place.sizes().get(SUMS_FILE, expected)
    if size != expected:  # before it is read: a wrong file may have any size
        raise kind.damaged(folder, f"{SUMS_FILE} has {size:,} bytes instead of {expected:,}")
    try:
        raw = place.read(SUMS_FILE)
    except OSError as error:
        raise kind.damaged(folder, f"{SUMS_FILE} cannot be read ({error.strerror or error})") from error
    if crc32(raw) != blocks["crc32"]:
        raise kind.damaged(folder, f"the checksum of {SUMS_FILE} differs from the one in {kind.manifest}")
    found, begin, sums = {}, 0, np.frombuffer(raw, "<u4")
    for name, size in sizes.items():
        end = begin + count_blocks(size, blocks["bytes"])
        found[name] = BlockSums(sums[begin:end], blocks["bytes"], size)
        begin = end
    return found
