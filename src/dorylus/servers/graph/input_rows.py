"""The rows of the input slot: the graph's features, dense or sparse, with or without dropout."""

from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dorylus.backends import Dropout, native
from dorylus.graph import to_float32
from dorylus.partition import PagedLocalShard, at_hand
from dorylus.saga import Plan, Rows, Slot, SparseRows
from dorylus.servers.graph.matrices import PagedMatrices, writable_alias
from dorylus.servers.graph.pass_context import PassContext

Matrix = NDArray[Any]


class InputRows:
    """What the first stages of a plan read."""

    def __init__(self, bench: PassContext, plan: Plan) -> None:
        self._bench = bench
        self._slot = plan.features
        self.parts = plan.parts.get(plan.features, (plan.features,))
        self._paged = bench.shard.features if isinstance(bench.shard, PagedLocalShard) else None
        self._sparse = bench.shard.sparse_features() if plan.sparse_features else None
        self._dropped = None
        if self._sparse is not None and self._slot.dropout > 0:
            self._dropped = np.empty_like(self._sparse.values)
        if self._slot.gathered and self._slot.dropout == 0:
            self._publish_once()

    def dense(self, begin: int, end: int, columns: slice = slice(None)) -> Matrix:
        """Some columns of some own rows, float32."""
        return writable_alias(to_float32(self._bench.shard.dense_features()[begin:end, columns]))

    @property
    def has_columns(self) -> bool:
        """Whether some columns can be had without the others."""
        return self._bench.shard.has_dense_features

    def with_ghosts(self, *, keep: bool, columns: slice | None = None) -> Matrix:
        """All own rows and those of ghosts, which never change and so need no sending; or some columns of them."""
        if columns is not None:
            return self._bench.shard.feature_columns(columns)
        return writable_alias(self._bench.shard.wide_features(keep=keep))

    def rows(self, slot: Slot, begin: int, end: int, epoch: int) -> Rows:
        """Some rows, dropout applied; the same mask however often they are asked for in an epoch."""
        drop = Dropout(slot.dropout, self._bench.seed, epoch, slot.layer) if slot.dropout > 0 else None
        if self._sparse is not None:
            return self._sparse_rows(begin, end, drop)
        rows = self.dense(begin, end)
        if drop is not None:
            out = np.empty_like(rows)
            native.dropout(rows, out, self._bench.shard.ids[begin:end], 0, end - begin, drop=drop)
            rows = out
        return torch.from_numpy(rows)

    def _sparse_rows(self, begin: int, end: int, drop: Dropout | None) -> SparseRows:
        x = self._sparse
        assert x is not None
        values = x.values
        if drop is not None:
            assert self._dropped is not None
            values = self._dropped
            native.dropout_csr(x.indptr, x.indices, x.values, values, self._bench.shard.ids, begin, end, drop=drop)
        return SparseRows(x.indptr[begin : end + 1], x.indices, values, x.num_columns)

    def _publish_once(self) -> None:
        """Gather from the very features or, in less than their precision or width, from a copy."""
        features, matrices = self._paged, self._bench.matrices
        # Under a limit, float16 that lies in no file is to_float32 to one and not in memory.
        spills = features is None and isinstance(matrices, PagedMatrices) and self._bench.shard.half_features
        if self._bench.gathered_dtype == np.float32 and self.parts == (self._slot,) and not spills:
            matrices.put(self._slot, features or self.with_ghosts(keep=True))
            return
        source = self._bench.shard.dense_features(ghosts=True)
        pages = [] if features is None else [features]
        bounds = [0, len(source)]
        if isinstance(matrices, PagedMatrices):
            bounds = self._bench.layout.bounds.tolist()
            pages += matrices.pages_of(self.parts, self._bench.values)
        for interval, (begin, end) in enumerate(pairwise(bounds)):
            with at_hand(tuple(pages), interval):
                self._copy(source, begin, end)
                for page in pages:
                    page.wrote(interval)

    def _copy(self, source: Matrix, begin: int, end: int) -> None:
        for part in self.parts:
            columns = slice(part.first_column, part.first_column + part.columns)
            self._bench.store(to_float32(source[begin:end, columns]), self._bench.values(part), begin, end)
