"""Where servers live."""

from dorylus.cluster.cluster import Cluster, EpochReport, ServersLostError
from dorylus.cluster.job import Bounded, Job, Limited, Training
from dorylus.cluster.local import LocalCluster
from dorylus.cluster.outputs import Outputs

__all__ = [
    "Bounded",
    "Cluster",
    "EpochReport",
    "Job",
    "Limited",
    "LocalCluster",
    "Outputs",
    "ServersLostError",
    "Training",
]
