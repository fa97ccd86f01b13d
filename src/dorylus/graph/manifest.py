"""The manifest of a folder of arrays, read and checked field by field.

Manifests are copied, cut short and edited by hand. ``read_manifest`` returns fields of the right type and range, or
raises one error that names the file and the field. Unknown fields are ignored.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dorylus.errors import DataError, given
from dorylus.files import FileTooLargeError, read_at_most
from dorylus.graph.atomic_folder import unfinished_replacement
from dorylus.graph.locations import Address, is_remote, location_of

MOST_BYTES = 64 << 20  # a shard store's manifest has about 3 KiB per server


class FieldRule(NamedTuple):
    """The values that a field may have, in words and as a predicate."""

    description: str
    accepts: Callable[[Any], bool]


def whole_number(most: int = (1 << 63) - 1) -> FieldRule:
    """An integer from 0 to ``most``; 60000.0 and true are refused."""
    return FieldRule(f"a whole number from 0 to {most:,}", lambda value: type(value) is int and 0 <= value <= most)


TEXT = FieldRule("a text", lambda value: isinstance(value, str))
SWITCH = FieldRule("true or false", lambda value: isinstance(value, bool))
CHECKSUM = whole_number((1 << 32) - 1)
_COUNT = whole_number()
_BLOCK = FieldRule("a whole number from 1 to 2**30", lambda value: type(value) is int and 1 <= value <= 1 << 30)
_TABLE = FieldRule("an object", lambda value: isinstance(value, dict))
_SHAPE = FieldRule("a list of whole numbers", lambda value: isinstance(value, list) and all(map(_COUNT.accepts, value)))


@dataclass(frozen=True, kw_only=True)
class FolderKind:
    """A kind of folder: its name in messages, its manifest, and the fields and array types that it may have.

    ``cure`` ends the error for a folder of another kind, ``again`` the error for a damaged one. ``version`` is written
    unless the facts name another; ``versions`` are those that can be read. ``facts`` are the rules for the manifest's
    other fields. The arrays ``needed`` must be present.
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
        return self.manifest in location_of(address).sizes()

    def damaged(self, folder: Address, why: object) -> DataError:
        """The error for a folder of this kind that cannot be used."""
        return DataError(f"the {self.noun} {folder} is damaged: {str(why).removesuffix('.')}. {self.again}")


def read_manifest(folder: Address, kind: FolderKind) -> dict[str, Any]:
    """The manifest of a folder of this kind, with every field checked."""
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
        with location_of(folder).open(name) as file:
            manifest = json.loads(read_at_most(file, MOST_BYTES, name).decode("utf-8"))
    except OSError as error:
        if not is_remote(folder) and (whole := unfinished_replacement(Path(folder))) is not None:
            raise DataError(
                f"the {noun} {folder} was being replaced when its writer ended: the new one is complete, and "
                f"called {whole}. Write the {noun} again with {given('overwrite', True)}, or remove {folder} and "
                "rename it to that."
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
        if not rule.accepts(table[name]):
            raise ValueError(f"{where} says {name} = {format_json(table[name])}, which is not {rule.description}")


def format_json(value: object) -> str:
    """A value as JSON, truncated if it is long."""
    text = json.dumps(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
