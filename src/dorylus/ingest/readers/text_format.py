"""What the first lines of a text tell: what separates fields, whether there is a header, numbers or names, weights.

Text files that may be packed (.gz, .bz2, .zst, .lz4), read as plain bytes; positions are those on disk.
"""

import csv
import re
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from dorylus.backends import TextForm
from dorylus.errors import DataError, given
from dorylus.ingest.batches import NoEdgesError
from dorylus.ingest.readers.input_file import UnpackedFile, packing
from dorylus.ingest.readers.options import VERTICES, ReadOptions, are_columns_reversed, check_column_order, pick_columns

BOM = b"\xef\xbb\xbf"
OTHER_BOMS = (b"\xff\xfe", b"\xfe\xff")
LONGEST_LINE = 4 << 20
SAMPLE_BYTES = 64 << 10
SAMPLE_LINES = 100
NUMERIC = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
HEADINGS = {"source", "src", "from", "source_id", "src_id", "from_id", "fromnodeid", "start", "head", "node1", "u"}
"""What a first column may be called: where ends are names, nothing else tells a header from an edge."""


@dataclass(frozen=True)
class TextStart:
    """How a file is to be read, and how much lies before its first edge."""

    form: TextForm
    strings: bool
    header: bool
    skip_bytes: int
    skip_lines: int


@dataclass(frozen=True)
class TextLine:
    """A line that holds something, and how many bytes and lines end with it."""

    text: str
    end: int
    number: int


def look_at(path: Path, options: ReadOptions) -> TextStart:
    """Look at the first lines of a file."""
    before, lines = _first_lines(path, options)
    separator = options.delimiter or _separator([line.text for line in lines], path, options)
    separator = None if separator == " " else separator
    rows = [_fields(path, line, separator) for line in lines]
    columns = _columns(path, rows[0], lines[0], options)
    header = _is_header(rows, columns, options) if options.header is None else options.header
    if header and len(rows) == 1:
        raise _no_edge(path, options)
    if header:
        check_column_order(path, [rows[0][column] for column in columns], options)
    strings = _are_strings(rows[header:], columns, options)
    low, high = options.bounds
    weight = columns[2] if len(columns) == 3 else None
    form = TextForm(columns[0], columns[1], weight, len(rows[0]), separator, options.comments, low, high)
    skipped = (lines[0].end, lines[0].number) if header else (before, options.skip_lines)
    return TextStart(form, strings, header, *skipped)


def line_form(*, strings: bool) -> str:
    """What each line gives, in words."""
    ends = "two names" if strings else "two vertex numbers from 0"
    return f"{ends} and, in every line or in none, a weight"


def line_too_long(path: Path, number: int) -> DataError:
    """The refusal of a line that no buffer holds."""
    return DataError(
        f"{path}, line {number:,}, has more than {LONGEST_LINE:,} bytes, the most a line may have: shorten it. A "
        f"line is a comment, or gives {line_form(strings=False)}."
    )


def _no_edge(path: Path, options: ReadOptions) -> NoEdgesError:
    """The refusal of a file that has a header alone."""
    told = options.header or _by_name(options)
    cure = "" if told else f" Or, if it is an edge, ingest the file with {given('header', False)}."
    return NoEdgesError(f"{path} holds a header and no edge. Leave it out, or write it again.{cure}")


def _first_lines(path: Path, options: ReadOptions) -> tuple[int, list[TextLine]]:
    """(the bytes before the first line that counts, the first lines that hold something)."""
    found: list[TextLine] = []
    before = end = 0
    with closing(_raw_lines(path)) as lines:
        for number, line in enumerate(lines, start=1):
            if len(line) > LONGEST_LINE:
                raise line_too_long(path, number)
            mark = _byte_order_mark(path, line) if number == 1 else 0
            _need_lines(path, number, line.rstrip(b"\r\n"))
            end += len(line)
            if number <= options.skip_lines:
                before = end
                continue
            before = before or mark
            text = _without_comment(line[mark:].rstrip(b"\r\n").decode("utf-8", "replace"), options.comments)
            if text.strip():
                found.append(TextLine(text, end, number))
            if len(found) == SAMPLE_LINES:
                break
    if not found:
        raise NoEdgesError(f"{path} holds no edge. Each line gives {line_form(strings=False)}.")
    return before, found


def _raw_lines(path: Path) -> Generator[bytes, None, None]:
    """Lines with their newlines; one that is too long comes in part."""
    rest = b""
    with UnpackedFile(path) as file:
        room = bytearray(SAMPLE_BYTES)
        while len(rest) <= LONGEST_LINE and (count := file.fill(memoryview(room))):
            *whole, rest = (rest + room[:count]).split(b"\n")
            yield from (line + b"\n" for line in whole)
        if rest:
            yield rest


def _byte_order_mark(path: Path, line: bytes) -> int:
    if line.startswith(OTHER_BOMS):
        raise DataError(f"{path} is UTF-16. Edges are read from UTF-8: convert it, as with iconv -f utf-16 -t utf-8.")
    return len(BOM) if line.startswith(BOM) else 0


def _need_lines(path: Path, number: int, line: bytes) -> None:
    """Refuses what is no text, or has other ends of lines."""
    if b"\0" in line:
        raise DataError(
            f"{path}, line {number:,} holds a zero byte, so it is not text. Give an edge a line; dorylus ingest "
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
    suffix = (path.with_suffix("") if packing(path) else path).suffix.lower()
    if "\t" in lines[0] and suffix in (".tsv", ".tab"):
        return "\t"
    if "," in lines[0]:
        return ","
    blanks_in_names = all("\t" in line for line in lines) and any(
        _is_phrase(f) for line in lines for f in line.split("\t")
    )
    whole_lines = options.columns == VERTICES  # a name a line: blanks belong to it
    return "\t" if blanks_in_names or whole_lines else None


def _is_phrase(field: str) -> bool:
    """Whether a field has words, not all of them numbers."""
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
            f"{path}, line {line.number:,} cannot be cut into fields ({error}), so it is no list of edges. Each line "
            f"gives {line_form(strings=False)}."
        ) from error


def _columns(path: Path, fields: list[str], line: TextLine, options: ReadOptions) -> tuple[int, ...]:
    if len(fields) < 2 and options.columns is None:
        cut = (
            f"blanks, tabs or commas: for another, ingest the file with {given('delimiter', ...)}"
            if options.delimiter is None
            else f"the character of {given('delimiter', options.delimiter)}"
        )
        raise DataError(
            f"{path}, line {line.number:,}: {line.text.strip()[:60]!r} is not an edge. Each line gives "
            f"{line_form(strings=False)}. Fields are cut by {cut}."
        )
    return pick_columns(path, fields, options)


def _is_header(rows: list[list[str]], columns: tuple[int, ...], options: ReadOptions) -> bool:
    if _by_name(options):
        return True
    if len(rows) == 1 and options.columns == VERTICES:
        return False
    if any(NUMERIC.fullmatch(rows[0][column]) for column in columns[:2]):
        return False
    numeric = options.ids != "strings" and len(rows) > 1 and _mostly_numeric(rows[1:], columns)
    names = [rows[0][column] for column in columns]
    return numeric or names[0].lower() in HEADINGS or are_columns_reversed(names, options)


def _by_name(options: ReadOptions) -> bool:
    return any(isinstance(column, str) for column in options.columns or ())


def _are_strings(rows: list[list[str]], columns: tuple[int, ...], options: ReadOptions) -> bool:
    if options.ids in ("dense", "strings"):
        return options.ids == "strings"
    return not _mostly_numeric(rows, columns)


def _mostly_numeric(rows: list[list[str]], columns: tuple[int, ...]) -> bool:
    """Whether half the lines have numbers for ends, so that another line is a mistake in a list of numbers."""
    whole = [row for row in rows if len(row) > max(columns[:2])]
    numeric = sum(all(NUMERIC.fullmatch(row[column]) for column in columns[:2]) for row in whole)
    return 2 * numeric >= len(rows)
