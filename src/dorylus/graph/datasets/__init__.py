"""load: a graph by name, by file or by folder."""

from dorylus.graph.datasets.catalogue import load

__all__ = ["load"]
