"""Every kernel in plain NumPy: slow, obvious, and the definition the native ones are tested against.

Names and signatures are those of ``dorylus.backends.native``. Sums are taken in float64.
"""

from dorylus.backends.native.dropout import Dropout
from dorylus.backends.native.edge_input import EdgeBlock, TextEdges, TextFault, TextForm, WeightClash
from dorylus.backends.reference.attention import (
    attention,
    attention_grad_dst,
    attention_grad_src,
    segment_max,
    segment_max_grad,
    segment_softmax,
    segment_softmax_grad,
    segment_spread,
    segment_sum,
)
from dorylus.backends.reference.csr import (
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
from dorylus.backends.reference.dropout import dropout, dropout_csr, kept_edges
from dorylus.backends.reference.edge_input import ReferenceEdgeSort as EdgeSort
from dorylus.backends.reference.edge_input import ReferenceNameIds as NameIds
from dorylus.backends.reference.edge_input import ReferenceNumberIds as NumberIds
from dorylus.backends.reference.edge_input import edge_text
from dorylus.backends.reference.gather import (
    from_bf16,
    gather_limit,
    gather_rows,
    scatter_add_rows,
    spmm,
    spmm_max,
    spmm_max_grad,
    spmm_outer,
    to_bf16,
)
from dorylus.backends.reference.partition import (
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
    "kept_edges",
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
]
