"""The manifest of a folder of arrays: what it has to say, checked field by field before anything relies on it.

Manifests are copied, cut short and edited by hand. Whoever reads one here gets fields of the right type and range, or
one sentence that names the file and the field; fields that nobody knows are left alone.

The files of a folder of arrays, as they were when it was opened: whoever opens one later gets the same, or an error.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dorylus.errors import DataError
from dorylus.files import FileTooLargeError, read_at_most
from dorylus.graph.atomic_folder import taking_its_place
from dorylus.graph.locations import Address, is_remote, place_of

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
        if not is_remote(folder) and (whole := taking_its_place(Path(folder))) is not None:
            raise DataError(
                f"the {noun} {folder} was being replaced when the process that did it ended: the new one is whole, and "
                f"called {whole}. Write the {noun} again with overwrite=True (--overwrite), or remove {folder} and "
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
            f"the {noun} {folder} has version {format_json(version)}, but this Dorylus reads version "
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
            raise ValueError(f"{where} says {name} = {format_json(table[name])}, which is not {rule.told}")


def format_json(value: object) -> str:
    """A value as JSON has it, cut where it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
