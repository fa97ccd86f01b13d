"""What the columns of a Parquet file take to decode, by the headers of their first pages, and how to take less."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DICTIONARY_PAGE = 2
HEADER_BYTES = 32  # the kind and both sizes of a page take 18 at most
MARK = b"PAR1"
TAIL_BYTES = 8  # the length of the footer, and the mark


def held_bytes(path: Path, metadata: Any, names: list[str]) -> int:
    """What decoding holds of the row group that takes most: a page a column, or its dictionary, packed and unpacked."""
    with open(path, "rb", buffering=0) as file:
        sizes = (
            sum(_first_page(file.fileno(), chunk) for chunk in _chunks(metadata.row_group(group), names))
            for group in range(metadata.num_row_groups)
        )
        return max(sizes, default=0)


def without_arrow_types(path: Path) -> Any:
    """A file (in memory) with the same footer, but for the note that some columns were dictionaries.

    Were they read as such, every batch would come with the whole of its dictionary.
    """
    with open(path, "rb", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        tail = os.pread(file.fileno(), TAIL_BYTES, size - TAIL_BYTES)
        length = int.from_bytes(tail[:4], "little")
        footer = os.pread(file.fileno(), length, size - TAIL_BYTES - length)
    return MARK + footer.replace(b"ARROW:schema", b"arrow:unread") + tail


def _chunks(group: Any, names: list[str]) -> Iterator[Any]:
    chunks = (group.column(position) for position in range(group.num_columns))
    return (chunk for chunk in chunks if chunk.path_in_schema in names)


def _first_page(descriptor: int, chunk: Any) -> int:
    places = (chunk.dictionary_page_offset, chunk.data_page_offset)
    header = os.pread(descriptor, HEADER_BYTES, min(place for place in places if place))
    kind, unpacked, packed = _numbers(header)
    return packed + unpacked * (2 if kind == DICTIONARY_PAGE else 1)  # the words of a dictionary are copied


def _numbers(header: bytes) -> tuple[int, int, int]:
    """The first three fields of Thrift's compact form: zigzag numbers, seven bits a byte, each behind a byte."""
    found: list[int] = []
    place = 0
    while len(found) < 3 and place < len(header):
        place, number, shift = place + 1, 0, 0
        while place < len(header):
            byte = header[place]
            number |= (byte & 0x7F) << shift
            place, shift = place + 1, shift + 7
            if byte < 0x80:
                break
        found.append(number >> 1)
    kind, unpacked, packed = (*found, 0, 0, 0)[:3]
    return kind, unpacked, packed
