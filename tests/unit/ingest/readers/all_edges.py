"""Every edge of a source, in one go, and what is checked of its batches on the way."""

from typing import Any

import numpy as np

from dorylus.ingest.batches import MAX_EDGES
from dorylus.ingest.readers.files import FileEdges


def edges_of(source: FileEdges) -> list[tuple[Any, ...]]:
    """(source, destination) of every edge, with the weight where there are weights."""
    found: list[tuple[Any, ...]] = []
    last = 0
    for batch in source:
        assert 0 < len(batch.source) == len(batch.destination) <= MAX_EDGES
        assert last <= batch.bytes_read <= (source.total_bytes or 0)
        last = batch.bytes_read
        assert (batch.weight is not None) == source.weighted
        columns = [ends.to_list() if source.strings else checked(ends) for ends in batch[:2]]
        if batch.weight is not None:
            assert batch.weight.dtype == np.float32
            columns.append(batch.weight.tolist())
        found += zip(*columns, strict=True)
    assert source.total_bytes is not None
    assert source.total_bytes - last in (0, 8)  # a stream of Arrow ends in a mark of 8 bytes
    return found


def checked(ends: Any) -> list[int]:
    """The numbers of a column, which the next stage takes as they are."""
    assert ends.dtype == np.int64
    assert ends.flags.c_contiguous
    return ends.tolist()
