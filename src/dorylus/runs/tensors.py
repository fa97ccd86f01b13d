"""The state of models, optimisers and schedules as strict JSON and safetensors files, without pickle.

A safetensors file holds the length of its header in 8 bytes, the header in JSON, which has the place of each tensor,
and the tensors, which end where the file does. A damaged file may have any size: header and checksum are checked before
its content is in memory.
"""

import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import load, save
from torch import Tensor

from dorylus.errors import CheckpointError, short_repr

MOST_HEADER_BYTES = 100_000_000  # as safetensors has it
_LENGTH_BYTES = 8


def packed(tensors: dict[str, Tensor]) -> bytes:
    """The content of a file of these tensors."""
    # Cloned one by one: parameters that share memory, or views of a larger buffer, are refused otherwise.
    return save({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})


def checksum(data: bytes) -> str:
    """The BLAKE2 checksum of some bytes."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def read_tensors(path: Path, expected: str) -> dict[str, Tensor]:
    """The tensors of a file that has the ``expected`` checksum; ValueError where it is damaged."""
    with open(path, "rb") as file:
        _check_header(file, path.name)
        file.seek(0)
        if hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest() != expected:
            raise ValueError(f"{path.name} does not have the checksum it was written with")
        file.seek(0)
        return load(file.read())


def _check_header(file: BinaryIO, name: str) -> None:
    """Refuse a file whose header cannot be right, or whose tensors do not end where it does."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    content_bytes = size - _LENGTH_BYTES - header_bytes
    if content_bytes < 0 or not 2 <= header_bytes <= MOST_HEADER_BYTES:
        raise ValueError(f"{name} has {size:,} bytes and says that {header_bytes:,} of them are its header")
    try:
        entries = json.loads(file.read(header_bytes))
        end = max((entry["data_offsets"][1] for key, entry in entries.items() if key != "__metadata__"), default=0)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the header of {name} is damaged") from error
    if end != content_bytes:
        raise ValueError(f"{name} has {content_bytes:,} bytes of tensors, and its header says {short_repr(end)}")


_TAGS = frozenset({"$tuple", "$float", "$items", "$counter", "$tensor"})


def encode(value: Any, at: str, tensors: dict[str, torch.Tensor]) -> Any:
    """JSON data for ``value``; its tensors are put into ``tensors`` under the path ``at`` they stand at."""
    if isinstance(value, torch.Tensor):
        tensors[at] = value
        return {"$tensor": at}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, list):
        return [encode(item, f"{at}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, f"{at}.{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return _encode_table(value, at, tensors)
    raise CheckpointError(
        f"{at} is a {type(value).__name__}, which a checkpoint cannot hold: use an optimiser or schedule whose state "
        "is numbers, texts, lists and tensors, or train without a run folder."
    )


def _encode_table(table: dict[Any, Any], at: str, tensors: dict[str, torch.Tensor]) -> Any:
    items = [(key, encode(item, f"{at}.{key}", tensors)) for key, item in table.items()]
    if isinstance(table, Counter):
        return {"$counter": [[key, item] for key, item in items]}
    if all(isinstance(key, str) for key in table) and not _TAGS.intersection(table):
        return dict(items)
    return {"$items": [[encode(key, at, tensors), item] for key, item in items]}


def decode(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """What :func:`encode` was given."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value)) if len(value) == 1 else None
    if tag not in _TAGS:
        return {key: decode(item, tensors) for key, item in value.items()}
    return _decode_tagged(tag, value[tag], tensors)


def _decode_tagged(tag: str, value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    match tag:
        case "$tensor":
            return tensors[value]
        case "$float":
            return float(value)
        case "$tuple":
            return tuple(decode(item, tensors) for item in value)
        case "$counter":
            return Counter({key: count for key, count in value})  # noqa: C416  (a Counter of pairs would count pairs)
        case _:
            return {decode(key, tensors): decode(item, tensors) for key, item in value}
