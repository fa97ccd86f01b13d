"""Names that a store can hold: UTF-8 without NUL bytes, looked at as they get their numbers."""

import codecs

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray
from dorylus.graph.ingest.batches import Tokens

PIECE_BYTES = 1 << 18  # decoded at a time: a text may take four bytes for each of its input
SHOWN_BYTES = 60


def first_bad(names: Tokens) -> int | None:
    """The position of the first name that is no text; None where all are."""
    if _all_texts(names):
        return None
    return next(position for position in range(len(names)) if _fault(_content(names, position)))


def refusal(names: Tokens, position: int, place: str) -> DataError:
    """What is wrong with a name that is no text, and where the input has it."""
    content = _content(names, position)
    name = repr(content[:SHOWN_BYTES].tobytes()) + ("..." if content.size > SHOWN_BYTES else "")
    return DataError(
        f"{place}: the name {name} {_fault(content)}. Names are texts: write the file as UTF-8 without NUL bytes."
    )


def _content(names: Tokens, position: int) -> AnyArray:
    return names.bytes[names.offsets[position] : names.offsets[position + 1]]


def _fault(content: AnyArray) -> str:
    if content.size and content.min() == 0:
        return "has a NUL byte"
    return "" if _decodes(content) else "is not UTF-8"


def _all_texts(block: Tokens) -> bool:
    begin, end = int(block.offsets[0]), int(block.offsets[-1])
    content = block.bytes[begin:end]
    if not content.size:
        return True
    if content.min() == 0:
        return False
    if content.max() < 0x80:
        return True
    # Two names may break one character between them: together they decode, but the second begins within it.
    starts = block.offsets[:-1][block.offsets[:-1] < block.offsets[1:]]
    return not ((block.bytes[starts] & 0xC0) == 0x80).any() and _decodes(content)


def _decodes(content: AnyArray) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for begin in range(0, content.size, PIECE_BYTES):
            decoder.decode(content[begin : begin + PIECE_BYTES].tobytes())
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True
