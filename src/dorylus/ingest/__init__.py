"""Out-of-core ingest: edge lists bigger than memory become a store.

Edges are read in batches (``readers``), their ids numbered (``ids``), sorted through a scratch file (``spool``,
``kernels.EdgeSort``) and written as they come (``csr_writer``); ``pipeline`` is the order of it all. Vertices may get
another order on the way (``degree_order``, ``vertex_order``). Memory, page cache included, stays within the limit of
the settings, and what memory and disk must have is known before any work (``budget``).
"""

from dorylus.ingest.entry_point import ingest_edges
from dorylus.ingest.pipeline import Ingested
from dorylus.ingest.readers.files import open_edges

__all__ = ["Ingested", "ingest_edges", "open_edges"]
