"""metis: METIS through pymetis, an optional package, for graphs that fit into memory several times."""

import numpy as np

from dorylus.errors import ConfigError
from dorylus.extras import optional
from dorylus.graph import Graph, IdArray, OffsetArray, csr_from_edges
from dorylus.partition.edge_reader import EdgeReader
from dorylus.progress import ReportStage, StageProgress

INSTALL = 'pip install "dorylus[metis]"'


def metis_parts(reader: EdgeReader, servers: int, seed: int, tell: ReportStage) -> IdArray:
    """int32 [N]. The weight of a vertex is its in-edges + 1, so edges are balanced and vertices are not.

    Edge weights are ignored: what crosses servers is a row, for any weight. Directed edges count as links in both
    directions.
    """
    graph = reader.graph
    pymetis = optional("pymetis", INSTALL)
    number = pymetis.zero_copy_dtype()
    _check_size(graph, np.iinfo(number).max)
    tell(StageProgress("metis is at work", 0, None, "edges"))
    indptr, indices = _links(graph)
    try:
        found = pymetis.part_graph(
            servers,
            pymetis.CSRAdjacency(indptr.astype(number, copy=False), indices.astype(number, copy=False)),
            vweights=(graph.in_degrees() + 1).astype(number),
            options=pymetis.Options(seed=seed % (2**31 - 1) + 1),  # C's srand treats 0 as 1
        )
    except RuntimeError as error:
        raise ConfigError(
            f"METIS could not cut {graph.name} into {servers} parts: {error}. Use the method 'stream', which needs "
            "little memory."
        ) from error
    return np.array(found.vertex_part, dtype=np.int32)


def _check_size(graph: Graph, largest: int) -> None:
    links = graph.num_edges * (2 if graph.directed else 1)
    if max(links, graph.num_edges + graph.num_vertices) > largest:
        raise ConfigError(
            f"METIS counts links and their weights up to {largest:,} here, but {graph.name} has {links:,} links. Use "
            "the method 'stream', which has no such limit."
        )


def _links(graph: Graph) -> tuple[OffsetArray, IdArray]:
    """The links in either direction, without self loops, which METIS does not allow."""
    source, destination = graph.edge_list()
    proper = source != destination
    if not graph.directed and proper.all():
        return graph.indptr, graph.indices
    indptr, indices, _ = csr_from_edges(source[proper], destination[proper], graph.num_vertices, undirected=True)
    return indptr, indices
