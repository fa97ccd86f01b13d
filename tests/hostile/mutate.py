"""Changes of valid values by their structure: JSON trees, named arrays, and bytes."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

NUMBERS = [
    0, 1, -1, 2, 3, 7, 8, 63, 64, 65, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**53,
    2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -(2**31), -(2**63), -(10**30), 0.0, -0.0, 0.5, 1.5, -1.5, 1e9, 1e19,
    1e308, -1e308, 5e-324,
]  # fmt: skip
TEXTS = [
    "", " ", "0", "1", "-1", "1e9", "true", "null", "nan", "inf", "x" * 300, "x" * 5000, "é", "\x00", "a\x00b",
    "../../etc/passwd", "/", ".", "..", "rows.0", "weight.w", "output.0", "float32", "int8", "<f4", "|u1", "$tensor",
    "$items", "{}", "[]", "\ud800", "🜚", "%s%n", "-" * 50, "\n", "a\nb", "\u202e",
]  # fmt: skip
DTYPES = ["float32", "float64", "float16", "int64", "int32", "int16", "uint16", "int8", "uint8", "bool"]


def values(rng: random.Random) -> Any:
    """A value that a reader may not expect."""
    pick = rng.randrange(9)
    if pick < 4:
        return rng.choice(NUMBERS)
    if pick < 6:
        return rng.choice(TEXTS)
    nested: Any = rng.choice([0, "x", None])
    for _ in range(rng.choice([1, 2, 5, 50, 200])):
        nested = [nested] if rng.random() < 0.5 else {"a": nested}
    return rng.choice([None, True, False, [], {}, [[]], [0] * rng.choice([1, 3, 9, 300]), {"": 0}, nested])


def _places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, below in inside:
        yield (*path, key)
        yield from _places(below, (*path, key))


def changed_tree(rng: random.Random, tree: Any) -> Any:
    """A copy of a tree with one to three changes: values replaced, keys taken out, added, doubled or moved."""
    tree = copy.deepcopy(tree)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        places = list(_places(tree))
        if not places:
            return values(rng)
        *steps, key = rng.choice(places)
        parent = tree
        for step in steps:
            parent = parent[step]
        _change_at(rng, tree, parent, key, places)
    return tree


def _change_at(rng: random.Random, tree: Any, parent: Any, key: Any, places: list[tuple[Any, ...]]) -> None:
    pick, old = rng.randrange(10), parent[key]
    if pick == 0:
        del parent[key]
    elif pick == 1 and isinstance(parent, list):
        parent.insert(key, copy.deepcopy(old))
    elif pick == 1:
        parent[rng.choice([*TEXTS, f"{key}x", str(key).upper()])] = copy.deepcopy(old)
    elif pick == 2:
        other = tree
        for step in rng.choice(places):
            other = other[step]
        parent[key] = copy.deepcopy(other)
    elif pick < 7:
        parent[key] = _near(rng, old)
    else:
        parent[key] = values(rng)


def _near(rng: random.Random, old: Any) -> Any:
    """A value of about the same kind."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int | float):
        near = [old + 1, old - 1, -old, old * 2, old // 2 if isinstance(old, int) else old / 2, float(old), str(old)]
        return rng.choice([*near, *rng.sample(NUMBERS, 4)])
    if isinstance(old, str):
        cut = rng.randint(0, len(old))
        return rng.choice([old[:cut], old + old[:cut], old.upper(), old + "\x00", old[::-1], *rng.sample(TEXTS, 3)])
    if isinstance(old, list):
        return rng.choice([[*old, *old], old[:-1], old[::-1], [old], *([old[0], [old[0]] * 500] if old else [])])
    if isinstance(old, dict):
        return rng.choice([list(old.items()) and list(old), {}, {**old, "": 0}])
    return values(rng)


def changed_array(rng: random.Random, array: np.ndarray) -> np.ndarray:
    """An array like this one, with another dtype, another shape or other entries."""
    pick = rng.randrange(12)
    with np.errstate(all="ignore"):
        if pick < 3:
            return array.astype(rng.choice(DTYPES))
        if pick == 3:
            return array.reshape(-1)
        if pick == 4:
            return array.reshape(*array.shape, *[1] * rng.randint(1, 3))
        if pick == 5:
            return np.ascontiguousarray(array.T)
        if pick == 6:
            return np.repeat(array, rng.choice([0, 2, 3, 50]), axis=rng.randrange(array.ndim) if array.ndim else None)
        if pick == 7:
            return array[: len(array) // 2] if array.ndim else array.reshape(1)
        if pick == 8:
            return np.zeros(rng.choice([(), (0,), (1,), (1, 1), (0, 3), (3, 0), (1,) * 8, (2000,)]), array.dtype)
        changed = array.copy().reshape(-1)
        entries = [0, 1, -1, 127, -128, 2**31 - 1, -(2**31), 2**63 - 1, np.nan, np.inf, -np.inf, 1e38]
        for _ in range(rng.choice([1, 2, len(changed) or 1])):
            if len(changed):
                entry = rng.choice(entries)
                whole = changed.dtype.kind in "iub" and not np.isfinite(entry)
                changed[rng.randrange(len(changed))] = np.asarray(0 if whole else entry).astype(changed.dtype)
        return changed.reshape(array.shape)


def changed_arrays(rng: random.Random, arrays: dict[str, np.ndarray], names: list[str]) -> dict[str, np.ndarray]:
    """Named arrays with one to three changes: of one, of its name, of their number."""
    arrays = dict(arrays)
    for _ in range(rng.choice([1, 1, 2, 3])):
        pick = rng.randrange(8)
        name = rng.choice(list(arrays)) if arrays else "x"
        if pick == 0:
            arrays.pop(name, None)
        elif pick == 1:
            arrays[rng.choice(names)] = arrays.get(name, np.zeros(3, np.float32))
        elif pick == 2 and arrays:
            other = rng.choice(list(arrays))
            arrays[name], arrays[other] = arrays[other], arrays[name]
        elif pick == 3:
            arrays = {rng.choice(names) if each == name else each: array for each, array in arrays.items()}
        elif arrays:
            arrays[name] = changed_array(rng, np.asarray(arrays[name]))
    return arrays


def changed_bytes(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some flipped, cut, doubled, moved, or a number at the edge of its range written over them."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(len(changed) + 1)
        pick = rng.randrange(6)
        if pick == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif pick == 1:
            del changed[at:]
        elif pick == 2:
            del changed[at : at + rng.randint(1, 8)]
        elif pick == 3:
            changed[at:at] = changed[at : at + rng.randint(1, 64)]
        elif pick == 4:
            size = rng.choice([1, 2, 4, 8])
            number = rng.choice([0, 1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
            changed[at : at + size] = (number % (1 << 8 * size)).to_bytes(size, "little")
        else:
            changed[at : at + 1] = rng.randbytes(rng.randint(0, 4))
    return bytes(changed)
