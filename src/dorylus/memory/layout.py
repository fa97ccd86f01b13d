"""The inputs and results of the memory model: the sizes of a graph, a layout of a run's matrices, and bytes by kind."""

from collections import Counter
from dataclasses import dataclass, field

from dorylus.graph import Graph, SparseFeatures, is_remote, open_out_edges
from dorylus.saga import Plan
from dorylus.servers import SpillPolicy

FLOAT = 4


@dataclass(frozen=True, kw_only=True)
class GraphSizes:
    """The sizes of a graph that memory depends on."""

    vertices: int
    edges: int
    features: int
    label_columns: int
    directed: bool
    weighted: bool
    self_loops: bool  # whether some layer adds them
    turned: bool = False  # whether out-edges are not stored, and must be made in memory
    sparse_bytes: int | None = None  # of features that are stored sparse
    edges_in_files: bool = True  # whether they are in a store on this machine
    features_in_files: bool = True
    feature_item: int = FLOAT  # bytes of a stored feature

    @classmethod
    def of(cls, graph: Graph, plan: Plan) -> "GraphSizes":
        """The sizes of a graph, for a program."""
        stored = graph.store is not None and not is_remote(graph.store)
        return cls(
            vertices=graph.num_vertices,
            edges=graph.num_edges,
            features=graph.num_features,
            label_columns=graph.num_classes if graph.multilabel else 1,
            directed=graph.directed,
            weighted=graph.edge_weight is not None,
            self_loops=any(layer.self_loops for layer in plan.layers),
            turned=graph.directed and not _has_out_edges(graph),
            sparse_bytes=graph.features.nbytes if isinstance(graph.features, SparseFeatures) else None,
            edges_in_files=stored,
            features_in_files=stored and not graph.sparse_features,
            feature_item=graph.feature_dtype.itemsize,
        )

    @property
    def edge_bytes(self) -> int:
        """One direction of the edges, with the self loops that are added."""
        return (self.edges + self.vertices * self.self_loops) * self.edge_item

    @property
    def edge_item(self) -> int:
        """An edge's vertex, and its weight where it has one."""
        return 8 if self.weighted else 4

    @property
    def feature_bytes(self) -> int:
        """The features as the graph has them."""
        return self.vertices * self.features * self.feature_item if self.sparse_bytes is None else self.sparse_bytes

    @property
    def vertex_bytes(self) -> int:
        """What stays in memory of every vertex: order, offsets (with loops, and backward too), loops, scale, label."""
        offsets = 8 * (1 + self.self_loops * (1 + self.directed))
        return self.vertices * (4 + offsets + 1 + 4 + 8 * self.weighted + 4 * self.label_columns + 4)


def _has_out_edges(graph: Graph) -> bool:
    return graph.store is not None and not is_remote(graph.store) and open_out_edges(graph.store) is not None


@dataclass(frozen=True, kw_only=True)
class MemoryLayout:
    """Where a run's matrices are, and in how many pieces the work is done.

    ``spill``: which matrices are in files. ``static_blocks``: blocks of columns of the gather that is made once.
    ``half``: what is gathered is stored in two bytes. ``kept``: autograd's graphs stay in memory from forward to
    backward. ``rows``: the number of rows that training needs at each level, ``edges_into``: of edges that end in them;
    None for all of them. ``reordered``: rows are not in the graph's own order.
    """

    spill: SpillPolicy
    static_blocks: int
    intervals: int
    threads: int
    half: bool = False
    kept: bool = True
    rows: tuple[int, ...] | None = None
    edges_into: tuple[int, ...] | None = None
    reordered: bool = False

    def item(self, narrow: bool) -> int:
        """The bytes of a number; ``narrow``: it may be stored in two."""
        return 2 if narrow and self.half else FLOAT


@dataclass
class Figures:
    """Bytes by kind, in memory at the worst moment and in files; and what an epoch reads and writes.

    ``droppable``: the part in memory that is the store's files, read row after row: the kernel can drop it.
    ``matrices``: the most that matrices take at once of all that is in memory.
    """

    resident: Counter[str] = field(default_factory=Counter)
    on_disk: Counter[str] = field(default_factory=Counter)
    read: int = 0
    written: int = 0
    droppable: int = 0
    matrices: int = 0

    @property
    def peak(self) -> int:
        """The most bytes in memory at once."""
        return sum(self.resident.values())
