"""Graph isomorphism network (Xu et al., 2019): y_v = MLP((1 + eps) x_v + Σ_u x_u) over in-neighbours u."""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from dorylus.saga.layer import Layer
from dorylus.saga.options import WIDTH, checked
from dorylus.saga.sparse import linear


class GIN(Layer):
    """GIN with a two-layer perceptron. Parameters as PyG's GINConv over Sequential(Linear, ReLU, Linear).

    The perceptron's first linear map commutes with the sum, so it may run before the gather:
    W(( 1+eps) x_v + Σ x_u) = (1+eps) W x_v + Σ W x_u.
    """

    own = "prepared"
    commutes = True
    transforms_first_by_default: ClassVar[bool] = False
    accepts_sparse: ClassVar[bool] = True

    def __init__(
        self,
        in_columns: int,
        out_columns: int,
        *,
        hidden: int | None = None,
        eps: float = 0.0,
        train_eps: bool = False,
        **finish: Any,
    ) -> None:
        super().__init__(in_columns, out_columns, **finish)
        checked({"eps": eps, "hidden": hidden}, hidden=WIDTH.or_left_out())
        hidden = hidden or out_columns
        self.first_eps, self.train_eps = eps, train_eps  # plain numbers, so that describe() includes them
        self.nn = nn.Sequential(nn.Linear(in_columns, hidden), nn.ReLU(), nn.Linear(hidden, out_columns))
        if train_eps:
            self.eps = nn.Parameter(torch.tensor([eps]))
        else:
            self.register_buffer("eps", torch.tensor([eps]))

    def prepare(self, x: Tensor) -> Tensor:
        """The perceptron's first product, when transforming first is the cheaper order."""
        return linear(x, self.nn[0].weight)  # type: ignore[arg-type]

    def apply_vertex(self, own: Tensor, gathered: Tensor) -> Tensor:
        """MLP((1 + eps) own + gathered), its first product left out when it was applied before the gather."""
        total = (1 + self.eps) * own + gathered
        if not self.transform_first:
            y: Tensor = self.nn(total)
            return y
        total = total + self.nn[0].bias  # type: ignore[operator]
        for module in list(self.nn)[1:]:
            total = module(total)
        return total

    @property
    def prepared_columns(self) -> int:
        """The perceptron's hidden width."""
        width: int = self.nn[0].out_features  # type: ignore[assignment]
        return width
