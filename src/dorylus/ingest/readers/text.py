"""Edges in text files (CSV, TSV, SNAP), parsed block by block.

Delimiter, header, columns, numbers or names, and weights are detected from the first lines.
"""

import csv
import os
import re
from bisect import bisect_right
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dorylus.backends import TextEdges as Parsed
from dorylus.backends import TextForm, native
from dorylus.errors import DataError, given
from dorylus.ingest.batches import EdgeBatch, Ends, NoEdgesError, Tokens
from dorylus.ingest.readers.input_file import DecompressedFile, PageCache, compression
from dorylus.ingest.readers.options import (
    VERTICES,
    ReadOptions,
    are_columns_reversed,
    check_column_order,
    has_pandas_index,
    pick_columns,
)

LONGEST_LINE = 4 << 20
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


BOM = b"\xef\xbb\xbf"
OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")
HEAD_BYTES = 64 << 10
HEAD_LINES = 100
NUMERIC = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
HEADINGS = {"source", "src", "from", "source_id", "src_id", "from_id", "fromnodeid", "start", "head", "node1", "u"}
"""Names of a first column that distinguish a header from an edge where ends are names."""
SECOND_HEADINGS = {"target", "dst", "dest", "destination", "to", "target_id", "dst_id", "to_id", "tonodeid", "node2"}
"""Names of a second column that do the same."""


@dataclass(frozen=True)
class TextStart:
    """The format of a file, and the bytes and lines before its first edge."""

    form: TextForm
    strings: bool
    header: bool
    skip_bytes: int
    skip_lines: int


@dataclass(frozen=True)
class TextLine:
    """A line with content, and the bytes and lines up to its end."""

    text: str
    end: int
    number: int


def detect_format(path: Path, options: ReadOptions) -> TextStart:
    """Detect the format of a file from its first lines."""
    before, lines = _first_lines(path, options)
    separator = options.delimiter or _separator([line.text for line in lines], path, options)
    separator = None if separator == " " else separator
    rows = [_fields(path, line, separator) for line in lines]
    columns = _columns(path, rows[0], lines[0], options)
    header = _is_header(rows, columns, options) if options.header is None else options.header
    if header and len(rows) == 1:
        raise _header_only_error(path, options)
    if header:
        check_column_order(path, [rows[0][column] for column in columns], options)
    strings = _are_strings(rows[header:], columns, options)
    low, high = options.bounds
    weight = columns[2] if len(columns) == 3 else None
    form = TextForm(columns[0], columns[1], weight, len(rows[0]), separator, options.comments, low, high)
    skipped = (lines[0].end, lines[0].number) if header else (before, options.skip_lines)
    return TextStart(form, strings, header, *skipped)


def line_form(*, strings: bool) -> str:
    """The content of a line, for error messages."""
    ends = "two names" if strings else "two vertex numbers from 0"
    return f"{ends} and, in every line or in none, a weight"


def line_too_long(path: Path, number: int) -> DataError:
    """The error for a line that is longer than the buffer."""
    return DataError(
        f"{path}, line {number:,}, has more than {LONGEST_LINE:,} bytes, the most a line may have: shorten it. A "
        f"line is a comment, or has {line_form(strings=False)}."
    )


def _header_only_error(path: Path, options: ReadOptions) -> NoEdgesError:
    """The error for a file with only a header."""
    certain = options.header or _by_name(options)
    cure = "" if certain else f" Or, if it is an edge, ingest the file with {given('header', False)}."
    return NoEdgesError(f"{path} holds a header and no edge. Leave it out, or write it again.{cure}")


def _first_lines(path: Path, options: ReadOptions) -> tuple[int, list[TextLine]]:
    """(bytes before the first line that is read, the first lines with content)."""
    first: list[TextLine] = []
    before = end = 0
    with closing(_raw_lines(path)) as lines:
        for number, line in enumerate(lines, start=1):
            if len(line) > LONGEST_LINE:
                raise line_too_long(path, number)
            mark = _byte_order_mark(path, line) if number == 1 else 0
            _check_text_line(path, number, line.rstrip(b"\r\n"))
            end += len(line)
            if number <= options.skip_lines:
                before = end
                continue
            before = before or mark
            text = _without_comment(line[mark:].rstrip(b"\r\n").decode("utf-8", "replace"), options.comments)
            if text.strip():
                first.append(TextLine(text, end, number))
            if len(first) == HEAD_LINES:
                break
    if not first:
        raise NoEdgesError(f"{path} holds no edge. Each line has {line_form(strings=False)}.")
    return before, first


def _raw_lines(path: Path) -> Generator[bytes, None, None]:
    """Lines with their newlines; a line that is too long is returned in part."""
    rest = b""
    with DecompressedFile(path) as file:
        room = bytearray(HEAD_BYTES)
        while len(rest) <= LONGEST_LINE and (count := file.fill(memoryview(room))):
            *whole, rest = (rest + room[:count]).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest


def _byte_order_mark(path: Path, line: bytes) -> int:
    if line.startswith(OTHER_BOMS):
        raise DataError(f"{path} is UTF-16. Edges are read from UTF-8: convert it, as with iconv -f utf-16 -t utf-8.")
    return len(BOM) if line.startswith(BOM) else 0


def _check_text_line(path: Path, number: int, line: bytes) -> None:
    """Refuse binary content, and lines that end in CR."""
    if b"\0" in line:
        raise DataError(
            f"{path}, line {number:,} holds a zero byte, so it is not text. Write one edge per line; dorylus ingest "
            f"reads binary pairs too, by {given('format', 'binary')}."
        )
    if b"\r" in line:
        raise DataError(
            f"{path}, line {number:,} holds a carriage return: lines seem to end in CR, as on old Macs, and not in "
            "LF or CR LF. Convert it, as with tr '\\r' '\\n'."
        )


def _without_comment(line: str, comments: str) -> str:
    marks = f"(^|(?<=[ \t,;]))[{re.escape(comments)}].*" if comments else "$^"
    return re.sub(marks, "", line).rstrip(" ")


def _separator(lines: list[str], path: Path, options: ReadOptions) -> str | None:
    suffix = (path.with_suffix("") if compression(path) else path).suffix.lower()
    if "\t" in lines[0] and suffix in (".tsv", ".tab"):
        return "\t"
    if "," in lines[0]:
        return ","
    words = lines[0].split()
    if ";" in words[0] and (len(words) == 1 or words[0].endswith(";")) and options.columns != VERTICES:
        return ";"
    names_with_blanks = all("\t" in line for line in lines) and any(
        _is_phrase(f) for line in lines for f in line.split("\t")
    )
    whole_lines = options.columns == VERTICES  # one name per line, which may contain blanks
    return "\t" if names_with_blanks or whole_lines else None


def _is_phrase(field: str) -> bool:
    """Whether a field has several words that are not all numbers."""
    words = field.split()
    return len(words) > 1 and not all(NUMERIC.fullmatch(word) for word in words)


def _fields(path: Path, line: TextLine, separator: str | None) -> list[str]:
    if separator is None:
        return line.text.split()
    if separator not in ",;":
        return [field.strip() for field in line.text.split(separator)]
    try:
        return [field.strip() for field in next(csv.reader([line.text], delimiter=separator, skipinitialspace=True))]
    except csv.Error as error:
        raise DataError(
            f"{path}, line {line.number:,} cannot be split into fields ({error}), so it is not a list of edges. Each "
            f"line has {line_form(strings=False)}."
        ) from error


def _columns(path: Path, fields: list[str], line: TextLine, options: ReadOptions) -> tuple[int, ...]:
    if len(fields) < 2 and options.columns is None:
        separator = (
            f"blanks, tabs, commas or semicolons: for another, ingest the file with {given('delimiter', ...)}"
            if options.delimiter is None
            else f"the character of {given('delimiter', options.delimiter)}"
        )
        raise DataError(
            f"{path}, line {line.number:,}: {line.text.strip()[:60]!r} is not an edge. Each line has "
            f"{line_form(strings=False)}. Fields are separated by {separator}."
        )
    return pick_columns(path, fields, options)


def _is_header(rows: list[list[str]], columns: tuple[int, ...], options: ReadOptions) -> bool:
    if _by_name(options) or has_pandas_index(rows[0], options):
        return True
    if len(rows) == 1 and options.columns == VERTICES:
        return False
    if any(NUMERIC.fullmatch(rows[0][column]) for column in columns[:2]):
        return False
    names = [rows[0][column] for column in columns]
    if len(rows) > 1 and len(names) == 3 and not NUMERIC.fullmatch(names[2]) and _mostly_weights(rows[1:], columns[2]):
        return True
    numeric = options.ids != "strings" and len(rows) > 1 and _mostly_numeric(rows[1:], columns)
    named = names[0].lower() in HEADINGS or names[1].lower() in SECOND_HEADINGS
    return numeric or named or are_columns_reversed(names, options)


def _by_name(options: ReadOptions) -> bool:
    return any(isinstance(column, str) for column in options.columns or ())


def _are_strings(rows: list[list[str]], columns: tuple[int, ...], options: ReadOptions) -> bool:
    if options.ids in ("dense", "strings"):
        return options.ids == "strings"
    return not _mostly_numeric(rows, columns)


def _mostly_weights(rows: list[list[str]], column: int) -> bool:
    """Whether at least half the lines have a number as weight: above them, another text is a header."""
    return 2 * sum(len(row) > column and bool(NUMERIC.fullmatch(row[column])) for row in rows) >= len(rows)


def _mostly_numeric(rows: list[list[str]], columns: tuple[int, ...]) -> bool:
    """Whether at least half the lines have numbers as ends; any other line is then a mistake."""
    whole = [row for row in rows if len(row) > max(columns[:2])]
    numeric = sum(all(NUMERIC.fullmatch(row[column]) for column in columns[:2]) for row in whole)
    return 2 * numeric >= len(rows)
