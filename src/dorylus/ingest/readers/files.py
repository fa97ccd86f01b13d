"""Which files a user means by one path, many, a pattern or a folder, and which reader each of them needs."""

import glob
import os
from collections.abc import Callable, Iterable
from os import PathLike, fspath
from pathlib import Path

from dorylus.errors import DataError, given, unknown_name
from dorylus.graph import STORE
from dorylus.ingest.readers.arrow_file import ArrowEdges
from dorylus.ingest.readers.binary import BinaryEdges
from dorylus.ingest.readers.edge_file import EdgeFile, NoEdgesError
from dorylus.ingest.readers.npy import NpyEdges, NpzEdges
from dorylus.ingest.readers.options import ReadOptions
from dorylus.ingest.readers.parquet import ParquetEdges
from dorylus.ingest.readers.text import TextFileEdges
from dorylus.ingest.readers.text_form import UNPACK, packing

READERS: dict[str, Callable[[Path, ReadOptions], EdgeFile]] = {
    "text": TextFileEdges,
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
VERSIONED = {"_delta_log": "Delta Lake", ".hoodie": "Hudi"}
"""The marks of tables whose folders hold more than the table."""

FORMATS = {suffix: name for name, suffixes in SUFFIXES.items() for suffix in suffixes}


def find_files(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """Every file that is meant, those of a pattern or a folder in sorted order, none twice."""
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    found = [file for path in given for file in _files_of(fspath(path))]
    if not found:
        raise DataError("no file of edges is given. Name one, many, a pattern or a folder.")
    places: dict[str, Path] = {}
    for file in found:
        first = places.setdefault(os.path.realpath(file), file)
        if first is not file:
            same = f"{file} is named twice" if first == file else f"{first} and {file} are one file"
            cure = "Name it once" if first == file else "Leave one of both out"
            raise DataError(f"{same}: its edges would be read twice. {cure}.")
    return found


def reader_of(path: Path, format: str | None, options: ReadOptions) -> EdgeFile:
    """The file, looked at by the reader of its format; NoEdgesError where it holds none."""
    try:
        with open(path, "rb") as file:
            if not file.read(1):
                raise NoEdgesError(f"{path} is empty. Leave it out, or write it again.")
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
    if not path:
        raise DataError("a path of edges is empty: name a file or a folder, '.' for this one.")
    if "\0" in path:
        raise DataError(f"there is no file {path!r}: a path holds no NUL byte. Check the path.")
    if not os.path.lexists(path) and glob.has_magic(path):
        matches = sorted(Path(match) for match in glob.glob(path, recursive=True))
        named_so = os.path.basename(path)[:1] in ("_", ".")
        chosen = [match for match in matches if named_so or not _is_hidden(match.name)]
        if not chosen:
            raise DataError(f"no file is called like {path}. Check the pattern.")
        if "**" in path:  # what is in a folder matches too
            chosen = [match for match in chosen if not match.is_dir()]
        return [file for match in chosen for file in _files_of_match(match)]
    return _files_of_match(Path(path))


def _files_of_match(path: Path) -> list[Path]:
    """The file, or those of the folder."""
    if not path.is_dir():
        return [_need_file(path)]
    if not (files := _in_folder(path, ())):
        raise DataError(f"the folder {path} holds no file. Name the folder that the edges are in.")
    return files


def _in_folder(folder: Path, above: tuple[str, ...]) -> list[Path]:
    """The files of a folder and of those in it, by the order of their relative paths."""
    place = os.path.realpath(folder)
    if place in above:
        raise DataError(f"{folder} leads back to the folder {place}, which it is in: remove that link.")
    try:
        entries = sorted(folder.iterdir())
    except OSError as error:
        raise DataError(
            f"cannot read the folder {folder}: {error.strerror or error}. Check its permissions."
        ) from error
    if {STORE.manifest, "indptr.bin"} <= {entry.name for entry in entries}:
        raise DataError(
            f"{folder} is a store, which holds no files of edges: move it out of the folder, or name the files."
        )
    for entry in entries:
        if entry.name in VERSIONED:
            raise DataError(
                f"the folder {folder} holds {entry.name}: it is a {VERSIONED[entry.name]} table, which keeps files of "
                "older versions beside those of the newest. Export that to a folder of its own, and name it."
            )
    found: list[Path] = []
    for entry in entries:
        if _is_hidden(entry.name):
            continue
        found += _in_folder(entry, (*above, place)) if entry.is_dir() else [_need_file(entry)]
    return found


def _is_hidden(name: str) -> bool:
    """Whether it is a mark of another program, or work in progress; by the rule that Spark has.

    Hadoop and Spark mark a finished folder by a file called _SUCCESS; a folder _day=1 holds the rows of a column _day.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _need_file(path: Path) -> Path:
    """The path, where a file is there that can be read more than once."""
    if path.is_file():
        return path
    if path.is_symlink() and not path.exists():
        raise DataError(f"{path} is a link to something that is not there. Mend it, or remove it.")
    if not path.exists():
        raise DataError(f"there is no file {path}. Check the path.")
    raise DataError(
        f"{path} is a pipe, a socket or a device, and edges are read more than once. Write them to a file, and name it."
    )


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
            f"rename it, take it out of the folder, or pass {given('format', ...)} ({', '.join(READERS)})."
        )
    if packed and FORMATS[suffix] != "text":
        raise DataError(f"{path}: only text is read from packed files. Unpack it first.")
    return FORMATS[suffix]
