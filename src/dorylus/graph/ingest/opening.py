"""From what a user calls edges (files, arrays, a source) to an ingest of them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any

from dorylus.errors import ConfigError, DataError, unknown_name
from dorylus.graph.ingest.array_edges import ArrayEdges
from dorylus.graph.ingest.batches import EdgeSource, Numbering
from dorylus.graph.ingest.ids import Dense
from dorylus.graph.ingest.pipeline import Ingested, ingest
from dorylus.graph.ingest.progress import Tell, silent
from dorylus.graph.ingest.readers import open_edges, open_vertices
from dorylus.graph.ingest.settings import IngestSettings
from dorylus.graph.ingest.token_ids import make_numbering
from dorylus.graph.places import Address, is_elsewhere

READING = frozenset({"format", "columns", "delimiter", "header", "comments", "dtype", "ids"})
"""Options of ``open_edges``: how files are read."""

IDS_SHARE = 4  # of the memory, one part in so many is for the table of ids, where there is one


def ingest_edges(edges: Any, store: Address, *, vertices: Any = None, tell: Tell = silent, **options: Any) -> Ingested:
    """Writes edges as a store: files, a tuple of arrays (source, destination, perhaps weight), or a source of batches.

    ``options`` are those of :class:`IngestSettings` and, for files, of ``open_edges``. ``vertices`` are files that list
    all ids, in the order that the store is to have.
    """
    known = {each.name for each in fields(IngestSettings)} | READING
    for name in sorted(options.keys() - known):
        raise ConfigError(unknown_name("setting", name, known | {"vertices"}))
    settings = IngestSettings(**{name: value for name, value in options.items() if name not in READING})
    reading = {name: value for name, value in options.items() if name in READING}
    source = _source_of(edges, reading)
    ids_bytes = settings.memory_bytes // IDS_SHARE
    with _numbering(source, str(reading.get("ids", "auto")), vertices, ids_bytes, store) as numbering:
        taken = 0 if isinstance(numbering, Dense) else ids_bytes
        return ingest(source, numbering, store, settings, tell, ids_bytes=taken)


def _source_of(edges: Any, reading: Mapping[str, Any]) -> EdgeSource:
    if not hasattr(edges, "total_bytes") and not _are_arrays(edges):
        return open_edges(edges, **reading)
    for name in sorted(reading.keys() - {"ids"}):
        raise ConfigError(f"{name} says how to read files, but the edges are in memory: leave it out.")
    source: EdgeSource = ArrayEdges(*edges) if _are_arrays(edges) else edges
    return source


def _are_arrays(edges: Any) -> bool:
    return isinstance(edges, tuple) and len(edges) in (2, 3) and not isinstance(edges[0], str | PathLike)


@contextmanager
def _numbering(source: EdgeSource, ids: str, vertices: Any, memory_bytes: int, store: Address) -> Iterator[Numbering]:
    """How ids become numbers, as asked; names lie in a file beside the store until it is written."""
    strings = bool(getattr(source, "strings", False))
    listed = None if vertices is None else open_vertices(vertices, ids="strings" if strings else "map")
    scratch = None if is_elsewhere(store) else _existing(Path(store).absolute().parent)
    try:
        numbering = make_numbering(
            ids, strings=strings, vertices=listed, fixed=listed is not None, memory_bytes=memory_bytes, scratch=scratch
        )
    except OSError as error:
        raise DataError(
            f"could not keep the names of vertices beside the store {store}: {error}. Check the free space and "
            "permissions."
        ) from error
    try:
        yield numbering
    finally:
        getattr(numbering, "close", lambda: None)()


def _existing(folder: Path) -> Path:
    return folder if folder.is_dir() else _existing(folder.parent)
