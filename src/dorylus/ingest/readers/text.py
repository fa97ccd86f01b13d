"""Edges in text files (CSV, TSV, SNAP), parsed block by block."""

import os
from bisect import bisect_right
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import TextEdges as Parsed
from dorylus.backends import native
from dorylus.errors import DataError, given
from dorylus.ingest.batches import EdgeBatch, Ends, Tokens
from dorylus.ingest.readers.input_file import DecompressedFile, PageCache, compression
from dorylus.ingest.readers.options import VERTICES, ReadOptions
from dorylus.ingest.readers.text_format import LONGEST_LINE, detect_format, line_form, line_too_long

BLOCK_BYTES = LONGEST_LINE
"""The shortest edge has four bytes, so that a block has at most MAX_EDGES edges."""

NUM_SAMPLES, SAMPLE_BYTES = 16, 1 << 14

CURES = {
    "fields": "The first line has {num_fields} fields: give every line as many; or, if another character separates "
    f"them, ingest the file with {given('delimiter', ...)}.",
    "quotes": "Quotes must close within the line, and nothing but the separator follows them.",
    "number": f"For ids that are not whole numbers, ingest the file with {given('ids', 'strings')}.",
    "overflow": f"Numbers have 64 bits: for longer ids, ingest the file with {given('ids', 'strings')}.",
    "empty": "A name is missing.",
    "weight": "A weight is a finite number.",
}
HEADER_CURE = f" If it is a header, ingest the file with {given('header', True)}."


class TextFileEdges:
    """The edges of a text file, which may be compressed."""

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        self._start = detect_format(path, options)
        self.strings = self._start.strings
        self.weighted = self._start.form.weight is not None
        # Above names, only known column names are recognised as a header.
        self.perhaps_headed = self.strings and options.header is None and not self._start.header
        self.num_edges = None if compression(path) else estimate_lines(path)

    def __iter__(self) -> Iterator[EdgeBatch]:
        line, first = self._start.skip_lines, True
        with DecompressedFile(self.path) as file, PageCache(self.path) as cache:
            for text in self._blocks(file):
                if len(text) == BLOCK_BYTES and text[-1] != ord("\n"):
                    raise line_too_long(self.path, line + 1)
                parsed = native.edge_text(text, self._start.form, names=self.strings)
                if parsed.fault is not None:
                    raise self._error(text, parsed, line)
                cache.behind(file.position)
                source = _ends(parsed.source)
                if len(source):
                    locate = partial(self._locate, text, line)
                    destination = _ends(parsed.destination)
                    headed = first and self.perhaps_headed
                    yield EdgeBatch(source, destination, parsed.weight, file.position, locate, headed)
                    first = False
                line += parsed.num_lines

    def _blocks(self, file: DecompressedFile) -> Iterator[NDArray[np.uint8]]:
        """Blocks of whole lines in one reused buffer; a line longer than the buffer is returned in part."""
        file.skip(self._start.skip_bytes)
        room = bytearray(BLOCK_BYTES)
        view, text = memoryview(room), np.frombuffer(room, np.uint8)
        kept = 0
        while True:
            size = kept + file.fill(view[kept:])
            end = room.rfind(b"\n") + 1 if size == len(room) else size
            if size:
                yield text[: end or size]
            if size < len(room):
                return
            kept = size - end
            room[:kept] = room[end:size]

    def _locate(self, text: NDArray[np.uint8], lines_before: int, position: int) -> str:
        """The line of an edge of a block, found by counting the edges up to the end of each line."""
        ends = np.append(np.flatnonzero(text == ord("\n")) + 1, text.size)
        line = bisect_right(ends, position, key=lambda end: self._num_edges(text[:end]))
        return f"{self.path}, line {lines_before + line + 1:,}"

    def _num_edges(self, text: NDArray[np.uint8]) -> int:
        return len(_ends(native.edge_text(text, self._start.form, names=self.strings).source))

    def _error(self, text: NDArray[np.uint8], parsed: Parsed, lines_before: int) -> DataError:
        assert parsed.fault is not None
        what, begin, end = parsed.fault
        line = text[begin:end].tobytes().decode("utf-8", "replace").strip()[:60]
        number = lines_before + parsed.num_lines + 1
        cure = (
            self._options.range_cure()
            if what == "range"
            else CURES[what].format(num_fields=self._start.form.num_fields)
        )
        header = HEADER_CURE if number == 1 else ""
        if self._options.columns == VERTICES:
            kind = "names" if self.strings else "numbers"
            return DataError(f"{self.path}, line {number:,}: {line!r} is not an id in a list of {kind}. {cure}{header}")
        return DataError(
            f"{self.path}, line {number:,}: {line!r} is not an edge. Each line has "
            f"{line_form(strings=self.strings)}. {cure}{header}"
        )


def estimate_lines(path: Path) -> int:
    """The number of lines of a file, estimated from evenly spaced samples."""
    size = path.stat().st_size
    if size <= NUM_SAMPLES * SAMPLE_BYTES:
        return path.read_bytes().count(b"\n") + 1
    offsets = [size * sample // NUM_SAMPLES for sample in range(NUM_SAMPLES)]
    with open(path, "rb", buffering=0) as file:
        lines = sum(os.pread(file.fileno(), SAMPLE_BYTES, offset).count(b"\n") for offset in offsets)
    return size * lines // (NUM_SAMPLES * SAMPLE_BYTES)


def _ends(ends: NDArray[np.int64] | tuple[NDArray[np.uint8], NDArray[np.int64]]) -> Ends:
    return Tokens(*ends) if isinstance(ends, tuple) else ends
