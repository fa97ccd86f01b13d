"""Access to pyarrow, its errors as DataError, and Arrow columns as the ends and weights of edges."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import DataError, given
from dorylus.extras import optional
from dorylus.ingest.batches import MAX_EDGES, EdgeBatch, Ends, Tokens, locate_by_row, row_of
from dorylus.ingest.readers.options import ReadOptions, check_column_order, checked_ids, checked_weights, pick_columns

INSTALL = 'pip install "dorylus[parquet]"'


def pyarrow() -> Any:
    """The package, or a DataError with the command that installs it."""
    optional("pyarrow.ipc", INSTALL)
    return optional("pyarrow", INSTALL)


def compute() -> Any:
    """pyarrow.compute, loaded only on demand: it takes 10 MiB, and numbers do not need it."""
    return optional("pyarrow.compute", INSTALL)


@contextmanager
def naming_file(path: Path) -> Iterator[None]:
    """Raise errors of pyarrow as a DataError about the file."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise DataError(f"cannot read {path}: {str(error).splitlines()[0]} Copy or write it again.") from error


NAME_ROWS = 1 << 16
NAME_BYTES = 8 << 20
"""The most edges of a batch of names, and the most bytes per end unless one name is longer."""


class ArrowColumns:
    """The columns of a file that hold sources, destinations and weights."""

    def __init__(self, path: Path, schema: Any, options: ReadOptions) -> None:
        self._path = path
        self._options = options
        self.positions = pick_columns(path, list(schema.names), options)
        self.names = [schema.names[position] for position in self.positions]
        for name in self.names:
            if schema.names.count(name) > 1:
                raise DataError(f"{path} has {schema.names.count(name)} columns called {name!r}. Rename all but one.")
        check_column_order(path, self.names, options)
        types = [schema.types[position] for position in self.positions]
        kinds = {self._kind(name, kind) for name, kind in zip(self.names[:2], types, strict=False)}
        if len(kinds) > 1:
            raise DataError(f"{path}: of {self.names[0]!r} and {self.names[1]!r}, one holds numbers and one strings.")
        self.strings = kinds == {"strings"}
        self.weighted = len(self.positions) == 3
        is_number = pyarrow().types
        if self.weighted and not (is_number.is_floating(types[2]) or is_number.is_integer(types[2])):
            raise DataError(f"{path}: the weight {self.names[2]!r} holds {types[2]}. Weights are numbers.")

    def batches(self, batch: Any, row: int, begin: int, end: int) -> Iterator[EdgeBatch]:
        """The edges of a record batch that starts at ``row`` and spans the bytes begin to end of the file."""
        first, lengths = 0, [_lengths(batch.column(name)) for name in self.names[:2]]
        while first < batch.num_rows:
            part = batch.slice(first, self._num_fitting(batch, first, lengths))
            columns = [self._column(part.column(name), name, row + first) for name in self.names]
            source, destination = (self._ends(column, row + first) for column in columns[:2])
            weight = None
            if self.weighted:
                weight = checked_weights(self._path, columns[2].to_numpy(zero_copy_only=False), row + first)
            locate = locate_by_row(self._path, row + first)
            first += part.num_rows
            yield EdgeBatch(source, destination, weight, begin + (end - begin) * first // batch.num_rows, locate)

    def _num_fitting(self, batch: Any, first: int, lengths: list[Any]) -> int:
        """The number of rows from ``first`` that make a batch of edges; fewer if names are long."""
        if not self.strings:
            return MAX_EDGES
        count = min(MAX_EDGES, NAME_ROWS, int(batch.num_rows) - first)
        while count > 1 and self._most_bytes(batch.slice(first, count), lengths) > NAME_BYTES:
            count //= 2
        return count

    def _most_bytes(self, part: Any, lengths: list[Any]) -> int:
        """The bytes of the larger column of names."""
        ends = zip(self.names, lengths, strict=False)
        return max(_name_bytes(part.column(name), each) for name, each in ends)

    def _kind(self, name: str, kind: Any) -> str:
        types = pyarrow().types
        value = kind.value_type if types.is_dictionary(kind) else kind
        if types.is_integer(value):
            return "strings" if self._options.ids == "strings" else "numbers"
        strings = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
        if any(is_one(value) for is_one in strings):
            if self._options.ids == "dense":
                raise DataError(
                    f"{self._path}: {name!r} holds strings, but {given('ids', 'dense')} requires numbers from 0."
                )
            return "strings"
        others = f" Or, if other columns are source and destination, name those by {given('columns', ...)}."
        raise DataError(
            f"{self._path}: {name!r} holds {kind}. {self._options.ids_are} are whole numbers or strings: convert the "
            f"column.{others if self._options.columns is None else ''}"
        )

    def _column(self, column: Any, name: str, row: int) -> Any:
        if column.null_count:
            missing = row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise DataError(
                f"{row_of(self._path, missing)}: {name!r} is missing. Every edge has both ends and its weight."
            )
        return decoded(column) if pyarrow().types.is_dictionary(column.type) else column

    def _ends(self, column: Any, row: int) -> Ends:
        if not self.strings:
            return checked_ids(self._path, column.to_numpy(zero_copy_only=False), row, self._options)
        tokens = tokens_of_column(column)
        empty = np.flatnonzero(tokens.offsets[1:] == tokens.offsets[:-1])
        if empty.size:
            raise DataError(f"{row_of(self._path, row + int(empty[0]))}: an id is empty. Give every vertex a name.")
        return tokens


def tokens_of_column(column: Any) -> Tokens:
    """The texts of an Arrow column."""
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


def decoded(column: Any) -> Any:
    """The values of an Arrow column of a dictionary."""
    return _dictionary(column).take(column.indices)


def _dictionary(column: Any) -> Any:
    pa, values = pyarrow(), column.dictionary
    # No kernel takes from string views.
    return values.cast(pa.large_string()) if pa.types.is_string_view(values.type) else values


def _lengths(column: Any) -> Any:
    """The length of each name of a dictionary; None for a column without a dictionary of names."""
    types = pyarrow().types
    if not types.is_dictionary(column.type) or types.is_integer(column.type.value_type):
        return None
    return compute().binary_length(_dictionary(column))


def _name_bytes(column: Any, lengths: Any) -> int:
    """The bytes of the names of a column; names of a dictionary count once per use."""
    if lengths is None:
        pa = pyarrow()
        # nbytes of a sliced view counts the buffers of the whole.
        return int((column.cast(pa.large_string()) if pa.types.is_string_view(column.type) else column).nbytes)
    return int(compute().sum(lengths.take(column.indices)).as_py() or 0)
