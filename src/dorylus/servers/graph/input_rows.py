"""The rows of the input slot: the graph's features, dense or sparse, with or without dropout."""

import numpy as np

from dorylus.backends import Dropout, Matrix, NumberFormat, PlacedCsr
from dorylus.graph import to_float32
from dorylus.saga import Plan, Rows, Slot, SparseRows
from dorylus.servers.graph.pass_context import PassContext


class InputRows:
    """What the first stages of a plan read. ``parts``: the slots that hold blocks of its columns."""

    def __init__(self, context: PassContext, plan: Plan) -> None:
        self._context = context
        self.slot = plan.features
        self.parts = plan.parts.get(plan.features, (plan.features,))
        self._num_columns = 0
        self._sparse: PlacedCsr | None = None
        self._dropped: PlacedCsr | None = None  # the same, with values after dropout
        if plan.sparse_features:
            x, place = context.shard.sparse_features(), context.backend.place_csr
            self._num_columns, self._sparse = x.num_columns, place(x.indptr, x.indices, x.values)
            if self.slot.dropout > 0:
                self._dropped = place(x.indptr, x.indices, np.empty_like(x.values))

    @property
    def stored_as_given(self) -> bool:
        """Whether gathers read the features as they are: in their number format, all columns together."""
        in_float32 = self.slot.exact or self._context.gathered_format is NumberFormat.FLOAT32
        return in_float32 and self.parts == (self.slot,)

    @property
    def has_columns(self) -> bool:
        """Whether some columns can be read without the others."""
        return self._context.shard.has_dense_features

    def dense(self, begin: int, end: int, columns: slice = slice(None)) -> Matrix:
        """Some columns of some own rows, float32."""
        return self._context.backend.from_host(to_float32(self._context.shard.dense_features()[begin:end, columns]))

    def with_ghosts(self, *, keep: bool, columns: slice | None = None) -> Matrix:
        """All own rows and those of ghosts, which never change and so need no sending; or some columns of them."""
        shard = self._context.shard
        array = shard.wide_features(keep=keep) if columns is None else shard.feature_columns(columns)
        return self._context.backend.from_host(array)

    def rows(self, slot: Slot, begin: int, end: int, epoch: int) -> Rows:
        """Some rows, dropout applied; the same mask however often they are read in an epoch."""
        drop = Dropout(slot.dropout, self._context.seed, epoch, slot.layer) if slot.dropout > 0 else None
        if self._sparse is not None:
            return self._sparse_rows(self._sparse, begin, end, drop)
        backend, rows = self._context.backend, self.dense(begin, end)
        if drop is not None:
            out = backend.allocate(end - begin, rows.shape[1])
            backend.dropout(rows, out, self._context.ids[begin:end], drop)
            rows = out
        return backend.to_torch(rows)

    def copy_rows(self, begin: int, end: int) -> None:
        """Copy some rows of the features, ghosts counted, to the matrices that gathers read."""
        context = self._context
        source = context.shard.dense_features(ghosts=True)
        for part in self.parts:
            columns = slice(part.first_column, part.first_column + part.columns)
            rows = context.backend.from_host(to_float32(source[begin:end, columns]))
            context.store(rows, context.values(part), begin, end)

    def _sparse_rows(self, x: PlacedCsr, begin: int, end: int, drop: Dropout | None) -> SparseRows:
        if drop is not None:
            assert self._dropped is not None
            self._context.backend.dropout_sparse(x, self._dropped, self._context.ids, begin, end, drop)
            x = self._dropped
        return SparseRows(x.indptr[begin : end + 1], x.indices, x.values, self._num_columns, self._context.backend)
