"""Where servers live."""

from dorylus.cluster.cluster import Cluster, EpochReport
from dorylus.cluster.job import Job, Limited, Training
from dorylus.cluster.local import LocalCluster
from dorylus.cluster.outputs import Outputs

__all__ = ["Cluster", "EpochReport", "Job", "Limited", "LocalCluster", "Outputs", "Training"]
