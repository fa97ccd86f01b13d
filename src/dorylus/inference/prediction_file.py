"""Predictions as files, written while they are computed: NumPy's ``.npy``, or Parquet or CSV with one row a vertex.

A file appears whole or not at all: it has no name until it is complete, so a process that ends before leaves nothing.
The space that it takes is checked before anything is computed. The original ids of a store's vertices, which are whole
numbers or texts, are written with the predictions.
"""

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dorylus import files as durable
from dorylus.errors import ConfigError, DataError, cannot_write
from dorylus.files import check_is_path
from dorylus.graph import Graph, TextIds
from dorylus.inference.prediction_pass import SLAB_ROWS, PredictionForm, Rows, slabs
from dorylus.units import format_bytes

ROWS = 131_072  # read together


@dataclass(frozen=True, eq=False)
class StoredNumberIds:
    """Ids that are whole numbers."""

    numbers: NDArray[np.int64]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of an array of them."""
        return np.dtype(np.int64)

    def rows(self, begin: int, end: int) -> NDArray[Any]:
        """The ids of a range of vertices."""
        return np.array(self.numbers[begin:end], np.int64)


Ids = StoredNumberIds | TextIds


def original_ids(graph: Graph) -> Ids | None:
    """The ids that a graph keeps; None where they are the vertex numbers."""
    return graph.ids if graph.ids is None or isinstance(graph.ids, TextIds) else StoredNumberIds(graph.ids)


_NOT_SUPPORTED = (errno.EOPNOTSUPP, errno.EISDIR)


class UnnamedFile:
    """A file that will be ``target``, open for writing; ``size`` bytes of disk are reserved for it."""

    def __init__(self, target: Path, size: int = 0) -> None:
        self.target = target
        self._partial: Path | None = None
        durable.sweep_abandoned(target.parent)
        self.file: BinaryIO = os.fdopen(self._open(), "wb")
        try:
            durable.hold(self.file.fileno())
            if size:
                os.posix_fallocate(self.file.fileno(), 0, size)
        except BaseException:
            self.close()
            raise

    def settle(self) -> None:
        """Force the written bytes to disk and drop them from the page cache, which counts as memory."""
        self.file.flush()
        os.fdatasync(self.file.fileno())
        os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def put_in_place(self) -> None:
        """Give the file its name; it replaces one that had it."""
        self.file.flush()
        os.fsync(self.file.fileno())
        if self._partial is None:
            self._partial = durable.partial_name(self.target)
            _link(self.file.fileno(), self._partial)
        os.replace(self._partial, self.target)
        self._partial = None
        durable.sync_folder(self.target.parent)

    def close(self) -> None:
        """Close the file; one that was not put in place is removed."""
        with suppress(OSError):  # a file that could not be written is removed
            self.file.close()
        if self._partial is not None:
            with suppress(OSError):  # it is removed when the next file is written into this folder
                self._partial.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> int:
        try:
            return os.open(self.target.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        self._partial = durable.partial_name(self.target)
        return os.open(self._partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)


def _link(descriptor: int, path: Path) -> None:
    """Name a file that has only a descriptor."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # With a folder given, and only then, Python makes the call that follows the link in /proc.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=folder, follow_symlinks=True)
    finally:
        os.close(folder)


TABLES = (".parquet", ".csv")
SUFFIXES = (".npy", *TABLES)
HEADER_BYTES = 4096  # more than the header of any .npy file

ReportRows = Callable[[int, int], None]  # rows written, of how many


@dataclass(frozen=True)
class Written:
    """The file of the predictions, their number, and the file of the original ids, if there is one."""

    path: Path
    num_vertices: int
    ids: Path | None


def check_target(path: str | PathLike[str], what: str = "classes") -> Path:
    """The file as a path; refuses one that predictions cannot be written to, before they are computed."""
    check_is_path("out", path, "classes.npy")
    target = Path(path)
    suffixes = {"table": TABLES, "probabilities": SUFFIXES}.get(what, SUFFIXES[:2])
    if target.suffix not in suffixes:
        cure = ", or predict a table for .csv" if target.suffix == ".csv" else ""
        raise ConfigError(
            f"{what if what == 'table' else 'predictions'} cannot be written to {target}: name a file that ends in "
            f"{', '.join(suffixes[:-1])} or {suffixes[-1]}{cure}."
        )
    if not target.parent.is_dir():
        raise ConfigError(f"predictions cannot be written to {target}: the folder {target.parent} does not exist.")
    if target.is_dir():
        raise ConfigError(f"predictions cannot be written to {target}: it is a folder, so name a file.")
    if target.suffix in TABLES:
        _pyarrow()
    return target


@dataclass(frozen=True, eq=False)
class PredictionTable:
    """The columns of a table of predictions: id, class name and probability, or a probability for every class."""

    ids: Ids | None
    class_names: tuple[str, ...] | None
    columns: int | None
    """The number of classes, or labels, with a column each; None: the likeliest class and its probability."""

    @property
    def schema(self) -> Any:
        """The names and types of the columns."""
        pa = _pyarrow()
        vertex = pa.large_string() if isinstance(self.ids, TextIds) else pa.int64()
        if self.columns is not None:
            names = self.class_names or tuple(map(str, range(self.columns)))
            return pa.schema([("id", vertex), *((name if name != "id" else "id=id", pa.float32()) for name in names)])
        predicted = pa.int64() if self.class_names is None else pa.large_string()
        return pa.schema([("id", vertex), ("class", predicted), ("probability", pa.float32())])

    def rows(self, rows: Rows, begin: int) -> Any:
        """The Arrow table of the rows from ``begin`` on."""
        pa = _pyarrow()
        ids = id_column(self.ids, begin, begin + len(rows))
        if self.columns is not None:
            columns = [pa.array(np.ascontiguousarray(column)) for column in rows.T]
            return pa.Table.from_arrays([ids, *columns], schema=self.schema)
        classes = pa.array(rows["class"].astype(np.int64))
        if self.class_names is not None:
            classes = pa.array(self.class_names, pa.large_string()).take(classes)
        probability = pa.array(np.ascontiguousarray(rows["probability"]))
        return pa.Table.from_arrays([ids, classes, probability], schema=self.schema)


def id_column(ids: Ids | None, begin: int, end: int) -> Any:
    """The ids of a range of vertices as an Arrow array; their numbers where there are no others."""
    pa = _pyarrow()
    if ids is None:
        return pa.array(np.arange(begin, end, dtype=np.int64))
    if not isinstance(ids, TextIds):
        return pa.array(ids.rows(begin, end))
    buffers = [None, *map(pa.py_buffer, ids.parts(begin, end))]
    return pa.Array.from_buffers(pa.large_string(), end - begin, buffers)


class PredictionFile:
    """Writes rows in the graph's order to a file, with ``ids`` in it or beside it; ``table``: as those columns."""

    def __init__(
        self,
        path: str | PathLike[str],
        form: PredictionForm,
        name: str,
        ids: Ids | None = None,
        table: PredictionTable | None = None,
    ) -> None:
        self._target, self._form, self._ids = check_target(path, name), form, ids
        self._open = ExitStack()
        columnar = self._target.suffix in TABLES
        self._ids_target = None if ids is None or columnar else self._target.with_suffix(".ids.npy")
        self._check_room(columnar)
        with self._explained(), ExitStack() as opened:
            self._file = opened.enter_context(UnnamedFile(self._target, 0 if columnar else _npy_bytes(form)))
            made: _Writer
            if table is not None:
                made = _TableWriter(self._file.file, table, self._target.suffix)
            elif columnar:
                made = _ParquetWriter(self._file.file, form, name, ids)
            else:
                made = _NpyWriter(self._file.file, form)
            self._writer = opened.enter_context(_closed(made))
            self._open = opened.pop_all()

    def write(self, blocks: Iterable[Rows], tell: ReportRows | None = None) -> Written:
        """Write all rows, given block by block, and put the file in place; ``tell`` is called after each slab."""
        done = 0
        for slab in slabs(blocks, self._form):
            with self._explained():
                self._writer.write(slab, done)
                self._file.settle()
            done += len(slab)
            if tell is not None:
                tell(done, self._form.num_rows)
        assert done == self._form.num_rows, f"{done} rows were written, and {self._form.num_rows} were expected"
        with self._explained():
            self._writer.finish()
            self._put_ids_in_place()
            self._file.put_in_place()
        return Written(self._target, done, self._ids_target)

    def close(self) -> None:
        """Close the file; if not all rows were written, it is removed."""
        self._open.close()

    def _put_ids_in_place(self) -> None:
        if self._ids_target is None or self._ids is None:
            return
        form = PredictionForm(self._form.num_rows, None, self._ids.dtype)
        with UnnamedFile(self._ids_target, _npy_bytes(form)) as draft:
            writer = _NpyWriter(draft.file, form)
            for begin in range(0, form.num_rows, SLAB_ROWS):
                writer.write(self._ids.rows(begin, min(form.num_rows, begin + SLAB_ROWS)), begin)
                draft.settle()
            draft.put_in_place()

    def _check_room(self, columnar: bool) -> None:
        needed = _parquet_bytes(self._form) if columnar else _npy_bytes(self._form)
        if self._ids_target is not None and self._ids is not None:
            needed += _npy_bytes(PredictionForm(self._form.num_rows, None, self._ids.dtype))
        with self._explained():
            free = shutil.disk_usage(self._target.parent).free
        if free < needed:
            raise DataError(
                f"predictions cannot be written to {self._target}: they take {format_bytes(needed)}, and "
                f"{format_bytes(free)} are free there. Make room, or name another file."
            )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise cannot_write(
                f"predictions cannot be written to {self._target}: {error.strerror or error}. Make room, or name "
                "another file.",
                error,
            ) from error


class _Writer(Protocol):
    def write(self, rows: Rows, begin: int) -> None: ...

    def finish(self) -> None: ...

    def close(self) -> None: ...


@contextmanager
def _closed(writer: _Writer) -> Iterator[_Writer]:
    try:
        yield writer
    finally:
        writer.close()


class _NpyWriter:
    def __init__(self, file: BinaryIO, form: PredictionForm) -> None:
        self._file = file
        header = {"descr": np.lib.format.dtype_to_descr(form.dtype), "fortran_order": False, "shape": form.shape}
        np.lib.format.write_array_header_1_0(file, header)

    def write(self, rows: Rows, begin: int) -> None:
        self._file.write(np.ascontiguousarray(rows).data)

    def finish(self) -> None:
        self._file.truncate()  # more may be reserved than the header takes

    def close(self) -> None:
        pass


class _ParquetWriter:
    def __init__(self, file: BinaryIO, form: PredictionForm, name: str, ids: Ids | None) -> None:
        pa = self._pa = _pyarrow()
        from pyarrow import parquet

        self._ids, self._columns = ids, form.columns
        value = pa.from_numpy_dtype(form.dtype)
        values = value if form.columns is None else pa.list_(value, form.columns)
        vertex = pa.large_string() if isinstance(ids, TextIds) else pa.int64()
        self._schema = pa.schema([("vertex", vertex), (name, values)])
        # Fractions and ids hardly repeat: building a dictionary of them takes longer than all else.
        self._writer = parquet.ParquetWriter(file, self._schema, use_dictionary=[name], write_page_checksum=True)

    def write(self, rows: Rows, begin: int) -> None:
        column = self._pa.array(rows.reshape(-1))
        if self._columns is not None:
            column = self._pa.FixedSizeListArray.from_arrays(column, self._columns)
        vertices = id_column(self._ids, begin, begin + len(rows))
        self._writer.write_table(self._pa.Table.from_arrays([vertices, column], schema=self._schema))

    def finish(self) -> None:
        self._writer.close()

    def close(self) -> None:
        with suppress(Exception):  # an incomplete file is removed
            self._writer.close()


class _TableWriter:
    def __init__(self, file: BinaryIO, table: PredictionTable, suffix: str) -> None:
        self._table = table
        if suffix == ".parquet":
            from pyarrow import parquet

            names = [column.name for column in table.schema if column.name == "class"]
            self._writer: Any = parquet.ParquetWriter(
                file, table.schema, use_dictionary=names, write_page_checksum=True
            )
        else:
            from pyarrow import csv

            self._writer = csv.CSVWriter(_pyarrow().PythonFile(file, mode="w"), table.schema)

    def write(self, rows: Rows, begin: int) -> None:
        self._writer.write_table(self._table.rows(rows, begin))

    def finish(self) -> None:
        self._writer.close()

    def close(self) -> None:
        with suppress(Exception):  # a file that is removed needs no footer
            self._writer.close()


def _npy_bytes(form: PredictionForm) -> int:
    return HEADER_BYTES + form.num_bytes


def _parquet_bytes(form: PredictionForm) -> int:
    """At most the bytes of a file: fractions hardly shrink, whole numbers may shrink to nearly nothing."""
    return form.num_bytes if form.dtype.kind == "f" else 0


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(
            'a .parquet or .csv file needs the package pyarrow: install it by `pip install "dorylus[tables]"`, or '
            "write .npy."
        ) from error
    return pyarrow
