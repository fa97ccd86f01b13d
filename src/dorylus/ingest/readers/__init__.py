"""Files of edges, read in batches of bounded size: one module a format.

Text (CSV, TSV, SNAP; packed or not), Parquet, Arrow, NumPy and raw binary. Every file is looked at before any is read.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from dorylus.errors import DataError, given
from dorylus.ingest.batches import EdgeBatch, Held
from dorylus.ingest.readers.edge_file import EdgeFile, NoEdgesError, Unchanged
from dorylus.ingest.readers.files import check_format, find_files, reader_of
from dorylus.ingest.readers.options import VERTICES, ReadOptions

BUFFERS_BYTES = 32 << 20
"""So much any file may hold while it is read: every ingest has room for it."""

__all__ = ["FileEdges", "open_edges", "open_vertices"]


class FileEdges:
    """The edges of files, one after another: an :class:`EdgeSource` that also says what its ends are.

    ``left_out`` are those that hold no edge; ``unchecked`` those of Parquet whose pages have no checksums.
    """

    def __init__(self, files: list[EdgeFile], states: Iterable[Unchanged], left_out: Sequence[Path] = ()) -> None:
        self._files, self.left_out = files, list(left_out)
        self.num_files = len(files)
        self._states = list(states)
        self.total_bytes: int | None = sum(state.size for state in self._states)
        self.unchecked = [file.path for file in files if getattr(file, "has_checksums", None) is False]
        self.strings = files[0].strings
        self.weighted = files[0].weighted
        self.perhaps_headed = bool(getattr(files[0], "perhaps_headed", False))
        counts = [file.num_edges for file in files]
        self.num_edges = None if None in counts else sum(count or 0 for count in counts)
        held: Held = max((getattr(file, "held", Held()) for file in files), key=lambda each: each.num_bytes)
        self.held = held if held.num_bytes > BUFFERS_BYTES else Held()
        for file in files[1:]:
            _need_alike(files[0], file)

    def __iter__(self) -> Iterator[EdgeBatch]:
        before = 0
        for file, state in zip(self._files, self._states, strict=True):
            state.check()
            try:
                for batch in file:
                    yield batch._replace(bytes_read=before + min(batch.bytes_read, state.size))
                    state.check()
            except (DataError, OSError):
                state.check()  # a file that was cut short meanwhile is not a damaged one
                raise
            before += state.size


def open_edges(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    format: str | None = None,
    **options: Any,
) -> FileEdges:
    """The edges at ``paths``: one path, many, a pattern, or a folder, whose files are taken in sorted order.

    Those of its subfolders too. Of many files, those that hold no edge are left out.

    Options are those of :meth:`ReadOptions.of`.
    ``ids`` is "dense" for numbers from 0, "map" for any whole numbers, "strings" for names; "auto" takes names where a
    file holds names, and dense numbers elsewhere. ``columns`` are those of source and destination, and of the weight
    if there is one, by name or by position from 0. ``dtype`` is that of raw binary files, and ``skip_lines`` of a
    text are passed over unread.
    """
    check_format(format)
    return _opened(paths, format, ReadOptions.of(**options))


def open_vertices(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]],
    *,
    format: str | None = None,
    header: bool | None = None,
    ids: str = "map",
) -> FileEdges:
    """The vertices listed at ``paths``, an id a line or row in the first column, as edges from each to itself.

    A .npy file holds one dimension. Names in text may hold blanks, but no tabs or commas.
    """
    check_format(format)
    options = ReadOptions.of(header=header, ids=ids)
    return _opened(paths, format, replace(options, columns=VERTICES))


def _opened(
    paths: str | PathLike[str] | Iterable[str | PathLike[str]], format: str | None, options: ReadOptions
) -> FileEdges:
    files: list[tuple[EdgeFile, Unchanged]] = []
    empty: dict[Path, NoEdgesError] = {}
    for path in find_files(paths):
        state = Unchanged(path)
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


def _need_alike(first: EdgeFile, other: EdgeFile) -> None:
    if first.strings != other.strings:
        kinds = [f"{file.path} holds {'names' if file.strings else 'numbers'}" for file in (first, other)]
        raise DataError(
            f"{' and '.join(kinds)}. Files of one graph have the same ids: pass {given('ids', 'strings')} to read all "
            "as names."
        )
    if first.weighted != other.weighted:
        kinds = [f"{file.path} has {'' if file.weighted else 'no '}weights" for file in (first, other)]
        raise DataError(f"{' and '.join(kinds)}. Give weights to all or, by columns=(0, 1), to none.")
