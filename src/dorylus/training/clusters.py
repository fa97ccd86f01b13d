"""The cluster of a run, from its settings."""

import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dorylus.cluster import Cluster, Job, LocalCluster
from dorylus.graph import Graph
from dorylus.graph.places import full_address
from dorylus.partition import METHODS, save_shards
from dorylus.partition.partitioning import Partitioning
from dorylus.partition.shard_store import SHARDS, structure_of
from dorylus.pools import Made, TensorPool
from dorylus.training.config import RunConfig
from dorylus.training.pooling import run_pool

Note = Callable[..., None]


def make_cluster(job: Job, config: RunConfig, made: Made, note: Note) -> Cluster:
    """The cluster that these settings ask for, ready to train."""
    if config.cluster == "local":
        return LocalCluster(job, made.pool)
    from dorylus.cluster.actors import NodeJob
    from dorylus.cluster.ray import RaySettings, ray_cluster

    assert isinstance(job.graph, Graph)
    store = _stored(job.graph, config)
    node_job = NodeJob(
        job=replace(job, graph=None, saved=None),  # type: ignore[arg-type]
        store=store,
        shards=_sharded(job, job.graph, store, config),
        make_pool=partial(_pool_of_node, config),
    )
    settings = RaySettings(address=config.address, cpus=job.threads)
    return ray_cluster(job, node_job, settings, note)


def _stored(graph: Graph, config: RunConfig) -> str:
    """Where every node opens the graph: its own store, or one written for the run."""
    if graph.store is not None:
        return graph.store
    folder = Path(config.run_dir) if config.run_dir else Path(tempfile.mkdtemp(prefix="dorylus-"))
    path = str(folder.resolve() / "graph")
    graph.save(path, overwrite=True)
    return path


def _sharded(job: Job, graph: Graph, store: str, config: RunConfig) -> str:
    """Where every node opens its shard: the folder named, or one beside the store, written once for all runs."""
    if config.partition not in METHODS:
        return full_address(config.partition)
    name = hashlib.sha256(job.cut.parts.tobytes() + structure_of(graph).to_bytes(8, "little")).hexdigest()[:16]
    path = f"{store}.shards-{config.partition}-{job.cut.num_servers}-{name}"
    if not SHARDS.is_at(path):
        save_shards(path, graph, Partitioning(job.cut.parts, job.cut.num_servers, config.partition))
    return path


def _pool_of_node(config: RunConfig) -> TensorPool:
    return run_pool(config, _unnoted, _unnoted).pool


def _unnoted(*told: Any, **details: Any) -> None:
    """Nobody hears of it."""
