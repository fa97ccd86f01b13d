"""The array work of a graph server, behind one seam: :class:`Backend`.

``native`` holds the C++ kernels and ``reference`` the definition of each in NumPy. Graph servers use them through a
back end; code that builds graphs uses the functions of ``native`` directly.
"""

from dorylus.backends import native, reference
from dorylus.backends.backend import AttentionSums, Backend, HostArray, Index, Matrix, NumberFormat, PlacedCsr
from dorylus.backends.host import HostBackend, NativeBackend
from dorylus.backends.native.dropout import Dropout
from dorylus.backends.native.edge_input import EdgeBlock, EdgeSort, TextEdges, TextForm, WeightClash
from dorylus.backends.native.host import crc32, crc32_blocks, watch_mapping

__all__ = [
    "AttentionSums",
    "Backend",
    "Dropout",
    "EdgeBlock",
    "EdgeSort",
    "HostArray",
    "HostBackend",
    "Index",
    "Matrix",
    "NativeBackend",
    "NumberFormat",
    "PlacedCsr",
    "TextEdges",
    "TextForm",
    "WeightClash",
    "crc32",
    "crc32_blocks",
    "native",
    "reference",
    "watch_mapping",
]
