"""What a forward pass says of every vertex, to be looked at some vertices at a time."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Block = tuple[NDArray[np.int32], NDArray[np.float32]]  # vertices, and a row for each


@dataclass(frozen=True)
class Outputs:
    """Rows of a layer's output. ``blocks`` gives every vertex once; a block's rows hold until the next is asked for."""

    num_vertices: int
    columns: int
    blocks: Callable[[], Iterator[Block]]

    def whole(self) -> NDArray[np.float32]:
        """All rows, in the graph's order."""
        out = np.empty((self.num_vertices, self.columns), np.float32)
        for vertices, rows in self.blocks():
            out[vertices] = rows
        return out
