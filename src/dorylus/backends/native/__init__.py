"""The sparse kernels: C++ over NumPy arrays, one row range at a time.

Every kernel is single-threaded, releases the interpreter lock, is deterministic (a row's result does not depend on the
range it was computed in) and writes only the rows begin:end. Matrices are float32, or bfloat16 held as uint16 where
said; rows may be padded (a larger row stride), columns may not. Row r of a CSR is also column r. ``reference.py``
states each kernel in plain NumPy. A wrong dtype raises TypeError, a wrong shape ValueError; the columns in ``indices``
are trusted, except by the ``csr_`` functions, where raw input enters. :class:`EdgeSort` is the one with threads of its
own, which wait for the disk.
"""

from dorylus.backends.native.attention import attention, attention_grad_dst, attention_grad_src
from dorylus.backends.native.csr import (
    csr_build,
    csr_coalesce,
    csr_count,
    csr_is_symmetric,
    csr_loops,
    csr_reach,
    csr_select,
    csr_select_transpose,
    csr_transpose,
    csr_with_loops,
)
from dorylus.backends.native.dropout import Dropout, dropout, dropout_csr
from dorylus.backends.native.edge_input import (
    EdgeBlock,
    EdgeSort,
    NameIds,
    NumberIds,
    TextEdges,
    TextFault,
    TextForm,
    WeightClash,
    edge_text,
)
from dorylus.backends.native.gather import (
    from_bf16,
    gather_limit,
    gather_rows,
    scatter_add_rows,
    segment_max,
    segment_max_grad,
    segment_softmax,
    segment_softmax_grad,
    segment_spread,
    segment_sum,
    spmm,
    spmm_max,
    spmm_max_grad,
    spmm_outer,
    to_bf16,
)
from dorylus.backends.native.host import available_isas, crc32, crc32_blocks, isa, use_isa, watch_mapping
from dorylus.backends.native.partition import (
    partition_across,
    partition_deal,
    partition_held,
    partition_merge,
    partition_place,
)

__all__ = [
    "Dropout",
    "EdgeBlock",
    "EdgeSort",
    "NameIds",
    "NumberIds",
    "TextEdges",
    "TextFault",
    "TextForm",
    "WeightClash",
    "attention",
    "attention_grad_dst",
    "attention_grad_src",
    "available_isas",
    "crc32",
    "crc32_blocks",
    "csr_build",
    "csr_coalesce",
    "csr_count",
    "csr_is_symmetric",
    "csr_loops",
    "csr_reach",
    "csr_select",
    "csr_select_transpose",
    "csr_transpose",
    "csr_with_loops",
    "dropout",
    "dropout_csr",
    "edge_text",
    "from_bf16",
    "gather_limit",
    "gather_rows",
    "isa",
    "partition_across",
    "partition_deal",
    "partition_held",
    "partition_merge",
    "partition_place",
    "scatter_add_rows",
    "segment_max",
    "segment_max_grad",
    "segment_softmax",
    "segment_softmax_grad",
    "segment_spread",
    "segment_sum",
    "spmm",
    "spmm_max",
    "spmm_max_grad",
    "spmm_outer",
    "to_bf16",
    "use_isa",
    "watch_mapping",
]
