"""Edges in array files, read in blocks: NumPy's .npy and .npz, and raw binary pairs.

A .npy file holds an array [E, 2] or [2, E]. An .npz archive holds such an array as `edges` or `edge_index`, or arrays
`source` and `destination`, and an optional `weight`. In a 2 by 2 array the rows are the edges. Raw binary files hold
pairs of little-endian numbers without a header.
"""

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy_format

from dorylus.errors import DataError, given
from dorylus.graph import AnyArray
from dorylus.ingest.batches import MAX_EDGES, EdgeBatch, NoEdgesError, locate_by_row
from dorylus.ingest.readers.input_file import PageCache
from dorylus.ingest.readers.options import VERTICES, ReadOptions, check_integer_type, checked_ids, checked_weights

BATCH_ROWS = MAX_EDGES // 2  # a batch of raw numbers, its ends and the ends before it are in memory at once
MAGIC_BYTES = 64 << 10
_MOST_DIMENSIONS = 64  # the most that NumPy supports


class NpyHeader(NamedTuple):
    """The header of a .npy array: type, shape, order, and the offset of its numbers."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    begin: int

    @property
    def num_bytes(self) -> int:
        """The bytes of the numbers."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize


def read_header(file: IO[bytes], path: Path, what: str = "it") -> NpyHeader:
    """The header at the start of ``file``."""
    start = io.BytesIO(file.read(MAGIC_BYTES))
    try:
        version = npy_format.read_magic(start)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"version {version} of the format")
        read = npy_format.read_array_header_1_0 if version == (1, 0) else npy_format.read_array_header_2_0
        shape, fortran, dtype = read(start)
        if not all(0 <= size < 1 << 63 for size in shape) or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("a shape that no array has")
    except (ValueError, TypeError, SyntaxError, RecursionError, OverflowError, TokenError) as error:
        raise DataError(
            f"cannot read {path} as a NumPy file: {what} has an invalid header ({error}). Save it with np.save."
        ) from error
    return NpyHeader(dtype, shape, fortran, start.tell())


PIECE_BYTES = 1 << 20
SHAPES = "Edges are of shape [edges, 2] or [2, edges]"


class Vector(NamedTuple):
    """One end of every edge: a column of rows of ``width`` numbers that start at byte ``begin`` of a member."""

    member: str
    header: NpyHeader
    begin: int
    num_rows: int
    width: int
    column: int


class NpyEdges:
    """The edges of a .npy file."""

    strings = False

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        self._vectors = self._find()
        self.weighted = len(self._vectors) == 3
        self.num_edges: int | None = self._vectors[0].num_rows
        if self.num_edges == 0:
            raise NoEdgesError(f"{path} holds no edge. Leave it out, or write it again.")
        for vector, what in zip(self._vectors, ("source", "destination"), strict=False):
            check_integer_type(path, vector.member or f"its {what}", vector.header.dtype)

    def __iter__(self) -> Iterator[EdgeBatch]:
        size, count = self.path.stat().st_size, self._vectors[0].num_rows
        with ExitStack() as stack:
            cache = stack.enter_context(PageCache(self.path))
            files = [stack.enter_context(self._open(vector.member)) for vector in self._vectors]
            for file, vector in zip(files, self._vectors, strict=True):
                self._seek(file, vector.begin)
            for row in range(0, count, BATCH_ROWS):
                rows = min(BATCH_ROWS, count - row)
                yield self._batch(files, row, rows, size * (row + rows) // count)
                cache.drop()  # the whole file: both ends, and members of an archive, may be far apart

    def _batch(self, files: list[IO[bytes]], row: int, rows: int, bytes_read: int) -> EdgeBatch:
        if self._vectors[0].width == 2:  # both ends are in one row: read it once
            pairs = self._read(files[0], self._vectors[0], rows)
            ends = [pairs[:, vector.column] for vector in self._vectors[:2]]
        else:
            ends = [self._read(file, v, rows)[:, 0] for file, v in zip(files[:2], self._vectors[:2], strict=True)]
        source, destination = (checked_ids(self.path, each, row, self._options) for each in ends)
        weight = None
        if self.weighted:
            weight = checked_weights(self.path, self._read(files[2], self._vectors[2], rows)[:, 0], row)
        return EdgeBatch(source, destination, weight, bytes_read, locate_by_row(self.path, row))

    def _read(self, file: IO[bytes], vector: Vector, rows: int) -> AnyArray:
        values = np.empty((rows, vector.width), vector.header.dtype)
        whole = values.reshape(-1).view(np.uint8).data
        for begin in range(0, whole.nbytes, PIECE_BYTES):
            self._fill(file, whole[begin : begin + PIECE_BYTES])
        return values

    def _fill(self, file: IO[bytes], piece: memoryview) -> None:
        """Read one piece; decompressing an archive takes several times its size."""
        try:
            data = file.read(piece.nbytes)
        except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise DataError(f"{self.path} is damaged: {error}. Copy it again.") from error
        if len(data) != piece.nbytes:
            raise DataError(f"{self.path} ends early: it was truncated while it was read. Copy it again.")
        piece[:] = data

    def _find(self) -> tuple[Vector, ...]:
        if self._options.columns not in (None, (0, 1), VERTICES):
            raise DataError(f"{self.path} holds pairs and no columns: leave {given('columns')} out.")
        with self._open("") as file:
            header = read_header(file, self.path)
        check_integer_type(self.path, "the array", header.dtype, self._options.ids_are)
        if self.path.stat().st_size != header.begin + header.num_bytes:
            raise DataError(
                f"{self.path} has {self.path.stat().st_size:,} bytes, but its header describes an array that ends at "
                f"{header.begin + header.num_bytes:,}. Copy it again."
            )
        if self._options.columns == VERTICES and len(header.shape) == 1:
            return (Vector("", header, header.begin, header.shape[0], 1, 0),) * 2
        if self._options.columns == VERTICES:
            raise DataError(f"{self.path} has shape {list(header.shape)}. A list of vertices is of shape [vertices].")
        return pair_of(self.path, "", header)

    def _open(self, member: str) -> IO[bytes]:
        return open(self.path, "rb")

    def _seek(self, file: IO[bytes], begin: int) -> None:
        file.seek(begin)


class NpzEdges(NpyEdges):
    """The edges of an .npz archive."""

    def _find(self) -> tuple[Vector, ...]:
        if self._options.columns is not None:
            raise DataError(f"{self.path} holds arrays by name and no columns: leave {given('columns')} out.")
        try:
            with zipfile.ZipFile(self.path) as archive:
                names = [name.removesuffix(".npy") for name in archive.namelist()]
            headers = {name: self._header(name) for name in names}
        except (OSError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
            raise DataError(f"cannot read {self.path} as an archive of arrays: {error}. Copy it again.") from error
        for whole in ("edges", "edge_index"):
            if whole in headers:
                ends, weight = pair_of(self.path, whole, headers[whole]), self._single(headers, ("weight",))
                if weight and weight[0].num_rows != ends[0].num_rows:
                    raise DataError(
                        f"{self.path}: weight has {weight[0].num_rows:,} numbers for {ends[0].num_rows:,} edges. Give "
                        "one per edge."
                    )
                return (*ends, *weight)
        vectors = self._single(headers, ("source", "destination", "weight"))
        if [vector.member for vector in vectors[:2]] != ["source", "destination"]:
            raise DataError(
                f"{self.path} has the arrays {', '.join(names) or 'nothing'}. An archive of edges has edges or "
                "edge_index, or source and destination, and optionally weight."
            )
        return vectors

    def _single(self, headers: dict[str, NpyHeader], names: tuple[str, ...]) -> tuple[Vector, ...]:
        vectors = {name: headers[name] for name in names if name in headers}
        for name, header in vectors.items():
            if len(header.shape) != 1 or header.dtype.kind not in "iuf":
                raise DataError(
                    f"{self.path}: {name} is {header.dtype} of shape {list(header.shape)}. Give one number per edge."
                )
        if len({header.shape for header in vectors.values()}) > 1:
            raise DataError(f"{self.path}: {', '.join(vectors)} differ in length. Give one of each per edge.")
        return tuple(Vector(name, header, header.begin, header.shape[0], 1, 0) for name, header in vectors.items())

    def _header(self, name: str) -> NpyHeader:
        with self._open(name) as file:
            return read_header(file, self.path, name)

    def _open(self, member: str) -> IO[bytes]:
        archive = zipfile.ZipFile(self.path)
        try:
            return archive.open(f"{member}.npy")
        finally:
            archive.close()  # the member keeps the file open while it is read

    def _seek(self, file: IO[bytes], begin: int) -> None:
        # By reading: after a seek, an archive's member is no longer compared with its checksum.
        while begin > 0 and (part := file.read(min(begin, PIECE_BYTES))):
            begin -= len(part)


def pair_of(path: Path, member: str, header: NpyHeader) -> tuple[Vector, Vector]:
    """Both ends of every edge in one array."""
    shape, fortran, dtype = header.shape, header.fortran, header.dtype
    if len(shape) != 2 or 2 not in shape:
        raise DataError(f"{path}: {member or 'the array'} has shape {list(shape)}. {SHAPES}.")
    check_integer_type(path, member or "the array", dtype)
    by_edge = shape[1] == 2
    count = shape[0] if by_edge else shape[1]
    if by_edge != fortran:  # source and destination of an edge are adjacent
        first, second = (Vector(member, header, header.begin, count, 2, column) for column in (0, 1))
    else:
        half = count * dtype.itemsize
        first, second = (Vector(member, header, header.begin + side, count, 1, 0) for side in (0, half))
    return first, second


DTYPE_BY_SUFFIX: dict[str, np.dtype[Any]] = {".i32": np.dtype("<i4"), ".i64": np.dtype("<i8")}


class BinaryEdges:
    """The edges of a raw binary file."""

    strings = False
    weighted = False

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        self._options = options
        self._dtype = _binary_dtype(path, options)
        if options.columns is not None:
            raise DataError(f"{path} is raw binary, which holds pairs and no columns: leave {given('columns')} out.")
        pair, size = 2 * self._dtype.itemsize, path.stat().st_size
        if size % pair:
            raise DataError(
                f"{path} has {size:,} bytes, which is not a whole number of pairs of {self._dtype.name} ({pair} bytes "
                f"each). Give its type by {given('dtype', ...)}, or copy it again."
            )
        self.num_edges: int | None = size // pair

    def __iter__(self) -> Iterator[EdgeBatch]:
        row = 0
        with open(self.path, "rb", buffering=0) as file, PageCache(self.path) as cache:
            while pairs := _read_up_to(file, BATCH_ROWS * 2 * self._dtype.itemsize):
                ends = np.frombuffer(pairs, self._dtype).reshape(-1, 2)
                source, destination = (checked_ids(self.path, ends[:, end], row, self._options) for end in (0, 1))
                cache.behind(file.tell())
                yield EdgeBatch(source, destination, None, file.tell(), locate_by_row(self.path, row))
                row += len(ends)
                del pairs, ends, source, destination  # free them before the next are read


def _read_up_to(file: Any, count: int) -> bytearray:
    """The next ``count`` bytes, or the rest of the file: a raw read may return fewer bytes than requested."""
    content, done = bytearray(count), 0
    with memoryview(content) as room:
        while done < count and (got := file.readinto(room[done:])):
            done += got
    del content[done:]
    return content


def _binary_dtype(path: Path, options: ReadOptions) -> np.dtype[Any]:
    dtype = DTYPE_BY_SUFFIX.get(path.suffix.lower()) if options.dtype is None else options.dtype
    if dtype is None:
        raise DataError(
            f"{path} is raw binary, whose type cannot be detected. Give {given('dtype', 'int32')} or "
            f"{given('dtype', 'int64')}, or name the file .i32 or .i64."
        )
    return dtype
