"""Tables with named columns, read batch by batch: CSV and Parquet files, and objects that export an Arrow stream.

Every value of a CSV file is read as text. Its first line names the columns.
"""

import csv as standard_csv
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from dorylus.errors import DataError
from dorylus.extras import optional
from dorylus.ingest.batches import EdgeBatch, row_of
from dorylus.ingest.readers.arrow import ArrowColumns, naming_file, pyarrow
from dorylus.ingest.readers.files import find_files
from dorylus.ingest.readers.input_file import UncachedFile, UnchangedFile, compression
from dorylus.ingest.readers.options import NO_DATA, ReadOptions

INSTALL = 'pip install "dorylus[tables]"'
BATCH_ROWS, BATCH_BYTES = 1 << 16, 2 << 20
CSV_BLOCK_BYTES = 1 << 20  # the longest row
CSV_SUFFIXES, PARQUET_SUFFIXES = (".csv", ".tsv", ".tab", ".txt"), (".parquet", ".pq")
CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
DELIMITERS = ",\t;|"
INVALID_ROW = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)
OTHER_ENCODINGS = (b"\xff\xfe", b"\xfe\xff")


class TableBatch(NamedTuple):
    """Some rows: the columns by name as Arrow arrays, and the place of the first row in its file."""

    part: str
    first: int
    columns: Mapping[str, Any]

    def locate(self, position: int, column: str) -> str:
        """A value's place, for error messages."""
        return f"{row_of(self.part, self.first + position)}, column {column!r}"


class TablePart(Protocol):
    """One file of a table, or the whole of a table in memory."""

    name: str
    types: dict[str, Any]
    """The Arrow type of each column, in order; None for text of a CSV file."""
    num_rows: int | None

    def batches(self, columns: list[str]) -> Iterator[TableBatch]:
        """The rows, with these columns only."""
        ...


class InputTable:
    """The rows of several files with the same columns, or of a table in memory."""

    def __init__(self, parts: list[TablePart]) -> None:
        self._parts = parts
        self.name, self.types = parts[0].name, parts[0].types
        for part in parts[1:]:
            if {**part.types} != {**self.types}:
                raise DataError(
                    f"{part.name} has other columns or types than {self.name}. Files of one table have the same "
                    "columns: write them alike."
                )

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.types)

    def batches(self, columns: Iterable[str]) -> Iterator[TableBatch]:
        """The rows of all parts in order, with these columns only."""
        wanted_columns = list(dict.fromkeys(columns))
        for part in self._parts:
            yield from part.batches(wanted_columns)


def is_arrow_table(source: Any) -> bool:
    """Whether an object exports Arrow data: pandas, polars, DuckDB, pyarrow."""
    return hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")


def open_table(source: Any, name: str) -> InputTable:
    """The table of an object in memory, called ``name`` in error messages, or of CSV or Parquet files."""
    if is_arrow_table(source):
        return InputTable([ArrowPart(arrow_table(source, name), name)])
    listed = [source] if isinstance(source, str | PathLike) else source
    if not isinstance(listed, list | tuple) or not all(isinstance(path, str | PathLike) for path in listed):
        raise DataError(
            f"{name} is given as {type(source).__name__}: give CSV or Parquet files, or a table of pandas, polars, "
            "DuckDB or pyarrow."
        )
    return InputTable([_file_part(path) for path in find_files(listed)])


def arrow_table(source: Any, name: str) -> Any:
    """The pyarrow.Table of an object that exports Arrow data."""
    pa = optional("pyarrow", INSTALL)
    try:
        table = pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise DataError(
            f"{name} cannot be read as an Arrow table ({reason}): give every column values of one type."
        ) from error
    _check_columns(name, table.schema.names)
    return table


def _file_part(path: Path) -> TablePart:
    inner = path.with_suffix("") if compression(path) else path
    suffix = inner.suffix.lower()
    if suffix in CSV_SUFFIXES:
        reader: type[CsvPart] | type[ParquetPart] = CsvPart
    elif path.suffix.lower() in PARQUET_SUFFIXES:
        reader = ParquetPart
    else:
        raise DataError(f"{path} is no table: its name ends in .csv or .tsv (also compressed, .csv.gz) or .parquet.")
    optional("pyarrow", INSTALL)
    try:
        return reader(path)
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}. Check the path and its permissions."
        ) from error


def _check_columns(name: str, columns: list[str]) -> None:
    for column in columns:
        if columns.count(column) > 1:
            raise DataError(f"{name} has {columns.count(column)} columns called {column!r}. Rename all but one.")


def _batch_rows(num_columns: int) -> int:
    return max(1, min(BATCH_ROWS, BATCH_BYTES // (8 * max(num_columns, 1))))


class ArrowPart:
    """A pyarrow.Table."""

    def __init__(self, table: Any, name: str) -> None:
        self._table, self.name = table, name
        self.num_rows: int | None = table.num_rows
        self.types: dict[str, Any] = {each.name: each.type for each in table.schema if not NO_DATA.fullmatch(each.name)}

    def batches(self, columns: list[str]) -> Iterator[TableBatch]:
        """The rows, with these columns only."""
        first = 0
        for batch in self._table.select(columns).to_batches(max_chunksize=BATCH_ROWS):
            yield TableBatch(self.name, first, dict(zip(columns, batch.columns, strict=True)))
            first += batch.num_rows


class ParquetPart:
    """The rows of a Parquet file, decoded page by page."""

    def __init__(self, path: Path) -> None:
        self._path, self.name, self._state = path, str(path), UnchangedFile(path)
        with naming_file(path), self._open(1) as file:
            schema = file.schema_arrow
            self.num_rows: int | None = file.metadata.num_rows
        _check_columns(self.name, schema.names)
        self.types: dict[str, Any] = {each.name: each.type for each in schema if not NO_DATA.fullmatch(each.name)}

    def batches(self, columns: list[str]) -> Iterator[TableBatch]:
        """The rows, with these columns only."""
        if not self.num_rows:
            return
        first, step = 0, _batch_rows(len(columns))
        with naming_file(self._path), self._open(len(columns)) as file:
            batches = file.iter_batches(batch_size=step, columns=columns, use_threads=False)
            while True:
                with self._checked():
                    batch = next(batches, None)
                if batch is None:
                    return
                yield TableBatch(self.name, first, {name: batch.column(name) for name in columns})
                pyarrow().default_memory_pool().release_unused()  # it would keep the largest of every column
                first += batch.num_rows

    @contextmanager
    def _checked(self) -> Iterator[None]:
        """A file that was rewritten meanwhile is not damaged."""
        try:
            yield
        except Exception:
            self._state.check()
            raise
        self._state.check()

    def _open(self, num_columns: int) -> Any:
        # No read-ahead: it would hold whole row groups.
        buffer_bytes = max(4096, min(1 << 20, 2 * BATCH_BYTES // num_columns))
        return optional("pyarrow.parquet", INSTALL).ParquetFile(
            pyarrow().PythonFile(UncachedFile(self._path), mode="r"),
            buffer_size=buffer_bytes,
            pre_buffer=False,
            page_checksum_verification=True,
        )


class CsvPart:
    """The rows of a CSV file; all values are bytes, as they stand in the file."""

    def __init__(self, path: Path) -> None:
        self._path, self.name, self._state = path, str(path), UnchangedFile(path)
        self.num_rows: int | None = None
        header = self._first_line()
        self._delimiter = _delimiter(path, header)
        names = [name.strip() for name in next(standard_csv.reader([header], delimiter=self._delimiter))]
        if all(_is_number(name) for name in names):
            raise DataError(
                f"{path}: its first line holds numbers ({', '.join(names[:3])}), but the first line of a table names "
                "the columns. Add that line."
            )
        _check_columns(self.name, names)
        self.types: dict[str, Any] = dict.fromkeys(names)
        self._names = names

    def batches(self, columns: list[str]) -> Iterator[TableBatch]:
        """The rows, with these columns only."""
        first, last = 0, None
        with self._naming():
            source = _QuoteCounter(self._source())
            reader = self._reader(source, columns)
        while True:
            with self._naming():
                batch = next(reader, None)
            if last is not None:  # one behind, as an open quote is seen at the end of the file
                if batch is None and source.num_quotes % 2 and any(b"\n" in c[-1].as_py() for c in last.columns):
                    row = first + last.num_rows - 1
                    raise DataError(f"{row_of(self.name, row)}: a quote is not closed. Close it.")
                yield TableBatch(self.name, first, dict(zip(columns, last.columns, strict=True)))
                first += last.num_rows
                pyarrow().default_memory_pool().release_unused()
            if batch is None:
                return
            last = batch if batch.num_rows else None

    def _reader(self, source: Any, columns: list[str]) -> Any:
        pa, csv = pyarrow(), optional("pyarrow.csv", INSTALL)

        return csv.open_csv(
            pa.PythonFile(source, mode="r"),
            read_options=csv.ReadOptions(
                use_threads=False, block_size=CSV_BLOCK_BYTES, column_names=self._names, skip_rows=1
            ),
            parse_options=csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                include_columns=columns,
                column_types=dict.fromkeys(self._names, pa.binary()),
                check_utf8=False,
                strings_can_be_null=False,
            ),
        )

    def _source(self) -> Any:
        file = UncachedFile(self._path)
        codec = CODECS.get(compression(self._path))
        return pyarrow().CompressedInputStream(pyarrow().PythonFile(file, mode="r"), codec) if codec else file

    def _first_line(self) -> str:
        with self._naming():
            start = bytes(self._source().read(1 << 20))
        if start.startswith(OTHER_ENCODINGS):
            raise DataError(f"{self.name} is UTF-16. Convert it to UTF-8, as with iconv -f utf-16 -t utf-8.")
        line = start.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0].rstrip(b"\r")
        if not line.strip():
            raise DataError(f"{self.name} begins with an empty line, but the first line names the columns. Add them.")
        if b"\0" in line or b"\r" in line:
            raise DataError(f"{self.name} is not a CSV file: its first line holds a zero byte or a carriage return.")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise DataError(f"{self.name}: the names of its columns are not UTF-8. Write the file as UTF-8.") from error

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Raise errors of pyarrow as a DataError with the row, if it is known."""
        pa = pyarrow()
        try:
            yield
        except (pa.ArrowException, OSError, EOFError, ValueError) as error:
            self._state.check()
            if row := INVALID_ROW.search(str(error)):
                number, expected, found, text = row.groups()
                raise DataError(
                    f"{row_of(self.name, int(number) - 2)}, has {found} values instead of {expected}: "
                    f"{text.strip()[:60]!r}. Every row has a value for each column; put values with a comma in quotes."
                ) from error
            if "straddling" in str(error):
                raise DataError(
                    f"{self.name} has a row of more than {CSV_BLOCK_BYTES:,} bytes: a quote is not closed, or the row "
                    "is too long."
                ) from error
            raise DataError(
                f"cannot read {self.name}: {str(error).splitlines()[0].rstrip('.')}. Copy or write it again."
            ) from error


class _QuoteCounter:
    """A file object that counts the quotes in what it reads."""

    def __init__(self, source: Any) -> None:
        self._source, self.num_quotes = source, 0

    closed = False

    def close(self) -> None:
        """Close the file."""
        self._source.close()

    def tell(self) -> int:
        """The position of the next read."""
        return int(self._source.tell())

    def read(self, size: int) -> Any:
        """The next ``size`` bytes."""
        content = self._source.read(size)
        self.num_quotes += content.count(b'"')
        return content


def _delimiter(path: Path, header: str) -> str:
    suffix = (path.with_suffix("") if compression(path) else path).suffix.lower()
    if suffix in (".tsv", ".tab"):
        return "\t"
    outside = "".join(header.split('"')[::2])
    return max(DELIMITERS, key=outside.count)


def _is_number(text: str) -> bool:
    try:
        return float(text) is not None
    except ValueError:
        return False


class TableEdges:
    """The edges of a table in memory."""

    def __init__(self, source: Any, options: ReadOptions, name: str = "edges") -> None:
        self._table = arrow_table(source, name)
        self._columns = ArrowColumns(Path(name), self._table.schema, options)
        self.strings, self.weighted = self._columns.strings, self._columns.weighted
        self.num_edges, self.total_bytes = self._table.num_rows, self._table.nbytes

    def __iter__(self) -> Iterator[EdgeBatch]:
        first = 0
        for batch in self._table.select(list(dict.fromkeys(self._columns.names))).to_batches(max_chunksize=BATCH_ROWS):
            if batch.num_rows:
                yield from self._columns.batches(batch, first, first, first + batch.num_rows)
            first += batch.num_rows


def first_true(mask: Any) -> int | None:
    """The position of the first true value; None if there is none."""
    found = np.flatnonzero(mask)
    return int(found[0]) if found.size else None
