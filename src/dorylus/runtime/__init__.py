"""Where servers live."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.runtime.actors import NodeJob
    from dorylus.runtime.cluster import Cluster, EpochDroppedError, EpochReport, Outputs, ServersLostError
    from dorylus.runtime.job import Job, Training
    from dorylus.runtime.local import LocalCluster
    from dorylus.runtime.node_pool import PoolNews
    from dorylus.runtime.ray import RaySettings, ray_cluster, settled_threads
    from dorylus.runtime.settings import ClusterSettings

__all__ = [
    "Cluster",
    "ClusterSettings",
    "EpochDroppedError",
    "EpochReport",
    "Job",
    "LocalCluster",
    "NodeJob",
    "Outputs",
    "PoolNews",
    "RaySettings",
    "ServersLostError",
    "Training",
    "ray_cluster",
    "settled_threads",
]

__getattr__ = lazy_names(
    __name__,
    {
        "actors": "NodeJob",
        "cluster": "Cluster EpochDroppedError EpochReport Outputs ServersLostError",
        "job": "Job Training",
        "local": "LocalCluster",
        "node_pool": "PoolNews",
        "ray": "RaySettings ray_cluster settled_threads",
        "settings": "ClusterSettings",
    },
)
