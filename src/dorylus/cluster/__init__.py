"""Where servers live."""

from dorylus.cluster.local import EpochReport, LocalCluster

__all__ = ["EpochReport", "LocalCluster"]
