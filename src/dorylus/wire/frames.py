"""Frames: a JSON header and named arrays in one run of bytes, the arrays as raw little-endian memory; and wire errors.

Needs numpy only. Packing copies nothing (the parts are the arrays' own memory), nor does unpacking (the arrays are
views into the buffer). Nothing in a frame is trusted: every length is checked against the bytes present and against
:class:`FrameLimits` before it is used. The layout is specified in docs/wire.md.
"""

import json
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DorylusError


class WireError(DorylusError):
    """A request that got no answer."""

    exit_code = 1


class FrameError(WireError):
    """Bytes that are no frame, or something that no frame can carry."""


class Refused(WireError):  # noqa: N818 (not an error of this program)
    """A request that the port declines: its ``answer`` raises this, and the client raises it with the same text.

    ``kind`` is the count that the port adds it to: refused, failed, expired, garbage, oversize or busy.
    """

    def __init__(self, text: str, kind: str = "refused") -> None:
        super().__init__(text)
        self.kind = kind


Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC = b"DRYL"
VERSION = 1
ALIGNMENT = 64
HEAD = struct.Struct("<4sHHIIQ")  # magic, version, zero, bytes of JSON, number of arrays, bytes of the whole frame
DTYPES: Mapping[str, np.dtype[Any]] = {
    name: np.dtype(name) if sys.byteorder == "little" else np.dtype(name).newbyteorder("<")
    for name in (
        "float32", "float64", "float16", "int64", "int32", "int16", "uint16", "int8", "uint8", "bool",
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}  # computing a dtype's name is slow in numpy


@dataclass(frozen=True, kw_only=True)
class FrameLimits:
    """The limits of a frame, at both ends: one that exceeds them is refused before memory is allocated for it."""

    max_frame_bytes: int = 256 << 20
    max_header_bytes: int = 256 << 10  # of the JSON: the header and the arrays' names, dtypes and shapes
    max_arrays: int = 4096
    max_dims: int = 8
    max_name_chars: int = 256

    def check_size(self, num_bytes: int, what: str = "a frame") -> None:
        """Refuse a length that no frame has, as one end declares it or the other is about to send it."""
        if not HEAD.size <= num_bytes <= self.max_frame_bytes:
            most = self.max_frame_bytes
            raise FrameError(
                f"{what} of {num_bytes} bytes: a frame has at least {HEAD.size}, and at most {most} are accepted."
            )


DEFAULT = FrameLimits()
BETWEEN_SERVERS = FrameLimits(max_frame_bytes=1 << 36)  # of one run, which have proved their identity


@dataclass(frozen=True)
class Frame:
    """A header and named arrays."""

    header: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def pack(header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], limits: FrameLimits = DEFAULT) -> list[Buffer]:
    """The parts of a frame, in order: the head, then the arrays' own memory, with zeros in between.

    An array is copied only when it is not contiguous or not little-endian. The others must not change before the
    parts are sent or joined.
    """
    _within("arrays", len(arrays), limits.max_arrays)
    dtypes = [_sendable(name, array, limits) for name, array in arrays.items()]
    entries = [[name, dtype, list(arrays[name].shape)] for name, dtype in zip(arrays, dtypes, strict=True)]
    text = _encoded({"header": dict(header), "arrays": entries})
    places, total = _layout(len(text), [array.nbytes for array in arrays.values()])
    _within("bytes of JSON", len(text), limits.max_header_bytes)
    limits.check_size(total)
    parts: list[Buffer] = [HEAD.pack(MAGIC, VERSION, 0, len(text), len(entries), total) + text]
    end = HEAD.size + len(text)
    for place, whole, dtype in zip(places, arrays.values(), dtypes, strict=True):
        array = np.asarray(whole, dtype=DTYPES[dtype], order="C")
        if place > end:
            parts.append(bytes(place - end))
        if array.nbytes:
            parts.append(array.reshape(-1).view(np.uint8).data)
        end = place + array.nbytes
    return parts


def unpack(buffer: Buffer, limits: FrameLimits = DEFAULT) -> Frame:
    """The frame that a buffer holds from its first byte to its last; its arrays are views into the buffer."""
    view = _bytes_of(buffer)
    limits.check_size(len(view))
    text_bytes, num_arrays, total = _read_head(view)
    _within("bytes of JSON", text_bytes, limits.max_header_bytes)
    _within("arrays", num_arrays, limits.max_arrays)
    if total != len(view) or text_bytes > len(view) - HEAD.size:
        raise FrameError(f"a frame that declares {total} bytes, {text_bytes} of them JSON, has {len(view)}.")
    header, entries = _read_text(view[HEAD.size : HEAD.size + text_bytes], num_arrays)
    described = [_described(entry, limits) for entry in entries]
    places, needed = _layout(text_bytes, [dtype.itemsize * prod(shape) for _, dtype, shape in described])
    if needed != total:
        raise FrameError(f"a frame has {total} bytes, but the arrays it names need {needed}.")
    arrays: dict[str, NDArray[Any]] = {}
    end = HEAD.size + text_bytes
    for (name, dtype, shape), place in zip(described, places, strict=True):
        if name in arrays:
            raise FrameError(f"a frame names the array {name!r} twice.")
        if any(view[end:place]):
            raise FrameError(f"a frame has something other than zeros before the array {name!r}.")
        arrays[name] = array = np.ndarray(shape, dtype, buffer=view, offset=place)
        if dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1:
            raise FrameError(f"the bool array {name!r} holds bytes other than 0 and 1.")
        end = place + array.nbytes
    return Frame(header, arrays)


def frame_bytes(parts: Sequence[Buffer]) -> int:
    """How many bytes the parts of a frame have together."""
    return sum(len(_bytes_of(part)) for part in parts)


def _layout(text_bytes: int, sizes: Sequence[int]) -> tuple[list[int], int]:
    """Where each array begins, at multiples of 64, and where the last one ends.

    Both sides compute it: no offset is sent, so none can be wrong.
    """
    places, end = [], HEAD.size + text_bytes
    for size in sizes:
        places.append(-(-end // ALIGNMENT) * ALIGNMENT)
        end = places[-1] + size
    return places, end


def _sendable(name: str, array: NDArray[Any], limits: FrameLimits) -> str:
    """The name of the dtype as which an array is sent."""
    known = isinstance(array, np.ndarray | np.generic)
    dtype = _NAMES.get(array.dtype) or array.dtype.name if known else ""
    if dtype not in DTYPES:
        what = f"of dtype {array.dtype}" if known else f"a {type(array).__name__}"
        raise FrameError(f"array {name!r} is {what}: a frame carries numpy arrays of {', '.join(DTYPES)}.")
    _check_name(name, limits)
    _within(f"dimensions of array {name!r}", array.ndim, limits.max_dims)
    return dtype


def _encoded(content: dict[str, Any]) -> bytes:
    try:
        return json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as why:
        raise FrameError(f"a frame's header is plain JSON: text, finite numbers, no cycles. {why}") from None


def _bytes_of(buffer: Buffer) -> memoryview:
    view = memoryview(buffer)
    if not view.c_contiguous:
        raise FrameError("a frame is read from one contiguous buffer: join its parts first.")
    return view.cast("B") if view.nbytes else memoryview(b"")


def _read_head(view: memoryview) -> tuple[int, int, int]:
    magic, version, zero, text_bytes, num_arrays, total = HEAD.unpack_from(view)
    if magic != MAGIC or zero:
        raise FrameError("this is no frame: it does not begin as one.")
    if version != VERSION:
        raise FrameError(
            f"a frame of version {version} arrived: this side reads version {VERSION}. Deploy the same release."
        )
    return text_bytes, num_arrays, total


def _read_text(text: memoryview, num_arrays: int) -> tuple[dict[str, Any], list[Any]]:
    try:
        content = json.loads(str(text, "utf-8"), parse_constant=_no_constant)
    except (
        ValueError,
        RecursionError,
    ):  # also for text that is not UTF-8; no cause is kept, as it would contain the text and so keys
        content = None
    if not isinstance(content, dict) or content.keys() != {"header", "arrays"}:
        raise FrameError("a frame's JSON is not an object of a header and arrays.")
    header, entries = content["header"], content["arrays"]
    if not isinstance(header, dict) or not isinstance(entries, list) or len(entries) != num_arrays:
        raise FrameError(f"a frame of {num_arrays} arrays does not describe that many, or its header is no object.")
    return header, entries


def _described(entry: Any, limits: FrameLimits) -> tuple[str, np.dtype[Any], tuple[int, ...]]:
    if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[2], list):
        raise FrameError("a frame describes an array by something other than name, dtype and shape.")
    name, dtype, shape = entry
    _check_name(name, limits)
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise FrameError(f"array {name!r} has a dtype that frames do not carry: they carry {', '.join(DTYPES)}.")
    _within(f"dimensions of array {name!r}", len(shape), limits.max_dims)
    if not all(type(size) is int and size >= 0 for size in shape):
        raise FrameError(f"the shape of array {name!r} holds something other than whole numbers from 0 on.")
    # Counted as if no dimension were 0: numpy refuses an empty array whose other dimensions overflow.
    _within(f"bytes of array {name!r}", DTYPES[dtype].itemsize * prod(_at_least_one(shape)), limits.max_frame_bytes)
    return name, DTYPES[dtype], tuple(shape)


def _at_least_one(shape: list[int]) -> Iterator[int]:
    return (max(size, 1) for size in shape)


def _check_name(name: Any, limits: FrameLimits) -> None:
    if not isinstance(name, str) or not 0 < len(name) <= limits.max_name_chars or not name.isprintable():
        raise FrameError(f"an array's name is printable text of 1 to {limits.max_name_chars} characters.")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _within(what: str, found: int, most: int) -> None:
    if found > most:
        raise FrameError(f"{found} {what} in a frame: at most {most} are accepted.")
