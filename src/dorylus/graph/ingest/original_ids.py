"""The ids that vertices had in the input, kept beside the graph."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.array_folder import NewFolder
from dorylus.graph.ingest.batches import Numbering, Tokens
from dorylus.graph.ingest.ids import Dense


def write_ids(folder: NewFolder, numbering: Numbering, num_vertices: int) -> bool:
    """Writes the arrays of a numbering that gave ids their numbers; whether it did. Dense ids are the numbers.

    Its ``original()`` gives blocks of int64, or :class:`Tokens`.
    """
    original = getattr(numbering, "original", None)
    if original is None or isinstance(numbering, Dense):
        return False
    if numbering.num_vertices != num_vertices:
        raise DataError(
            f"the edges name {numbering.num_vertices:,} vertices, but the graph is to have {num_vertices:,}: give a "
            "file with the ids of all vertices, or leave num_vertices out."
        )
    blocks = iter(original())
    first = next(blocks, np.empty(0, np.int64))
    if isinstance(first, Tokens):
        _write_texts(folder, first, blocks)
    else:
        with folder.array("ids", "<i8") as writer:
            writer.write(first)
            for block in blocks:
                writer.write(block)
    return True


def _write_texts(folder: NewFolder, first: Tokens, others: Iterable[Any]) -> None:
    with folder.array("ids.offsets", "<i8") as offsets, folder.array("ids.bytes", "|u1") as texts:
        offsets.write(np.zeros(1, np.int64))
        for block in chain((first,), others):
            begin, end = int(block.offsets[0]), int(block.offsets[-1])
            offsets.write(block.offsets[1:] - begin + texts.num_rows)
            texts.write(block.bytes[begin:end])
