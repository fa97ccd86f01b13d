"""The manifest of a folder of arrays: what it has to say, checked field by field before anything relies on it.

Manifests are copied, cut short and edited by hand. Whoever reads one here gets fields of the right type and range, or
one sentence that names the file and the field; fields that nobody knows are left alone.

The files of a folder of arrays, as they were when it was opened: whoever opens one later gets the same, or an error.
"""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from dorylus.backends import crc32, watch_mapping
from dorylus.errors import DataError, given
from dorylus.files import FileTooLargeError, read_at_most
from dorylus.graph.arrays import AnyArray
from dorylus.graph.draft import taking_its_place
from dorylus.graph.places import Address, file_system_in_memory, is_elsewhere, place_of
from dorylus.paging import BlockSums, FileState, ReadOnlyFile, changed

MOST_BYTES = 64 << 20  # that of a store of shards has some 3 KiB a server


class FieldRule(NamedTuple):
    """What a field may hold, in words and as a test."""

    told: str
    holds: Callable[[Any], bool]


def whole_number(most: int = (1 << 63) - 1) -> FieldRule:
    """A count from 0 on; neither 60000.0 nor true is one."""
    return FieldRule(f"a whole number from 0 to {most:,}", lambda value: type(value) is int and 0 <= value <= most)


TEXT = FieldRule("a text", lambda value: isinstance(value, str))
SWITCH = FieldRule("true or false", lambda value: isinstance(value, bool))
CHECKSUM = whole_number((1 << 32) - 1)
_COUNT = whole_number()
_BLOCK = FieldRule("a whole number from 1 to 2**30", lambda value: type(value) is int and 1 <= value <= 1 << 30)
_TABLE = FieldRule("an object", lambda value: isinstance(value, dict))
_SHAPE = FieldRule("a list of whole numbers", lambda value: isinstance(value, list) and all(map(_COUNT.holds, value)))


@dataclass(frozen=True, kw_only=True)
class FolderKind:
    """A kind of folder: what it is called, how its manifest is named and begins, and what that and the arrays may be.

    ``cure`` is told to whom gives another folder for one, ``again`` to whom has a damaged one. ``version`` is written
    unless the facts say another; ``versions`` are those that are read. ``facts`` are what a manifest says beside its
    arrays, of which those ``needed`` are always there.
    """

    noun: str
    cure: str
    again: str
    manifest: str
    format: str
    version: int
    facts: Mapping[str, FieldRule]
    needed: tuple[str, ...]
    versions: tuple[int, ...] = (1,)
    dtypes: frozenset[str] = frozenset({"<i8", "<i4", "<f4", "|u1", "|b1"})

    def is_at(self, address: Address) -> bool:
        """Whether there is a folder with a manifest of this kind."""
        return self.manifest in place_of(address).sizes()

    def damaged(self, folder: Address, why: object) -> DataError:
        """The sentence for a folder of this kind that cannot be used."""
        return DataError(f"the {self.noun} {folder} is damaged: {str(why).removesuffix('.')}. {self.again}")


def read_manifest(folder: Address, kind: FolderKind) -> dict[str, Any]:
    """The manifest of a folder of this kind, all of its fields as they have to be."""
    manifest = _read(folder, kind)
    try:
        _check(manifest, kind.facts, kind.manifest)
        _check(manifest, {"arrays": _TABLE}, kind.manifest)
        _check_arrays(manifest["arrays"], kind)
        if "blocks" in manifest:
            _check(manifest, {"blocks": _TABLE}, kind.manifest)
            _check(manifest["blocks"], {"bytes": _BLOCK, "crc32": CHECKSUM}, f"{kind.manifest}, blocks")
    except ValueError as error:
        raise kind.damaged(folder, error) from error
    return manifest


def _read(folder: Address, kind: FolderKind) -> dict[str, Any]:
    name, noun = kind.manifest, kind.noun
    try:
        with place_of(folder).open(name) as file:
            manifest = json.loads(read_at_most(file, MOST_BYTES, name).decode("utf-8"))
    except OSError as error:
        if not is_elsewhere(folder) and (whole := taking_its_place(Path(folder))) is not None:
            raise DataError(
                f"the {noun} {folder} was being replaced when the process that did it ended: the new one is whole, and "
                f"called {whole}. Write the {noun} again with {given('overwrite', True)}, or remove {folder} and "
                "move it there."
            ) from error
        raise DataError(f"{folder} is not a {noun}: cannot read its {name} ({error.strerror}). {kind.cure}") from error
    except FileTooLargeError as error:
        raise kind.damaged(folder, error) from error
    except (ValueError, RecursionError) as error:
        raise kind.damaged(folder, f"{name} is not JSON ({error})") from error
    if not isinstance(manifest, dict) or manifest.get("format") != kind.format:
        raise DataError(f"{folder} is not a {noun}: its {name} does not say format {kind.format!r}. {kind.cure}")
    version = manifest.get("version")
    if type(version) is not int or version not in kind.versions:
        raise DataError(
            f"the {noun} {folder} has version {shown(version)}, but this Dorylus reads version "
            f"{', '.join(map(str, kind.versions))}. Use the Dorylus that wrote it, or write it again with this one."
        )
    return manifest


def _check_arrays(entries: Mapping[str, Any], kind: FolderKind) -> None:
    one_of = FieldRule(
        f"one of {', '.join(sorted(kind.dtypes))}", lambda value: isinstance(value, str) and value in kind.dtypes
    )
    rules = {"dtype": one_of, "shape": _SHAPE, "bytes": _COUNT, "crc32": CHECKSUM}
    for name, entry in entries.items():
        if not name.replace("_", "").replace(".", "").isalnum():
            raise ValueError(f"array name {name!r} in {kind.manifest}")
        _check(entries, {name: _TABLE}, f"{kind.manifest}, arrays")
        _check(entry, rules, f"{kind.manifest}, array {name!r}")
    for name in kind.needed:
        if name not in entries:
            raise ValueError(f"{kind.manifest} lists no array {name!r}")


def _check(table: Mapping[str, Any], rules: Mapping[str, FieldRule], where: str) -> None:
    for name, rule in rules.items():
        if name not in table:
            raise ValueError(f"{where} does not say {name}")
        if not rule.holds(table[name]):
            raise ValueError(f"{where} says {name} = {shown(table[name])}, which is not {rule.told}")


def shown(value: object) -> str:
    """A value as JSON has it, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."


SUMS_FILE = "blocks.crc32"
PART_BYTES = 16 << 20  # that are compared with their checksums at a time


def file_name(array: str) -> str:
    """The file of an array."""
    return f"{array}.bin"


class FolderFiles:
    """The files of a folder of this machine. Those that are mapped stay open, so that they can be compared."""

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


def read_sums(folder: Address, kind: FolderKind, manifest: Mapping[str, Any]) -> dict[str, BlockSums]:
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
