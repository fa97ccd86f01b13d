"""Which files a user means by one path, many, a pattern or a folder, and which reader each of them needs."""

import glob
from collections.abc import Callable, Iterable
from os import PathLike, fspath
from pathlib import Path

from dorylus.errors import DataError, unknown_name
from dorylus.graph.ingest.readers.arrow_file import ArrowEdges
from dorylus.graph.ingest.readers.binary import BinaryEdges
from dorylus.graph.ingest.readers.edge_file import EdgeFile
from dorylus.graph.ingest.readers.npy import NpyEdges, NpzEdges
from dorylus.graph.ingest.readers.options import ReadOptions
from dorylus.graph.ingest.readers.packed import UNPACK, packing
from dorylus.graph.ingest.readers.parquet import ParquetEdges
from dorylus.graph.ingest.readers.text import TextEdges

READERS: dict[str, Callable[[Path, ReadOptions], EdgeFile]] = {
    "text": TextEdges,
    "parquet": ParquetEdges,
    "arrow": ArrowEdges,
    "npy": NpyEdges,
    "npz": NpzEdges,
    "binary": BinaryEdges,
}
SUFFIXES = {
    "text": (".txt", ".csv", ".tsv", ".tab", ".edges", ".edgelist", ".el", ".wel", ".snap"),
    "parquet": (".parquet", ".pq"),
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "npy": (".npy",),
    "npz": (".npz",),
    "binary": (".bin", ".i32", ".i64"),
}
FORMATS = {suffix: name for name, suffixes in SUFFIXES.items() for suffix in suffixes}


def find_files(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """Every file that is meant, those of a pattern or a folder in sorted order."""
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    found = [file for path in given for file in _files_of(fspath(path))]
    if not found:
        raise DataError("no file of edges is given. Name one, many, a pattern or a folder.")
    return found


def reader_of(path: Path, format: str | None, options: ReadOptions) -> EdgeFile:
    """The file, looked at by the reader of its format."""
    try:
        with open(path, "rb") as file:
            if not file.read(1):
                raise DataError(f"{path} is empty. Leave it out, or write it again.")
        return READERS[format or _format_of(path)](path, options)
    except OSError as error:
        raise DataError(
            f"cannot read {path}: {error.strerror or error}. Check the path and its permissions."
        ) from error


def check_format(format: str | None) -> None:
    """Refuse a format that nobody knows."""
    if format is not None and format not in READERS:
        raise DataError(unknown_name("format", format, READERS))


def _files_of(path: str) -> list[Path]:
    if Path(path).is_dir():
        # Hadoop and Spark mark a finished folder by a file called _SUCCESS.
        files = sorted(file for file in Path(path).iterdir() if file.is_file() and file.name[0] not in "._")
        if not files:
            raise DataError(f"the folder {path} holds no file. Name the folder that the edges are in.")
        return files
    if Path(path).exists() or not glob.has_magic(path):
        if not Path(path).exists():
            raise DataError(f"there is no file {path}. Check the path.")
        if not Path(path).is_file():
            raise DataError(
                f"{path} is a pipe or a device, and edges are read more than once. Write them to a file, and name it."
            )
        return [Path(path)]
    files = sorted(Path(file) for file in glob.glob(path) if Path(file).is_file())
    if not files:
        raise DataError(f"no file is called like {path}. Check the pattern.")
    return files


def _format_of(path: Path) -> str:
    packed = packing(path)
    inner = path.with_suffix("") if packed else path
    suffix = inner.suffix.lower()
    if packed and suffix not in FORMATS:
        return "text"
    if suffix not in FORMATS:
        found = f"the unknown suffix {suffix!r}" if suffix else "no suffix"
        raise DataError(
            f"{path} has {found}. The known ones are {', '.join(FORMATS)}, and for packed text {', '.join(UNPACK)}: "
            f"rename it, or pass format= ({', '.join(READERS)})."
        )
    if packed and FORMATS[suffix] != "text":
        raise DataError(f"{path}: only text is read from packed files. Unpack it first.")
    return FORMATS[suffix]
