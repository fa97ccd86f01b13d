"""Paging as a graph server sees it: who keeps its matrices, and in how many pieces features are gathered."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dorylus.paging import Pager
from dorylus.saga.lower import Plan
from dorylus.servers.holding import Holding
from dorylus.servers.paged_matrices import PagedMatrices


@dataclass(frozen=True, eq=False)
class Paging:
    """What servers under a memory limit are made with. ``static_blocks``: blocks of columns of the first gather."""

    pager: Pager
    holding: Holding
    static_blocks: int = 1

    def matrices(self, bounds: NDArray[np.int64], plan: Plan) -> PagedMatrices:
        """The matrices of one pass over intervals of these rows."""
        return PagedMatrices(self.pager, bounds, lambda name: self.holding.pages(name, plan))
