"""Graph convolution (Kipf & Welling, 2017): y_v = b + W Σ_u x_u / sqrt(d_u d_v) over in-neighbours and v itself."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dorylus.saga.layer import Layer
from dorylus.saga.sparse import linear


class GCN(Layer):
    """Graph convolution with symmetric normalisation. Parameters as PyG's GCNConv: ``lin.weight``, ``bias``."""

    norm = "symmetric"
    self_loops = True
    own = "none"
    commutes = True
    accepts_sparse: ClassVar[bool] = True

    def __init__(self, in_columns: int, out_columns: int, *, bias: bool = True, **finish: Any) -> None:
        super().__init__(in_columns, out_columns, **finish)
        self.lin = nn.Linear(in_columns, out_columns, bias=False)
        nn.init.xavier_uniform_(self.lin.weight)
        self.bias = nn.Parameter(torch.zeros(out_columns)) if bias else None

    def prepare(self, x: Tensor) -> Tensor:
        """W x, when transforming first is the cheaper order."""
        return linear(x, self.lin.weight)

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        """b + g, or b + W g when the gather came first."""
        if not self.transform_first:
            return linear(gathered, self.lin.weight, self.bias)
        return gathered if self.bias is None else gathered + self.bias
