"""A folder of raw arrays and a manifest, memory-mapped when opened: what a store of any kind is made of.

It appears whole or not at all: it is written into a temporary folder beside its place and renamed; where nothing can be
renamed, the manifest comes last. The manifest says what the folder holds and, for every array, its type, shape, size
and checksum (docs/store-format.md).
"""

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.backends import crc32
from dorylus.errors import DataError, cannot_write
from dorylus.files import sync_folder
from dorylus.graph.array_files import SUMS_FILE, FolderFiles, StoredRows, file_name, read_sums
from dorylus.graph.array_writer import CHECKED_BYTES, ArrayWriter, FileWriter, raw_bytes
from dorylus.graph.arrays import AnyArray
from dorylus.graph.atomic_folder import drafted, tidy
from dorylus.graph.locations import Address, is_remote, place_of, uploaded
from dorylus.graph.manifest import FolderKind

BLOCK_BYTES = 1 << 24


def save_folder(
    address: Address,
    kind: FolderKind,
    facts: Mapping[str, Any],
    arrays: Iterable[tuple[str, AnyArray]],
    *,
    overwrite: bool,
) -> None:
    """Write arrays, one after the other as they come, and a manifest with the facts about them."""
    with new_folder(address, kind, overwrite=overwrite) as folder:
        for name, array in arrays:
            folder.write(name, array)
        folder.facts.update(facts)


@dataclass(frozen=True)
class NewFolder:
    """A folder that is being written: its arrays' manifest entries by name, and the facts for the manifest."""

    path: Path
    entries: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, AnyArray] = field(default_factory=dict)  # the checksums of every array's blocks

    def write(self, name: str, array: AnyArray, dtype: np.dtype[Any] | None = None) -> None:
        """A new array, whole, perhaps in another type than its own."""
        with self.array(name, array.dtype if dtype is None else dtype, array.shape[1:]) as writer:
            for block in _blocks(array):
                writer.write(block)

    @contextmanager
    def array(self, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
        """A new array, to be written block after block."""
        with ArrayWriter(self.path / file_name(name), dtype, row_shape) as writer:
            yield writer
        self.entries[name], self.sums[name] = writer.entry, writer.sums

    def write_sums(self) -> dict[str, int]:
        """Write the checksums of all blocks, array after array by name; what the manifest says of them."""
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
    """A folder to write arrays and facts to; at the end it gets its manifest and its place, after an error neither."""
    try:
        if not is_remote(address):
            tidy(Path(address))
        check_target(address, kind, overwrite)
        with _draft(address, kind, overwrite) as path:
            folder = NewFolder(path)
            yield folder
            blocks = folder.write_sums()
            _write_manifest(path, kind, {**folder.facts, "blocks": blocks, "arrays": folder.entries})
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            check_target(address, kind, overwrite)  # another process was faster
        raise cannot_write(
            f"could not write the {kind.noun} {address}: {error}. Check the free space and permissions.", error
        ) from error


def _draft(address: Address, kind: FolderKind, overwrite: bool) -> AbstractContextManager[Path]:
    if is_remote(address):
        return uploaded(str(address), last=kind.manifest, overwrite=overwrite)
    return drafted(Path(address), overwrite=overwrite)


def files_of(folder: Address, kind: FolderKind, manifest: dict[str, Any]) -> FolderFiles | None:
    """The files of a folder as they are now; None where it is not on this machine."""
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

    Sizes of all files are compared with the manifest. ``files``: as they were when the folder was first opened.
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
    """How many arrays there are, all as they were written: every file is read, a block at a time.

    ``tell`` is called with the bytes read so far and all there are.
    """
    _forms(folder, kind, manifest)
    entries, done, sums = manifest["arrays"], 0, read_sums(folder, kind, manifest)
    total = sum(entry["bytes"] for entry in entries.values())
    checked = manifest["blocks"]["bytes"] if sums else 1
    step = max(1, BLOCK_BYTES // checked) * checked
    for name, entry in entries.items():
        found = begin = 0
        for block in _file_blocks(folder, kind, name, step):
            found, done = crc32(block, found), done + len(block)
            if name in sums and (wrong := sums[name].first_wrong(block, begin)) is not None:
                where = f"between bytes {wrong[0]:,} and {wrong[1]:,}"
                raise kind.damaged(folder, f"the checksum of {name} differs {where} from the one in {SUMS_FILE}")
            begin += len(block)
            tell(done, total)
        if found != entry["crc32"]:
            raise kind.damaged(folder, f"the checksum of {name} differs from the one in {kind.manifest}")
    return len(entries)


def _file_blocks(folder: Address, kind: FolderKind, name: str, step: int) -> Iterator[bytes]:
    """A file in blocks of so many bytes, the last perhaps shorter."""
    try:
        with place_of(folder).open(file_name(name)) as file:
            while block := file.read(step):
                while len(block) < step and (more := file.read(step - len(block))):
                    block += more  # one call may read less than there is
                yield block
    except OSError as error:
        raise kind.damaged(folder, f"{file_name(name)} cannot be read ({error.strerror or error})") from error


def stored_rows(
    folder: Address, kind: FolderKind, manifest: dict[str, Any], name: str, files: FolderFiles | None = None
) -> StoredRows:
    """The rows of one array, to be read as they are asked for, and compared with the checksums of their blocks.

    ``files``: as they were when the folder was first opened.
    """
    place = place_of(folder)
    form = _form(folder, kind, name, manifest["arrays"][name], place.sizes())
    if files is None:
        opened, sums = partial(place.open, file_name(name)), read_sums(folder, kind, manifest)
    else:
        opened, sums = partial(files.open, name), files.sums
    return StoredRows(opened, *form, name=f"{folder}/{file_name(name)}", sums=sums.get(name))


def checksum(array: AnyArray, start: int = 0) -> int:
    """The CRC-32 of an array's bytes, going on from that of others."""
    for block in _blocks(array):
        start = crc32(raw_bytes(block, array.dtype), start)
    return start


def check_target(target: Address, kind: FolderKind, overwrite: bool) -> None:
    """Refuses a place that is taken: by something else, or by a folder of this kind that is not to be replaced."""
    here = None if is_remote(target) else Path(target)
    if not place_of(target).sizes() if here is None else not here.exists() and not here.is_symlink():
        return
    if not kind.is_at(target):
        raise DataError(f"{target} exists and is not a {kind.noun}. Choose another place, or remove it yourself.")
    if not overwrite:
        raise DataError(f"the {kind.noun} {target} exists already. Pass overwrite=True to replace it.")


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
    """The type and shape of every array, whose file is as long as that makes it."""
    sizes = place_of(folder).sizes()
    return {name: _form(folder, kind, name, entry, sizes) for name, entry in manifest["arrays"].items()}


def _form(
    folder: Address, kind: FolderKind, name: str, entry: dict[str, Any], sizes: Mapping[str, int]
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    dtype, shape, file = np.dtype(entry["dtype"]), tuple(entry["shape"]), file_name(name)
    expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if entry["bytes"] != expected:
        why = f"{kind.manifest}, array {name!r} says bytes = {entry['bytes']}, but its type and shape make {expected}"
        raise kind.damaged(folder, why)
    found = sizes.get(file, -1)
    if found != expected:
        state = "is missing" if found < 0 else f"has {found:,} bytes instead of {expected:,}"
        raise kind.damaged(folder, f"{file} {state}")
    return dtype, shape


def _array(
    folder: Address, files: FolderFiles | None, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]
) -> AnyArray:
    if 0 in shape:
        return np.empty(shape, dtype=dtype)  # an empty file cannot be mapped
    if files is not None:
        return files.map(name, dtype, shape)
    return np.frombuffer(place_of(folder).read(file_name(name)), dtype).reshape(shape)
