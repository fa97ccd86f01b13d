"""Text edge lists: an edge a line, two vertex numbers and perhaps a weight.

Numbers are separated by blanks, tabs or commas; # and % open comments; a header is passed over. Files ending in .gz,
.bz2, .zst or .lz4 are unpacked.
"""

from os import PathLike
from pathlib import Path

import numpy as np

from dorylus.graph.graph import Graph


def load(
    path: str | PathLike[str],
    *,
    directed: bool = False,
    num_vertices: int | None = None,
    skip_lines: int = 0,
    name: str | None = None,
) -> Graph:
    """The graph of the edge list at ``path``; an undirected one (the default) gets the reverse of every edge."""
    from dorylus.ingest import open_edges  # which needs graphs itself

    edges = open_edges(path, format="text", ids="dense", skip_lines=skip_lines)
    sources, destinations, weights, *_ = zip(*edges, strict=True)
    return Graph.from_edges(
        np.concatenate(sources),
        np.concatenate(destinations),
        num_vertices,
        undirected=not directed,
        edge_weight=np.concatenate(weights) if edges.weighted else None,
        name=name or Path(path).name.split(".")[0],
    )
