"""Runs the servers: the engine, the server processes here or on Ray, and their recovery."""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.runtime.local import LocalRuntime
    from dorylus.runtime.ray import NodeJob, RaySettings, ray_servers, settled_threads
    from dorylus.runtime.remote import RemoteRuntime
    from dorylus.runtime.runtime import (
        EpochDroppedError,
        EpochReport,
        Job,
        Note,
        Outputs,
        PoolNews,
        Runtime,
        ServersLostError,
        Training,
    )
    from dorylus.runtime.settings import ClusterSettings

__all__ = [
    "ClusterSettings",
    "EpochDroppedError",
    "EpochReport",
    "Job",
    "LocalRuntime",
    "NodeJob",
    "Note",
    "Outputs",
    "PoolNews",
    "RaySettings",
    "RemoteRuntime",
    "Runtime",
    "ServersLostError",
    "Training",
    "ray_servers",
    "settled_threads",
]

__getattr__ = lazy_names(
    __name__,
    {
        "local": "LocalRuntime",
        "ray": "NodeJob RaySettings ray_servers settled_threads",
        "remote": "RemoteRuntime",
        "runtime": "EpochDroppedError EpochReport Job Note Outputs PoolNews Runtime ServersLostError Training",
        "settings": "ClusterSettings",
    },
)
