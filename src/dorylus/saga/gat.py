"""Graph attention (Veličković et al., 2018), per head: y_v = b + Σ_u α_uv W x_u over in-neighbours and v itself,
α_uv = softmax over u of leaky_relu(a_src · W x_u + a_dst · W x_v).
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dorylus.errors import ConfigError
from dorylus.saga.layer import Layer
from dorylus.saga.options import checked
from dorylus.saga.sparse import linear


class GAT(Layer):
    """Graph attention. Parameters as PyG's GATConv: ``lin.weight``, ``att_src``, ``att_dst``, ``bias``.

    ``out_columns`` counts all columns of the output: heads x columns per head when ``concat``, else columns per head
    (the heads are averaged). Scores, softmax and weighted sum are fused in one kernel on the graph server.
    """

    reduce = "attention"
    self_loops = True
    own = "none"
    accepts_sparse: ClassVar[bool] = True

    def __init__(
        self,
        in_columns: int,
        out_columns: int,
        *,
        heads: int = 1,
        concat: bool = True,
        slope: float = 0.2,
        attention_dropout: float = 0.0,
        **finish: Any,
    ) -> None:
        super().__init__(in_columns, out_columns, **finish)
        checked({"heads": heads, "slope": slope, "attention_dropout": attention_dropout})
        if concat and out_columns % heads:
            raise ConfigError(f"{heads} heads cannot share {out_columns} columns equally: use a multiple of the heads.")
        self.heads = heads
        self.concat = concat
        self.slope = slope
        self.attention_dropout = attention_dropout
        self.head_columns = out_columns // heads if concat else out_columns
        self.lin = nn.Linear(in_columns, heads * self.head_columns, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, heads, self.head_columns))
        self.att_dst = nn.Parameter(torch.empty(1, heads, self.head_columns))
        self.bias = nn.Parameter(torch.zeros(out_columns))
        for weight in (self.lin.weight, self.att_src, self.att_dst):
            nn.init.xavier_uniform_(weight)

    def prepare(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The projected row, its score as a source and its score as a destination: z_NHC, s_NH, s_NH."""
        z = linear(x, self.lin.weight)
        z_NHC = z.view(-1, self.heads, self.head_columns)
        return z, (z_NHC * self.att_src).sum(-1), (z_NHC * self.att_dst).sum(-1)

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        """Heads side by side, or their mean; then the bias."""
        if not self.concat:
            gathered = gathered.view(-1, self.heads, self.head_columns).mean(1)
        return gathered + self.bias

    @property
    def plain_gather_columns(self) -> int:
        """All heads' columns travel, averaged afterwards or not."""
        return self.heads * self.head_columns
