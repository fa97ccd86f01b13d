"""Columns of Arrow as ends and weights of edges, and the edges of Arrow's own files and streams (.arrow, .feather)."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError
from dorylus.graph.ingest.batches import Tokens
from dorylus.graph.ingest.readers import row_checks
from dorylus.graph.ingest.readers.edge_file import MAX_EDGES, Ends, FileBatch, PageCache
from dorylus.graph.ingest.readers.options import ReadOptions
from dorylus.graph.interop.packages import optional

INSTALL = 'pip install "dorylus[parquet]"'
MAGIC = b"ARROW1"


def pyarrow() -> Any:
    """The package, or a DataError that says how to install it."""
    return optional("pyarrow", INSTALL)


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Arrow's own errors as a DataError about the file."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(
            f"cannot read {path}: {str(error).splitlines()[0]} Copy it whole, or write it again."
        ) from error


class ArrowColumns:
    """The columns of a file that edges are made of."""

    def __init__(self, path: Path, schema: Any, options: ReadOptions) -> None:
        self._path = path
        self._options = options
        self.positions = row_checks.pick(path, list(schema.names), options)
        self.names = [schema.names[position] for position in self.positions]
        types = [schema.types[position] for position in self.positions]
        kinds = {self._kind(name, kind) for name, kind in zip(self.names[:2], types, strict=False)}
        if len(kinds) > 1:
            raise DataError(f"{path}: of {self.names[0]!r} and {self.names[1]!r}, one holds numbers and one strings.")
        self.strings = kinds == {"strings"}
        self.weighted = len(self.positions) == 3
        is_number = pyarrow().types
        if self.weighted and not (is_number.is_floating(types[2]) or is_number.is_integer(types[2])):
            raise DataError(f"{path}: the weight {self.names[2]!r} holds {types[2]}. Weights are numbers.")

    def batches(self, batch: Any, row: int, bytes_read: int) -> Iterator[FileBatch]:
        """The edges of a record batch whose first row is ``row`` of the file."""
        for begin in range(0, batch.num_rows, MAX_EDGES):
            part = batch.slice(begin, MAX_EDGES)
            columns = [self._column(part.column(name), name, row + begin) for name in self.names]
            source, destination = (self._ends(column, row + begin) for column in columns[:2])
            weight = None
            if self.weighted:
                weight = row_checks.weights(self._path, columns[2].to_numpy(zero_copy_only=False), row + begin)
            yield FileBatch(source, destination, weight, bytes_read)

    def _kind(self, name: str, kind: Any) -> str:
        types = pyarrow().types
        value = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_integer(value):
            return "strings" if self._options.ids == "strings" else "numbers"
        strings = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
        if any(is_one(value) for is_one in strings):
            if self._options.ids == "dense":
                raise DataError(f"{self._path}: {name!r} holds strings, but ids='dense' asks for numbers from 0.")
            return "strings"
        raise DataError(
            f"{self._path}: {name!r} holds {kind}. {self._options.ids_are} are whole numbers or strings: convert the "
            "column."
        )

    def _column(self, column: Any, name: str, row: int) -> Any:
        if column.null_count:
            missing = row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"{self._path}, row {missing:,}: {name!r} is missing. Every edge has both ends and its weight."
            )
        return column.dictionary_decode() if pyarrow().types.is_dictionary(column.type) else column

    def _ends(self, column: Any, row: int) -> Ends:
        if not self.strings:
            return row_checks.ids(self._path, column.to_numpy(zero_copy_only=False), row, self._options)
        tokens = _tokens(column)
        empty = np.flatnonzero(tokens.offsets[1:] == tokens.offsets[:-1])
        if empty.size:
            raise DataError(f"{self._path}, row {row + int(empty[0]):,}: an id is empty. Give every vertex a name.")
        return tokens


def _tokens(column: Any) -> Tokens:
    pa = pyarrow()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.large_binary())
    else:
        column = column.cast(pa.large_string())
    _, starts, data = column.buffers()
    first = column.offset
    offsets: NDArray[np.int64] = np.frombuffer(starts, np.int64)[first : first + len(column) + 1]
    content = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Tokens(content[offsets[0] : offsets[-1]], offsets - offsets[0])


class ArrowEdges:
    """The edges of a file or stream in Arrow's format; its record batches are held one at a time."""

    num_edges: int | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._ipc = optional("pyarrow.ipc", INSTALL)
        with open(path, "rb") as file:
            self._is_file = file.read(len(MAGIC)) == MAGIC
        with damage_named(path), pyarrow().OSFile(str(path)) as file:
            schema = self._open(file).schema
        self._columns = ArrowColumns(path, schema, options)
        self.strings, self.weighted = self._columns.strings, self._columns.weighted

    def __iter__(self) -> Iterator[FileBatch]:
        row = 0
        with pyarrow().OSFile(str(self.path)) as file, PageCache(self.path) as cache:
            batches = self._batches(file)
            while True:
                with damage_named(self.path):
                    batch, position = next(batches, (None, 0))
                if batch is None:
                    return
                cache.behind(position)
                yield from self._columns.batches(batch, row, position)
                row += batch.num_rows

    def _batches(self, file: Any) -> Iterator[tuple[Any, int]]:
        """(record batch, how far the file was read)."""
        reader = self._open(file)
        if not self._is_file:
            for batch in reader:
                yield batch, file.tell()
            return
        size, count = file.size(), reader.num_record_batches
        for number in range(count):
            yield reader.get_batch(number), size * (number + 1) // count

    def _open(self, file: Any) -> Any:
        return self._ipc.open_file(file) if self._is_file else self._ipc.open_stream(file)
