"""Names that a store can hold: UTF-8 without NUL bytes, looked at block by block as they are written."""

import codecs
from collections.abc import Iterable, Iterator

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray
from dorylus.graph.ingest.batches import Tokens

PIECE_BYTES = 1 << 18  # decoded at a time: a text may take four bytes for each of its input
SHOWN_BYTES = 60


def checked_names(blocks: Iterable[Tokens]) -> Iterator[Tokens]:
    """The blocks as they are; a name that is no text is a DataError."""
    first = 0
    for block in blocks:
        if not _all_texts(block):
            _refuse(block, first)
        yield block
        first += len(block)


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


def _refuse(block: Tokens, first: int) -> None:
    for place in range(len(block)):
        content = block.bytes[block.offsets[place] : block.offsets[place + 1]]
        nul = bool(content.size) and content.min() == 0
        if nul or not _decodes(content):
            found = "has a NUL byte" if nul else "is not UTF-8"
            name = repr(content[:SHOWN_BYTES].tobytes()) + ("..." if content.size > SHOWN_BYTES else "")
            raise DataError(
                f"the name of vertex {first + place}, {name}, {found}: names are texts, so write the file as UTF-8 "
                "without NUL bytes."
            )
