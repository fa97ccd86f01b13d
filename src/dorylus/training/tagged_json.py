"""State of optimisers and schedules as strict JSON plus named tensors, so that no checkpoint needs pickle.

What JSON has no word for is written as an object with a single tag: ``{"$tuple": [...]}``, ``{"$float": "inf"}``,
``{"$items": [[key, value], ...]}`` for a table whose keys are not all text, ``{"$counter": [...]}``, and
``{"$tensor": "state.0.exp_avg"}`` for a tensor kept beside. Finite floats are exact: Python writes the shortest text
that reads back to the same bits.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch

from dorylus.errors import CheckpointError

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
