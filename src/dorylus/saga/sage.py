"""GraphSAGE (Hamilton et al., 2017): y_v = b + W_l mean_u x_u + W_r x_v, over in-neighbours u; or max for the mean."""

from typing import Any, ClassVar, Literal, TypeAlias, get_args

from torch import Tensor, nn

from dorylus.errors import ConfigError, unknown_name
from dorylus.saga.layer import Layer
from dorylus.saga.sparse import linear

Aggregator: TypeAlias = Literal["mean", "max", "sum"]


class SAGE(Layer):
    """GraphSAGE. Parameters as PyG's SAGEConv: ``lin_l.weight``, ``lin_l.bias``, ``lin_r.weight``."""

    own = "input"
    transforms_first_by_default: ClassVar[bool] = False
    accepts_sparse: ClassVar[bool] = True

    def __init__(self, in_columns: int, out_columns: int, *, aggregator: Aggregator = "mean", **finish: Any) -> None:
        super().__init__(in_columns, out_columns, **finish)
        if aggregator not in get_args(Aggregator):
            raise ConfigError(unknown_name("aggregator", aggregator, get_args(Aggregator)))
        self.reduce = aggregator
        self.norm = "mean" if aggregator == "mean" else "none"
        self.commutes = aggregator != "max"  # a maximum does not commute with W_l
        self.lin_l = nn.Linear(in_columns, out_columns)
        self.lin_r = nn.Linear(in_columns, out_columns, bias=False)

    def prepare(self, x: Tensor) -> Tensor:
        """W_l x, when transforming first is the cheaper order."""
        return linear(x, self.lin_l.weight)

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        """W_l g + W_r x + b, W_l left out when it was applied before the gather."""
        if self.prepares:
            return gathered + linear(own, self.lin_r.weight, self.lin_l.bias)
        return linear(gathered, self.lin_l.weight, self.lin_l.bias) + linear(own, self.lin_r.weight)
