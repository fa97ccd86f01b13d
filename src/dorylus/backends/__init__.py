"""The array work of a graph server: ``native`` (C++ kernels) and ``reference`` (NumPy, the definition of each)."""

from dorylus.backends import native, reference
from dorylus.backends.native.dropout import Dropout
from dorylus.backends.native.edge_input import EdgeBlock, EdgeSort, TextEdges, TextForm, WeightClash
from dorylus.backends.native.host import crc32, crc32_blocks, watch_mapping

__all__ = [
    "Dropout",
    "EdgeBlock",
    "EdgeSort",
    "TextEdges",
    "TextForm",
    "WeightClash",
    "crc32",
    "crc32_blocks",
    "native",
    "reference",
    "watch_mapping",
]
