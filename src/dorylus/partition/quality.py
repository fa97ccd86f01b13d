"""What a partitioning costs: edges that cross servers, ghosts that must be sent, and how evenly the work lies."""

from dataclasses import dataclass
from typing import Self

from dorylus import kernels
from dorylus.graph.arrays import AnyArray, IdArray
from dorylus.graph.ingest.progress import Tell, silent
from dorylus.partition.across import TOGETHER, Across
from dorylus.partition.reading import Reading


@dataclass(frozen=True, kw_only=True)
class Quality:
    """The figures of a partitioning.

    - ``edge_cut``: share of the directed edges whose ends lie in different parts.
    - ``ghosts_per_vertex``: distinct in-neighbours in other parts, summed over parts, a vertex: the rows that one
      Scatter of the whole graph sends, over the number of vertices.
    - ``vertex_balance``, ``edge_balance``: vertices and in-edges of the largest part over the mean; 1 is even.
    """

    edge_cut: float
    ghosts_per_vertex: float
    vertex_balance: float
    edge_balance: float

    @classmethod
    def of(cls, reading: Reading, parts: IdArray, num_parts: int, tell: Tell = silent) -> Self:
        """The figures of these parts; takes a pass over the edges for every 32 of them and O(vertices) memory."""
        graph, cut, ghosts = reading.graph, 0, 0
        for first in range(0, num_parts, TOGETHER):
            seen = Across.of(reading, parts, first, tell)
            cut, ghosts = seen.num_cut, ghosts + seen.num_read()
        held = kernels.partition_held(graph.indptr, parts, num_parts)
        return cls(
            edge_cut=cut / max(graph.num_edges, 1),
            ghosts_per_vertex=ghosts / max(graph.num_vertices, 1),
            vertex_balance=_balance(held[:, 0]),
            edge_balance=_balance(held[:, 1]),
        )

    def __str__(self) -> str:
        return (
            f"{self.edge_cut:.1%} of the edges cut, {self.ghosts_per_vertex:.2f} ghosts a vertex, "
            f"vertex balance {self.vertex_balance:.2f}, edge balance {self.edge_balance:.2f}"
        )


def _balance(loads: AnyArray) -> float:
    mean = float(loads.mean())
    return float(loads.max()) / mean if mean else 1.0
