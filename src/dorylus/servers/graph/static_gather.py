"""The gather that is made once: of input features, before anything is trained.

It needs the features of ghosts, and only while it is made. Where ghosts are many it is made in blocks of columns, so
that memory never holds much more than the server's own rows.
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from dorylus.backends import Matrix, NumberFormat
from dorylus.saga import Gather
from dorylus.servers.graph.access_sets import kept_names
from dorylus.servers.graph.gathers import Gatherer
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.pass_context import PassContext

EachInterval = Callable[[int, Callable[[int], None]], None]
ROUNDED_AT_ONCE = 1024  # rows


def gather_once(
    stage: Gather, gather: Gatherer, context: PassContext, features: InputRows, each_interval: EachInterval
) -> Matrix:
    """All rows of the gather. ``each_interval(n, work)`` runs ``work`` for n intervals."""

    def gathered(columns: slice | None) -> Matrix:
        context.matrices.put(stage.inputs[0], features.with_ghosts(keep=False, columns=columns))
        if columns is not None:
            width = columns.stop - columns.start
            context.matrices.put(stage.output, context.backend.allocate(context.num_rows, width))
        each_interval(context.layout.num_intervals, lambda interval: gather.forward(interval, 0))
        context.matrices.release([stage.inputs[0], *kept_names(stage)])
        return context.values(stage.output)

    blocks = _blocks(stage, context, features)
    if len(blocks) == 1:
        return _rounded(gathered(None), context)
    out = context.backend.allocate(context.num_rows, stage.output.columns)
    for columns in blocks:
        context.backend.store(gathered(columns), out[:, columns])
    context.matrices.put(stage.output, _rounded(out, context))
    return out


def _rounded(rows: Matrix, context: PassContext) -> Matrix:
    """The rows as they are under a memory limit, where they are stored in the gathered format; rounded in place."""
    if context.gathered_format is NumberFormat.BF16:
        backend = context.backend
        narrow = backend.allocate(min(len(rows), ROUNDED_AT_ONCE), rows.shape[1], NumberFormat.BF16)
        for begin in range(0, len(rows), ROUNDED_AT_ONCE):
            block = rows[begin : begin + ROUNDED_AT_ONCE]
            backend.store(block, narrow[: len(block)])
            backend.store(narrow[: len(block)], block)
    return rows


def _blocks(stage: Gather, context: PassContext, features: InputRows) -> list[slice]:
    """Blocks of columns, (own rows + ghosts) / own rows of them; one where columns cannot be gathered apart."""
    width = stage.output.columns
    if stage.spec.kept or not features.has_columns or context.num_rows == 0:
        return [slice(0, width)]
    times = min(width, round((context.num_rows + context.ghosts.num_rows) / context.num_rows))
    ends = np.linspace(0, width, max(1, times) + 1).astype(int).tolist()
    return [slice(begin, end) for begin, end in pairwise(ends)]
