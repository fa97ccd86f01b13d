"""``open_edges``: the files of a path, pattern or folder, a reader for each, and their edges as one source."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from dorylus.errors import DataError, given, unknown_value
from dorylus.graph import STORE
from dorylus.ingest.batches import EdgeBatch, EdgeFile, NoEdgesError, ReaderMemory
from dorylus.ingest.readers.array_file import BinaryEdges, NpyEdges, NpzEdges
from dorylus.ingest.readers.arrow_ipc import ArrowEdges
from dorylus.ingest.readers.input_file import DECOMPRESSORS, UnchangedFile, compression
from dorylus.ingest.readers.options import VERTICES, ReadOptions
from dorylus.ingest.readers.parquet import ParquetEdges
from dorylus.ingest.readers.text import TextFileEdges

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
"""Files of tables whose folders also hold older versions."""

FORMATS = {suffix: name for name, suffixes in SUFFIXES.items() for suffix in suffixes}


def find_files(paths: str | PathLike[str] | Iterable[str | PathLike[str]]) -> list[Path]:
    """The files of all paths, those of a pattern or a folder in sorted order; a file named twice is refused."""
    given = [paths] if isinstance(paths, str | PathLike) else list(paths)
    files = [file for path in given for file in _files_of(fspath(path))]
    if not files:
        raise DataError("no file of edges is given. Name one, many, a pattern or a folder.")
    by_real_path: dict[str, Path] = {}
    for file in files:
        first = by_real_path.setdefault(os.path.realpath(file), file)
        if first is not file:
            same = f"{file} is named twice" if first == file else f"{first} and {file} are one file"
            cure = "Name it once" if first == file else "Leave one of the two out"
            raise DataError(f"{same}: its edges would be read twice. {cure}.")
    return files


def reader_of(path: Path, format: str | None, options: ReadOptions) -> EdgeFile:
    """The reader of a file by its format; NoEdgesError if the file has no edges."""
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
    """Refuse an unknown format."""
    if format is not None and format not in READERS:
        raise DataError(unknown_value("format", format, READERS))


def _files_of(path: str) -> list[Path]:
    if not path:
        raise DataError("a path of edges is empty: name a file or a folder, '.' for this one.")
    if "\0" in path:
        raise DataError(f"there is no file {path!r}: a path holds no NUL byte. Check the path.")
    if not os.path.lexists(path) and glob.has_magic(path):
        matches = sorted(Path(match) for match in glob.glob(path, recursive=True))
        hidden_requested = os.path.basename(path)[:1] in ("_", ".")
        chosen = [match for match in matches if hidden_requested or not _is_hidden(match.name)]
        if not chosen:
            raise DataError(f"no file is called like {path}. Check the pattern.")
        if "**" in path:  # the pattern also matches the files in a folder
            chosen = [match for match in chosen if not match.is_dir()]
        return [file for match in chosen for file in _files_of_match(match)]
    return _files_of_match(Path(path))


def _files_of_match(path: Path) -> list[Path]:
    """The file itself, or the files of a folder."""
    if not path.is_dir():
        return [_check_file(path)]
    if not (files := _in_folder(path, ())):
        raise DataError(f"the folder {path} holds no file. Name a folder with files, or a file.")
    return files


def _in_folder(folder: Path, above: tuple[str, ...]) -> list[Path]:
    """The files of a folder and its subfolders, in the order of their relative paths."""
    real_path = os.path.realpath(folder)
    if real_path in above:
        raise DataError(f"{folder} leads back to the folder {real_path}, which it is in: remove that link.")
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
    files: list[Path] = []
    for entry in entries:
        if _is_hidden(entry.name):
            continue
        files += _in_folder(entry, (*above, real_path)) if entry.is_dir() else [_check_file(entry)]
    return files


def _is_hidden(name: str) -> bool:
    """Whether a name marks a file of another program, or an unfinished one; by the rule of Spark.

    Hadoop and Spark mark a finished folder by a file _SUCCESS; a folder _day=1 holds the rows of a column _day.
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")


def _check_file(path: Path) -> Path:
    """The path, refused unless it is a regular file, which can be read more than once."""
    if path.is_file():
        return path
    if path.is_symlink() and not path.exists():
        raise DataError(f"{path} is a broken link. Correct it, or remove it.")
    if not path.exists():
        raise DataError(f"there is no file {path}. Check the path.")
    raise DataError(
        f"{path} is a pipe, a socket or a device, and edges are read more than once. Write them to a file, and name it."
    )


def _format_of(path: Path) -> str:
    compressed = compression(path)
    inner = path.with_suffix("") if compressed else path
    suffix = inner.suffix.lower()
    if compressed and suffix not in FORMATS:
        return "text"
    if suffix not in FORMATS:
        state = f"the unknown suffix {suffix!r}" if suffix else "no suffix"
        raise DataError(
            f"{path} has {state}. The known ones are {', '.join(FORMATS)}, and for compressed text "
            f"{', '.join(DECOMPRESSORS)}: rename it, take it out of the folder, or pass {given('format', ...)} "
            f"({', '.join(READERS)})."
        )
    if compressed and FORMATS[suffix] != "text":
        raise DataError(f"{path}: only text may be compressed. Decompress it first.")
    return FORMATS[suffix]


BUFFERS_BYTES = 32 << 20
"""Memory that any reader may use: every ingest reserves it."""


class FileEdges:
    """The edges of several files in sequence: an :class:`EdgeSource` with the kind of its ends.

    ``left_out`` are files without edges; ``unchecked`` are Parquet files without page checksums.
    """

    def __init__(self, files: list[EdgeFile], states: Iterable[UnchangedFile], left_out: Sequence[Path] = ()) -> None:
        self._files, self.left_out = files, list(left_out)
        self.num_files = len(files)
        self._states = list(states)
        self.total_bytes: int | None = sum(state.size for state in self._states)
        self.unchecked = [file.path for file in files if getattr(file, "has_checksums", None) is False]
        self.strings = files[0].strings
        self.weighted = files[0].weighted
        counts = [file.num_edges for file in files]
        self.num_edges = None if None in counts else sum(count or 0 for count in counts)
        held: ReaderMemory = max(
            (getattr(file, "held", ReaderMemory()) for file in files), key=lambda each: each.num_bytes
        )
        self.held = held if held.num_bytes > BUFFERS_BYTES else ReaderMemory()
        for file in files[1:]:
            _check_same_kind(files[0], file)

    def __iter__(self) -> Iterator[EdgeBatch]:
        before = 0
        for file, state in zip(self._files, self._states, strict=True):
            state.check()
            try:
                for batch in file:
                    yield batch._replace(bytes_read=before + min(batch.bytes_read, state.size))
                    state.check()
            except (DataError, OSError):
                state.check()  # report a file that was truncated while it was read as changed, not as damaged
                raise
            before += state.size


def open_edges(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    format: str | None = None,
    **options: Any,
) -> FileEdges:
    """The edges at ``paths``: one path, several, a pattern, or a folder with its subfolders, in sorted order.

    Of several files, those without edges are skipped.

    Options are those of :meth:`ReadOptions.of`.
    ``ids`` is "dense" for numbers from 0, "map" for any whole numbers, "strings" for names; "auto" is
    "strings" for files with names, else "dense". ``columns`` are those of source and destination, and of the weight if
    there is one, by name or by position from 0. ``dtype`` is that of raw binary files. ``skip_lines`` lines of a text
    are skipped.
    """
    check_format(format)
    return _open_files(paths, format, ReadOptions.of(**options))


def open_vertices(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    format: str | None = None,
    header: bool | None = None,
    ids: str = "map",
) -> FileEdges:
    """The vertices listed at ``paths``, one id per line or row in the first column, as edges from each to itself.

    A .npy file has one dimension. Names in text may contain blanks, but no tabs or commas.
    """
    check_format(format)
    options = ReadOptions.of(header=header, ids=ids)
    return _open_files(paths, format, replace(options, columns=VERTICES))


def _open_files(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]], format: str | None, options: ReadOptions
) -> FileEdges:
    files: list[tuple[EdgeFile, UnchangedFile]] = []
    empty: dict[Path, NoEdgesError] = {}
    for path in find_files(paths):
        state = UnchangedFile(path)
        try:
            files.append((reader_of(path, format, options), state))
        except NoEdgesError as error:
            empty[path] = error
    if files:
        return FileEdges([file for file, _ in files], [state for _, state in files], list(empty))
    first = next(iter(empty.values()))
    if len(empty) == 1:
        raise first
    raise DataError(f"none of the {len(empty):,} files holds an edge. Of the first: {first}") from first


def _check_same_kind(first: EdgeFile, other: EdgeFile) -> None:
    if first.strings != other.strings:
        kinds = [f"{file.path} holds {'names' if file.strings else 'numbers'}" for file in (first, other)]
        raise DataError(
            f"{' and '.join(kinds)}. Files of one graph have the same ids: pass {given('ids', 'strings')} to read all "
            "as names."
        )
    if first.weighted != other.weighted:
        kinds = [f"{file.path} has {'' if file.weighted else 'no '}weights" for file in (first, other)]
        raise DataError(f"{' and '.join(kinds)}. Give weights to all or, by {given('columns', (0, 1))}, to none.")
