"""A folder of raw arrays and a manifest: the format of graph stores and shard stores (docs/store-format.md).

A folder is written atomically: to a temporary folder beside its target, which is then renamed. Object stores cannot
rename, so there the manifest is uploaded last. The manifest lists type, shape, size and checksum of every array.
"""

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.backends import crc32
from dorylus.errors import DataError, cannot_write, given
from dorylus.files import sync_folder
from dorylus.graph.array_files import SUMS_FILE, FolderFiles, StoredRows, file_name, read_sums
from dorylus.graph.array_writer import CHECKED_BYTES, ArrayWriter, FileWriter, raw_bytes
from dorylus.graph.arrays import AnyArray
from dorylus.graph.atomic_folder import remove_leftovers, replacing_folder
from dorylus.graph.locations import Address, is_remote, location_of, uploaded_folder
from dorylus.graph.manifest import FolderKind

BLOCK_BYTES = 1 << 24


@dataclass(frozen=True)
class NewFolder:
    """A folder that is being written: the manifest entries of its arrays by name, and the other manifest fields."""

    path: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, AnyArray] = field(default_factory=dict)  # block checksums of every array

    def write(self, name: str, array: AnyArray, dtype: np.dtype[Any] | None = None) -> None:
        """Write a whole array, converted to ``dtype`` if one is given."""
        with self.array(name, array.dtype if dtype is None else dtype, array.shape[1:]) as writer:
            for block in _blocks(array):
                writer.write(block)

    @contextmanager
    def array(self, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
        """A writer for a new array, which takes it block by block."""
        with ArrayWriter(self.path / file_name(name), dtype, row_shape) as writer:
            yield writer
        self.entries[name], self.sums[name] = writer.entry, writer.sums

    def write_sums(self) -> dict[str, int]:
        """Write the block checksums of all arrays in the order of their names; returns the manifest entry for them."""
        raw = b"".join(raw_bytes(self.sums[name], np.dtype("<u4")) for name in sorted(self.sums))
        file = FileWriter(self.path / SUMS_FILE)
        try:
            file.write(memoryview(raw))
            file.close()
        finally:
            file.abandon()
        return {"bytes": CHECKED_BYTES, "crc32": crc32(raw)}


@contextmanager
def new_folder(address: Address, kind: FolderKind, *, overwrite: bool) -> Iterator[NewFolder]:
    """A new folder to write to; on success it gets its manifest and replaces the target, else it is removed."""
    try:
        if not is_remote(address):
            remove_leftovers(Path(address))
        check_target(address, kind, overwrite)
        with _temporary_folder(address, kind, overwrite) as path:
            folder = NewFolder(path)
            yield folder
            blocks = folder.write_sums()
            _write_manifest(path, kind, {**folder.facts, "blocks": blocks, "arrays": folder.entries})
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            check_target(address, kind, overwrite)  # another process wrote it first
        raise cannot_write(
            f"could not write the {kind.noun} {address}: {error}. Check the free space and permissions.", error
        ) from error


def _temporary_folder(address: Address, kind: FolderKind, overwrite: bool) -> AbstractContextManager[Path]:
    if is_remote(address):
        return uploaded_folder(str(address), last=kind.manifest, overwrite=overwrite)
    return replacing_folder(Path(address), overwrite=overwrite)


def files_of(folder: Address, kind: FolderKind, manifest: dict[str, Any]) -> FolderFiles | None:
    """The current state of the files of a folder; None for a remote folder."""
    _forms(folder, kind, manifest)
    return None if is_remote(folder) else FolderFiles(folder, kind, manifest)


def map_arrays(
    folder: Address,
    kind: FolderKind,
    manifest: dict[str, Any],
    *,
    only: Callable[[str], bool] = lambda name: True,
    files: FolderFiles | None = None,
) -> dict[str, AnyArray]:
    """The arrays of a folder as read-only views of its files, all of them or ``only`` some.

    The sizes of all files are compared with the manifest. ``files``: their state when the folder was first opened.
    """
    forms = _forms(folder, kind, manifest)
    if files is None and not is_remote(folder):
        files = FolderFiles(folder, kind, manifest)
    return {name: _array(folder, files, name, *form) for name, form in forms.items() if only(name)}


def compare_checksums(
    folder: Address,
    kind: FolderKind,
    manifest: dict[str, Any],
    tell: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Read every file block by block and compare checksums; returns the number of arrays.

    ``tell`` is called with the bytes read so far and the total.
    """
    _forms(folder, kind, manifest)
    entries, done, sums = manifest["arrays"], 0, read_sums(folder, kind, manifest)
    total = sum(entry["bytes"] for entry in entries.values())
    checked = manifest["blocks"]["bytes"] if sums else 1
    step = max(1, BLOCK_BYTES // checked) * checked
    for name, entry in entries.items():
        crc = begin = 0
        for block in _file_blocks(folder, kind, name, step):
            crc, done = crc32(block, crc), done + len(block)
            if name in sums and (wrong := sums[name].first_wrong(block, begin)) is not None:
                where = f"between bytes {wrong[0]:,} and {wrong[1]:,}"
                raise kind.damaged(folder, f"the checksum of {name} differs {where} from the one in {SUMS_FILE}")
            begin += len(block)
            tell(done, total)
        if crc != entry["crc32"]:
            raise kind.damaged(folder, f"the checksum of {name} differs from the one in {kind.manifest}")
    return len(entries)


def _file_blocks(folder: Address, kind: FolderKind, name: str, step: int) -> Iterator[bytes]:
    """A file in blocks of ``step`` bytes; the last may be shorter."""
    try:
        with location_of(folder).open(file_name(name)) as file:
            while block := file.read(step):
                while len(block) < step and (more := file.read(step - len(block))):
                    block += more  # a read may return fewer bytes than requested
                yield block
    except OSError as error:
        raise kind.damaged(folder, f"{file_name(name)} cannot be read ({error.strerror or error})") from error


def stored_rows(
    folder: Address, kind: FolderKind, manifest: dict[str, Any], name: str, files: FolderFiles | None = None
) -> StoredRows:
    """The rows of one array, read on demand and compared with the checksums of their blocks.

    ``files``: their state when the folder was first opened.
    """
    location = location_of(folder)
    form = _form(folder, kind, name, manifest["arrays"][name], location.sizes())
    if files is None:
        open_file, sums = partial(location.open, file_name(name)), read_sums(folder, kind, manifest)
    else:
        open_file, sums = partial(files.open, name), files.sums
    return StoredRows(open_file, *form, name=f"{folder}/{file_name(name)}", sums=sums.get(name))


def checksum(array: AnyArray, start: int = 0) -> int:
    """The CRC-32 of an array's bytes, continued from ``start``."""
    for block in _blocks(array):
        start = crc32(raw_bytes(block, array.dtype), start)
    return start


def check_target(target: Address, kind: FolderKind, overwrite: bool) -> None:
    """Refuse a target that exists, unless it is a folder of this kind and ``overwrite`` is set."""
    local = None if is_remote(target) else Path(target)
    if not location_of(target).sizes() if local is None else not local.exists() and not local.is_symlink():
        return
    if not kind.is_at(target):
        raise DataError(f"{target} exists and is not a {kind.noun}. Choose another path, or remove it yourself.")
    if not overwrite:
        raise DataError(f"the {kind.noun} {target} exists already. Pass {given('overwrite', True)} to replace it.")


def _write_manifest(folder: Path, kind: FolderKind, facts: Mapping[str, Any]) -> None:
    with open(folder / kind.manifest, "w", encoding="utf-8") as file:
        json.dump({"format": kind.format, "version": kind.version, **facts}, file, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    sync_folder(folder)


def _blocks(array: AnyArray) -> list[AnyArray]:
    row_bytes = max(array.nbytes // max(len(array), 1), 1)
    step = max(BLOCK_BYTES // row_bytes, 1)
    return [array[begin : begin + step] for begin in range(0, len(array), step)]


def _forms(
    folder: Address, kind: FolderKind, manifest: dict[str, Any]
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """The type and shape of every array; refuses a file whose size does not match them."""
    sizes = location_of(folder).sizes()
    return {name: _form(folder, kind, name, entry, sizes) for name, entry in manifest["arrays"].items()}


def _form(
    folder: Address, kind: FolderKind, name: str, entry: dict[str, Any], sizes: Mapping[str, int]
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    dtype, shape, file = np.dtype(entry["dtype"]), tuple(entry["shape"]), file_name(name)
    expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if entry["bytes"] != expected:
        why = f"{kind.manifest}, array {name!r} says bytes = {entry['bytes']}, but its type and shape make {expected}"
        raise kind.damaged(folder, why)
    size = sizes.get(file, -1)
    if size != expected:
        state = "is missing" if size < 0 else f"has {size:,} bytes instead of {expected:,}"
        raise kind.damaged(folder, f"{file} {state}")
    return dtype, shape


def _array(
    folder: Address, files: FolderFiles | None, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> AnyArray:
    if 0 in shape:
        return np.empty(shape, dtype=dtype)  # an empty file cannot be mapped
    if files is not None:
        return files.map(name, dtype, shape)
    return np.frombuffer(location_of(folder).read(file_name(name)), dtype).reshape(shape)
