"""A folder of raw arrays and a manifest, memory-mapped when opened: what a store of any kind is made of.

It appears whole or not at all: it is written into a temporary folder beside its place and renamed; where nothing can be
renamed, the manifest comes last. The manifest says what the folder holds and, for every array, its type, shape, size
and checksum (docs/store-format.md).
"""

import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.array_writer import ArrayWriter, raw_bytes
from dorylus.graph.arrays import AnyArray
from dorylus.graph.draft import drafted, sync_folder, tidy
from dorylus.graph.places import Address, Place, is_elsewhere, place_of, uploaded
from dorylus.graph.stored_rows import StoredRows

BLOCK_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of folder: what it is called, how its manifest is named and begins, and which types arrays may have.

    ``cure`` is told to whom gives another folder for one. ``version`` is written unless the facts say another;
    ``versions`` are those that are read.
    """

    noun: str
    cure: str
    manifest: str
    format: str
    version: int
    versions: tuple[int, ...] = (1,)
    dtypes: frozenset[str] = frozenset({"<i8", "<i4", "<f4", "|u1", "|b1"})

    def is_at(self, address: Address) -> bool:
        """Whether there is a folder with a manifest of this kind."""
        return self.manifest in place_of(address).sizes()


def save_folder(
    address: Address,
    kind: Kind,
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

    def write(self, name: str, array: AnyArray, dtype: np.dtype[Any] | None = None) -> None:
        """A new array, whole, perhaps in another type than its own."""
        with self.array(name, array.dtype if dtype is None else dtype, array.shape[1:]) as writer:
            for block in _blocks(array):
                writer.write(block)

    @contextmanager
    def array(self, name: str, dtype: Any, row_shape: tuple[int, ...] = ()) -> Iterator[ArrayWriter]:
        """A new array, to be written block after block."""
        with ArrayWriter(self.path / _file_name(name), dtype, row_shape) as writer:
            yield writer
        self.entries[name] = writer.entry


@contextmanager
def new_folder(address: Address, kind: Kind, *, overwrite: bool) -> Iterator[NewFolder]:
    """A folder to write arrays and facts to; at the end it gets its manifest and its place, after an error neither."""
    try:
        if not is_elsewhere(address):
            tidy(Path(address))
        check_target(address, kind, overwrite)
        with uploaded(str(address), last=kind.manifest) if is_elsewhere(address) else drafted(Path(address)) as path:
            folder = NewFolder(path)
            yield folder
            _write_manifest(path, kind, {**folder.facts, "arrays": folder.entries})
    except OSError as error:
        raise DataError(
            f"could not write the {kind.noun} {address}: {error}. Check the free space and permissions."
        ) from error


def read_manifest(folder: Address, kind: Kind) -> dict[str, Any]:
    """The manifest of a folder of this kind."""
    name, noun = kind.manifest, kind.noun
    try:
        with place_of(folder).open(name) as file:
            manifest = json.loads(file.read().decode("utf-8"))
    except OSError as error:
        raise DataError(f"{folder} is not a {noun}: cannot read its {name} ({error.strerror}). {kind.cure}") from error
    except ValueError as error:
        raise DataError(f"the {noun} {folder} is damaged: {name} is not JSON ({error}). Write it again.") from error
    if not isinstance(manifest, dict) or manifest.get("format") != kind.format:
        raise DataError(f"{folder} is not a {noun}: its {name} does not say format {kind.format!r}. {kind.cure}")
    if manifest.get("version") not in kind.versions:
        raise DataError(
            f"the {noun} {folder} has version {manifest.get('version')}, but this Dorylus reads version "
            f"{', '.join(map(str, kind.versions))}. Use the Dorylus that wrote it, or write it again with this one."
        )
    return manifest


def map_arrays(
    folder: Address,
    kind: Kind,
    manifest: dict[str, Any],
    *,
    verify: bool = False,
    only: Callable[[str], bool] = lambda name: True,
) -> dict[str, AnyArray]:
    """The arrays of a folder as read-only views of its files, all of them or ``only`` some; checksums with ``verify``.

    Sizes of all files are compared with the manifest. One that makes no sense raises KeyError, TypeError, ValueError or
    AttributeError.
    """
    place, entries, sizes = place_of(folder), manifest["arrays"], place_of(folder).sizes()
    forms = {name: _form(folder, kind, name, entry, sizes) for name, entry in entries.items()}
    arrays = {name: _map(place, name, *form) for name, form in forms.items() if only(name)}
    for name in arrays if verify else ():
        if checksum(arrays[name]) != int(entries[name]["crc32"]):
            raise DataError(
                f"the {kind.noun} {folder} is damaged: the checksum of {name} differs. Write it again, or copy it anew."
            )
    return arrays


def stored_rows(folder: Address, kind: Kind, manifest: dict[str, Any], name: str) -> StoredRows:
    """The rows of one array, to be read as they are asked for."""
    place = place_of(folder)
    form = _form(folder, kind, name, manifest["arrays"][name], place.sizes())
    return StoredRows(partial(place.open, _file_name(name)), *form)


def checksum(array: AnyArray, start: int = 0) -> int:
    """The CRC-32 of an array's bytes, going on from that of others."""
    for block in _blocks(array):
        start = zlib.crc32(raw_bytes(block, array.dtype), start)
    return start


def check_target(target: Address, kind: Kind, overwrite: bool) -> None:
    """Refuses a place that is taken: by something else, or by a folder of this kind that is not to be replaced."""
    here = None if is_elsewhere(target) else Path(target)
    if not place_of(target).sizes() if here is None else not here.exists() and not here.is_symlink():
        return
    if not kind.is_at(target):
        raise DataError(f"{target} exists and is not a {kind.noun}. Choose another place, or remove it yourself.")
    if not overwrite:
        raise DataError(f"the {kind.noun} {target} exists already. Pass overwrite=True to replace it.")


def _write_manifest(folder: Path, kind: Kind, facts: Mapping[str, Any]) -> None:
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


def _form(
    folder: Address, kind: Kind, name: str, entry: dict[str, Any], sizes: Mapping[str, int]
) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """The type and shape of an array, whose file is as long as that makes it."""
    if entry["dtype"] not in kind.dtypes:
        raise ValueError(f"array {name!r} has unknown type {entry['dtype']!r}")
    dtype, shape = np.dtype(entry["dtype"]), tuple(int(length) for length in entry["shape"])
    expected = int(np.prod(shape, dtype=object)) * dtype.itemsize
    file = _file_name(name)
    found = sizes.get(file, -1)
    if found != expected or entry["bytes"] != expected:
        state = "is missing" if found < 0 else f"has {found:,} bytes instead of {expected:,}"
        raise DataError(f"the {kind.noun} {folder} is damaged: {file} {state}. Write it again, or copy it whole.")
    return dtype, shape


def _map(place: Place, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
    if 0 in shape:
        return np.empty(shape, dtype=dtype)  # an empty file cannot be mapped
    return place.array(_file_name(name), dtype, shape)


def _file_name(name: str) -> str:
    if not name.replace("_", "").replace(".", "").isalnum():
        raise ValueError(f"array name {name!r}")
    return f"{name}.bin"
