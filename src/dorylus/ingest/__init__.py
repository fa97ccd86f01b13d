"""Out-of-core ingest: edge lists larger than memory become a store.

``entry_point`` takes files or arrays. Edges are read in batches (``readers``), their ids are numbered
(``numbering``), and ``pipeline`` sorts them through a scratch file and writes the CSR. ``reordering`` sorts vertices by
degree. ``vertex_table`` reads a table of vertices, ``table_values`` the values of its columns. ``attributes`` copies
features, labels and splits. ``budget`` keeps memory, page cache included, within the limit, and checks memory and disk
space before any work.
"""

from dorylus.ingest.entry_point import graph_of_tables, ingest_edges
from dorylus.ingest.pipeline import Ingested
from dorylus.ingest.readers.files import open_edges

__all__ = ["Ingested", "graph_of_tables", "ingest_edges", "open_edges"]
