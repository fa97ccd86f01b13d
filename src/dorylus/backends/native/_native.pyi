"""The compiled module. It checks its arguments; the typed face of each function is in the modules beside this file."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dorylus.backends.native.types import Bools, Bytes, Csr, Floats, Ints, Levels, Offsets

_Matrix = npt.NDArray[Any]
_Drop = tuple[float, int, int, int] | None

def isa() -> str: ...
def available() -> list[str]: ...
def choose(name: str) -> bool: ...
def csr_build(
    rows: npt.NDArray[np.integer], cols: npt.NDArray[np.integer], num_rows: int, num_cols: int, values: Floats | None
) -> Csr: ...
def csr_transpose(
    indptr: Offsets, indices: Ints, num_cols: int, values: Floats | None, keep_rows: Bools | None
) -> Csr: ...
def csr_select(
    indptr: Offsets,
    indices: Ints,
    rows: Ints,
    columns: Ints,
    num_columns: int,
    values: Floats | None,
    self_loops: bool | Bools,
) -> Csr: ...
def csr_select_transpose(
    indptr: Offsets,
    indices: Ints,
    rows: Ints,
    row_of: Ints,
    num_rows: int,
    values: Floats | None,
    self_loops: bool | Bools,
) -> Csr: ...
def csr_with_loops(indptr: Offsets, indices: Ints, values: Floats | None, first_row: int) -> Csr: ...
def csr_loops(indptr: Offsets, indices: Ints, first_row: int, found: Bools) -> None: ...
def csr_reach(indptr: Offsets, indices: Ints, levels: Levels, reached: Levels) -> None: ...
def csr_count(
    indptr: Offsets, indices: Ints, row_group: Ints, col_group: Ints, num_row_groups: int, num_col_groups: int
) -> Offsets: ...
def csr_coalesce(indptr: Offsets, indices: Ints, values: Floats | None) -> Csr: ...
def csr_is_symmetric(indptr: Offsets, indices: Ints, values: Floats | None) -> bool: ...
def spmm(
    indptr: Offsets,
    indices: Ints,
    x: _Matrix,
    out: Floats,
    begin: int,
    end: int,
    values: Floats | None,
    row_scale: Floats | None,
    col_scale: Floats | None,
    mean: bool,
    accumulate: bool,
    /,
) -> None: ...
def spmm_max(
    indptr: Offsets, indices: Ints, x: _Matrix, out: Floats, ties: Floats, begin: int, end: int, /
) -> None: ...
def spmm_max_grad(
    indptr_t: Offsets,
    indices_t: Ints,
    x: _Matrix,
    out: Floats,
    dout_per_tie: Floats,
    dx: Floats,
    begin: int,
    end: int,
    accumulate: bool,
    /,
) -> None: ...
def spmm_outer(
    indptr: Offsets, indices: Ints, values: Floats, dz: Floats, dw: Floats, begin: int, end: int, /
) -> None: ...
def attention(
    indptr: Offsets,
    indices: Ints,
    z: _Matrix,
    s_src: Floats,
    s_dst: Floats,
    out: Floats,
    begin: int,
    end: int,
    heads: int,
    slope: float,
    lse: Floats | None,
    out_pos: Floats | None,
    a_pos: Floats | None,
    drop: _Drop,
    ids: Ints | None,
    /,
) -> None: ...
def attention_grad_dst(
    out: Floats,
    out_pos: Floats,
    a_pos: Floats,
    dout: _Matrix,
    delta: Floats,
    ds_dst: Floats,
    begin: int,
    end: int,
    heads: int,
    slope: float,
    /,
) -> None: ...
def attention_grad_src(
    indptr_t: Offsets,
    indices_t: Ints,
    z: _Matrix,
    s_src: Floats,
    s_dst: Floats,
    lse: Floats,
    delta: Floats,
    dout: _Matrix,
    dz: Floats,
    ds_src: Floats,
    begin: int,
    end: int,
    heads: int,
    slope: float,
    drop: _Drop,
    ids: Ints | None,
    accumulate: bool,
    /,
) -> None: ...
def segment_sum(
    indptr: Offsets, messages: Floats, out: Floats, begin: int, end: int, row_scale: Floats | None, accumulate: bool, /
) -> None: ...
def segment_spread(
    indptr: Offsets, dout: _Matrix, dmessages: Floats, begin: int, end: int, row_scale: Floats | None, /
) -> None: ...
def segment_max(indptr: Offsets, messages: Floats, out: Floats, ties: Floats, begin: int, end: int, /) -> None: ...
def segment_max_grad(
    indptr: Offsets, messages: Floats, out: Floats, dout_per_tie: Floats, dmessages: Floats, begin: int, end: int, /
) -> None: ...
def segment_softmax(
    indptr: Offsets, scores: Floats, messages: Floats, out: Floats, lse: Floats, begin: int, end: int, heads: int, /
) -> None: ...
def segment_softmax_grad(
    indptr: Offsets,
    scores: Floats,
    messages: Floats,
    out: Floats,
    lse: Floats,
    dout: _Matrix,
    dscores: Floats,
    dmessages: Floats,
    begin: int,
    end: int,
    heads: int,
    /,
) -> None: ...
def gather_rows(x: _Matrix, index: Ints, out: Floats, /) -> None: ...
def scatter_add_rows(src: Floats, index: Ints, out: Floats, /) -> None: ...
def to_bf16(x: _Matrix, out: _Matrix, begin: int, end: int, /) -> None: ...
def from_bf16(x: _Matrix, out: Floats, begin: int, end: int, /) -> None: ...
def dropout(x: _Matrix, out: _Matrix, ids: Ints, begin: int, end: int, drop: _Drop, first_column: int, /) -> None: ...
def dropout_csr(
    indptr: Offsets, indices: Ints, values: Floats, out_values: Floats, ids: Ints, begin: int, end: int, drop: _Drop, /
) -> None: ...
def gather_limit(indptr: Offsets, indices: Ints, x: _Matrix, begin: int, end: int, /) -> float: ...
def partition_held(indptr: Offsets, labels: Ints, num_labels: int, /) -> Offsets: ...
def partition_merge(
    indptr: Offsets,
    indices: Ints,
    starts: Offsets,
    members: Ints,
    labels: Ints,
    held: Offsets,
    vertex_room: int,
    edge_room: int,
    seed: int,
    first_cluster: int,
    in_order: bool,
    /,
) -> int: ...
def partition_place(
    indptr: Offsets,
    indices: Ints,
    starts: Offsets,
    members: Ints,
    parts: Ints,
    held: Offsets,
    num_edges: int,
    vertex_limit: int,
    edge_limit: int,
    steepness: int,
    strict: bool,
    in_order: bool,
    /,
) -> int: ...
def partition_deal(indptr: Offsets, order: Ints, num_parts: int, vertex_limit: int, /) -> Ints: ...
def partition_across(
    indptr: Offsets,
    indices: Ints,
    parts: Ints,
    readers: Ints,
    targets: Ints | None,
    first_part: int,
    first_row: int,
    /,
) -> int: ...

class SortedEdges:
    def next(self) -> tuple[Ints, Ints, Floats | None] | None: ...
    def close(self) -> None: ...

class EdgeSort:
    def __init__(
        self,
        descriptor: int,
        memory_bytes: int,
        weighted: bool,
        undirected: bool,
        drop_self_loops: bool,
        coalesce: bool,
        /,
    ) -> None: ...
    def add(self, rows: Ints, columns: Ints, weights: Floats | None, /) -> None: ...
    def sorted(self, memory_bytes: int, block_edges: int, /) -> SortedEdges: ...
    def spooled_bytes(self) -> int: ...
    def close(self) -> None: ...

def edge_text(
    text: Bytes,
    source: int,
    destination: int,
    weight: int,
    num_fields: int,
    separator: str,
    quotes: bool,
    comments: str,
    lowest: int,
    highest: int,
    names: bool,
    /,
) -> tuple[Any, Any, Floats | None, int, int, int, int]: ...
def name_hash(name: bytes, key_low: int, key_high: int, /) -> bytes: ...

class NumberIds:
    def __init__(self, limit_bytes: int, /) -> None: ...
    def __len__(self) -> int: ...
    @staticmethod
    def bytes_for(num_ids: int, /) -> int: ...
    def pairs(self, source: Offsets, destination: Offsets, fixed: bool, /) -> tuple[Ints, Ints]: ...
    def ids(self, first: int, count: int, /) -> Offsets: ...

class NameIds:
    def __init__(self, limit_bytes: int, key_low: int, key_high: int, /) -> None: ...
    def __len__(self) -> int: ...
    @staticmethod
    def bytes_for(num_ids: int, /) -> int: ...
    def pairs(
        self,
        source_bytes: Bytes,
        source_offsets: Offsets,
        destination_bytes: Bytes,
        destination_offsets: Offsets,
        fixed: bool,
        /,
    ) -> tuple[Ints, Ints, Bytes, Offsets]: ...

def crc32(data: bytes | memoryview | npt.NDArray[Any], before: int) -> int: ...
def crc32_blocks(data: bytes | memoryview | npt.NDArray[Any], block_bytes: int) -> bytes: ...
def watch_mapping(begin: int, size: int, sentence: str) -> int: ...
def unwatch_mapping(number: int) -> None: ...
