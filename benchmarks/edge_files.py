"""Edge lists of any size as files: a recursive-matrix graph, written block by block in formats that ingest reads."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from pyarrow import compute, csv, parquet

from dorylus.graph.arrays import IdArray
from dorylus.graph.generators.random_graphs import QUADRANTS, RecursiveMatrix

BLOCK = 1 << 21
SUFFIXES = {"raw": ".i32", "text": ".txt", "parquet": ".parquet", "names": ".tsv"}

Put = Callable[[IdArray, IdArray], None]


def write_edges(path: Path, num_vertices: int, num_edges: int, seed: int, format: str = "raw") -> None:
    """Writes edges in a format, block by block, without leaving them in the page cache."""
    with open(path, "wb", buffering=0) as file, WRITERS[format](file) as put:
        for source, destination in _blocks(num_vertices, num_edges, seed):
            put(source, destination)
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _blocks(num_vertices: int, num_edges: int, seed: int) -> Iterator[tuple[IdArray, IdArray]]:
    model = RecursiveMatrix(np.random.default_rng(seed), num_vertices, QUADRANTS, scramble=True)
    left = num_edges
    while left:
        source, destination = model.pairs(min(BLOCK, left))
        yield source, destination
        left -= source.size


def _raw(file: BinaryIO) -> AbstractContextManager[Put]:
    """Pairs of int32."""
    return nullcontext(lambda *ends: _put_bytes(file, np.stack(ends, axis=1).astype("<i4").data))


def _text(file: BinaryIO) -> AbstractContextManager[Put]:
    """Lines as in SNAP's files: comments, then two numbers with a tab between them."""
    _put_bytes(file, memoryview(b"# Directed graph: a recursive matrix\n# FromNodeId\tToNodeId\n"))
    return nullcontext(lambda *ends: _put_lines(file, *ends))


def _names(file: BinaryIO) -> AbstractContextManager[Put]:
    """Lines of two names with a tab between them."""

    def named(numbers: IdArray) -> Any:
        return compute.binary_join_element_wise("user", pa.array(numbers).cast(pa.string()), "-")

    return nullcontext(lambda *ends: _put_lines(file, *map(named, ends)))


class _Parquet:
    """Two columns of int32, a row group a block."""

    def __init__(self, file: BinaryIO) -> None:
        schema = pa.schema([("source", pa.int32()), ("destination", pa.int32())])
        self._writer = parquet.ParquetWriter(file, schema)

    def __enter__(self) -> Put:
        return lambda *ends: self._writer.write_batch(pa.record_batch(list(ends), schema=self._writer.schema))

    def __exit__(self, *_: object) -> None:
        self._writer.close()


def _put_lines(file: BinaryIO, source: Any, destination: Any) -> None:
    """Formats by Arrow: in Python, lines would take longer than all else."""
    lines = pa.BufferOutputStream()
    form = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none", batch_size=1 << 16)
    csv.write_csv(pa.table({"source": source, "destination": destination}), lines, form)
    _put_bytes(file, memoryview(lines.getvalue()))


def _put_bytes(file: BinaryIO, raw: memoryview) -> None:
    """All of it: a raw file may take less at a time."""
    rest = raw.cast("B")
    while rest:
        rest = rest[file.write(rest) :]


WRITERS: dict[str, Callable[[BinaryIO], AbstractContextManager[Put]]] = {
    "raw": _raw, "text": _text, "parquet": _Parquet, "names": _names,
}  # fmt: skip
