"""A program: a dense task as data, and the meaning of its arrays' names.

A program maps named arrays to named arrays. The name of an array, up to its first dot, is its role. The role says
whether an array is cut by row, so that a program may run on any cut of the rows and the pieces be put together again.
This file is shipped inside functions: standard library only.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Final

from dorylus.errors import DorylusError

ROWS_AXIS: Final = "num_rows"  # the name of the only dimension that is not fixed


class ProgramError(DorylusError):
    """A program that does not match its hash or description, or arrays that do not fit it."""

    exit_code = 1


class ArrayRole(Enum):
    """The role of an array in a program; the value is the name's part before the first dot."""

    ROWS = "rows"
    COTANGENT = "cotangent"
    LABELS = "labels"
    TOTAL = "total"
    WEIGHT = "weight"
    OUTPUT = "output"
    SAVED = "saved"
    INPUT_GRAD = "input_grad"
    WEIGHT_GRAD = "weight_grad"
    LOSS = "loss"


CUT_BY_ROW: Final = frozenset(
    {ArrayRole.ROWS, ArrayRole.COTANGENT, ArrayRole.LABELS, ArrayRole.OUTPUT, ArrayRole.SAVED, ArrayRole.INPUT_GRAD}
)
SUMMED: Final = frozenset({ArrayRole.WEIGHT_GRAD, ArrayRole.LOSS})

_ROLES = {role.value: role for role in ArrayRole}
_ALONE = frozenset({ArrayRole.LABELS, ArrayRole.TOTAL, ArrayRole.LOSS})


@dataclass(frozen=True)
class ExportedProgram:
    """A dense task as ONNX, known by the SHA-256 of its content.

    ``inputs`` are only the arrays it needs: a gradient that does not depend on the rows does not ask for them. A
    program without outputs has nothing to compute: the pool answers it itself, and never sends it. ``kept`` are those
    outputs of a forward task that its gradient reads, with their widths; None where that runs the body again.
    """

    content: bytes
    hash: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    kept: Mapping[str, int] | None = None

    @classmethod
    def of(
        cls,
        content: bytes,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        kept: Mapping[str, int] | None = None,
    ) -> "ExportedProgram":
        """The program with this content."""
        return cls(content, content_hash(content), inputs, outputs, kept)


def content_hash(content: bytes) -> str:
    """The hash by which a program with this content is identified."""
    return hashlib.sha256(content).hexdigest()


@lru_cache(4096)  # called a dozen times a task; names are not trusted, so the cache is bounded
def role(name: str) -> ArrayRole:
    """The role of an array with this name."""
    before, dot, after = name.partition(".")
    found = _ROLES.get(before)
    if found is None or (found in _ALONE and dot) or (found not in _ALONE and not after):
        raise ProgramError(f"no array is called {name!r}: names are those of {', '.join(sorted(_ROLES))}.")
    return found


def called(role: ArrayRole, which: int | str | None = None) -> str:
    """The name of an array: ``called(Role.ROWS, 0)`` is ``"rows.0"``."""
    return role.value if which is None else f"{role.value}.{which}"


def which(name: str) -> str:
    """The part after the role: the number of an input or output, or the name of a weight, which may contain dots."""
    role(name)
    return name.partition(".")[2]


def is_cut_by_row(name: str) -> bool:
    """Whether the array has one row per row of the task: parts are cut from it, or joined one after the other."""
    return role(name) in CUT_BY_ROW


def is_summed(name: str) -> bool:
    """Whether the array of a task is the sum of those of its parts."""
    return role(name) in SUMMED
