"""A folder of raw arrays and a manifest, memory-mapped when opened: what a store of any kind is made of.

It appears whole or not at all: it is written into a temporary folder beside its place and renamed; where nothing can be
renamed, the manifest comes last. The manifest says what the folder holds and, for every array, its type, shape, size
and checksum (docs/store-format.md).
"""

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray
from dorylus.graph.places import Address, Place, is_elsewhere, place_of, uploaded
from dorylus.graph.stored_rows import StoredRows

BLOCK_BYTES = 1 << 24


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of folder: what it is called, how its manifest is named and begins, and which types arrays may have.

    ``cure`` is told to whom gives another folder for one.
    """

    noun: str
    cure: str
    manifest: str
    format: str
    version: int
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
    _check_target(address, kind, overwrite)
    if is_elsewhere(address):
        with uploaded(str(address), last=kind.manifest) as folder:
            _fill(folder, kind, facts, arrays)
        return
    target = Path(address)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}")
    try:
        draft.mkdir(parents=True)
        _fill(draft, kind, facts, arrays)
        _put_in_place(draft, target)
    except OSError as error:
        raise DataError(
            f"could not write the {kind.noun} {target}: {error}. Check the free space and permissions."
        ) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


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
    if manifest.get("version") != kind.version:
        raise DataError(
            f"the {noun} {folder} has version {manifest.get('version')}, but this Dorylus reads version "
            f"{kind.version}. Use the Dorylus that wrote it, or write it again with this one."
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
        start = zlib.crc32(_raw(block, array.dtype), start)
    return start


def _fill(folder: Path, kind: Kind, facts: Mapping[str, Any], arrays: Iterable[tuple[str, AnyArray]]) -> None:
    entries = {name: _write(folder, name, array) for name, array in arrays}
    _write_manifest(folder, kind, {**facts, "arrays": entries})


def _check_target(target: Address, kind: Kind, overwrite: bool) -> None:
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
    _sync_folder(folder)


def _write(folder: Path, name: str, array: AnyArray) -> dict[str, Any]:
    """Write one array and give its manifest entry."""
    dtype = array.dtype.newbyteorder("<")
    crc = 0
    with open(folder / _file_name(name), "wb") as file:
        for block in _blocks(array):
            raw = _raw(block, dtype)
            crc = zlib.crc32(raw, crc)
            file.write(raw)
        file.flush()
        os.fsync(file.fileno())
    return {"dtype": dtype.str, "shape": list(array.shape), "bytes": array.nbytes, "crc32": crc}


def _raw(block: AnyArray, dtype: np.dtype[Any]) -> memoryview:
    return np.ascontiguousarray(block, dtype=dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def _blocks(array: AnyArray) -> list[AnyArray]:
    row_bytes = max(array.nbytes // max(len(array), 1), 1)
    step = max(BLOCK_BYTES // row_bytes, 1)
    return [array[begin : begin + step] for begin in range(0, len(array), step)]


def _put_in_place(draft: Path, target: Path) -> None:
    """Rename ``draft`` to ``target``; an old folder steps aside first and comes back if the rename fails."""
    aside = draft.with_name(draft.name + ".old")
    if target.exists():
        os.rename(target, aside)
    try:
        os.rename(draft, target)
    except OSError:
        if aside.exists():
            os.rename(aside, target)
        raise
    _sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


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


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
