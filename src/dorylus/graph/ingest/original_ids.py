"""The ids that vertices had in the input, kept beside the graph."""

from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.array_folder import NewFolder
from dorylus.graph.ingest.batches import Numbering, Tokens, shown
from dorylus.graph.ingest.ids import BLOCK_IDS, Dense
from dorylus.graph.ingest.vertex_order import AsGiven, Reordered


def write_ids(folder: NewFolder, numbering: Numbering, num_vertices: int, order: AsGiven | Reordered) -> bool:
    """Writes the arrays of ids that are not the vertices' numbers; whether there are such.

    A numbering that gave ids their numbers has ``original()``: blocks of int64, or :class:`Tokens`.
    """
    original = getattr(numbering, "original", None)
    if original is None or isinstance(numbering, Dense):
        return _write_numbers(folder, order)
    if numbering.num_vertices != num_vertices:
        raise DataError(
            f"the edges name {numbering.num_vertices:,} vertices, but the graph is to have {num_vertices:,}: give a "
            "file with the ids of all vertices, or leave num_vertices out."
        )
    blocks = iter(original())
    first = next(blocks, np.empty(0, np.int64))
    if isinstance(first, Tokens):
        _write_texts(folder, order.names(original) if isinstance(order, Reordered) else chain((first,), blocks))
    else:
        _write_array(folder, order.rows(chain((first,), blocks), "<i8", ()))
    return True


def called(numbering: Numbering, number: int) -> str:
    """What the input calls the vertex with a number."""
    for block in getattr(numbering, "original", lambda: ())():
        if number < len(block):
            return shown(block[number])
        number -= len(block)
    return str(number)


def _write_numbers(folder: NewFolder, order: AsGiven | Reordered) -> bool:
    """Numbers need no ids, unless vertices get others."""
    if not isinstance(order, Reordered):
        return False
    old = order.order
    _write_array(folder, (old[begin : begin + BLOCK_IDS] for begin in range(0, old.size, BLOCK_IDS)))
    return True


def _write_array(folder: NewFolder, blocks: Iterable[Any]) -> None:
    with folder.array("ids", "<i8") as writer:
        for block in blocks:
            writer.write(block)


def _write_texts(folder: NewFolder, blocks: Iterable[Tokens]) -> None:
    with folder.array("ids.offsets", "<i8") as offsets, folder.array("ids.bytes", "|u1") as texts:
        offsets.write(np.zeros(1, np.int64))
        for block in blocks:
            begin, end = int(block.offsets[0]), int(block.offsets[-1])
            offsets.write(block.offsets[1:] - begin + texts.num_rows)
            texts.write(block.bytes[begin:end])
