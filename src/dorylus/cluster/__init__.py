"""Where servers live."""

from dorylus.cluster.cluster import Cluster, EpochReport
from dorylus.cluster.job import Job, Training
from dorylus.cluster.local import LocalCluster

__all__ = ["Cluster", "EpochReport", "Job", "LocalCluster", "Training"]
