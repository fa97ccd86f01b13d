"""The cluster of a run, from its settings."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from dorylus.cluster import Cluster, Job, LocalCluster
from dorylus.cluster.node_pool import PoolNews
from dorylus.errors import ConfigError
from dorylus.graph import Graph
from dorylus.graph.places import full_address
from dorylus.paging import Tell
from dorylus.paging.stage import silent
from dorylus.partition import METHODS
from dorylus.partition.partitioning import Partitioning
from dorylus.partition.shard_store import save_shards_once, structure_of
from dorylus.pools import Made, ray
from dorylus.pools.remote.invocations import Invoked
from dorylus.training.config import RunConfig
from dorylus.training.pooling import run_pool

Note = Callable[..., None]


@dataclass(frozen=True)
class Ears:
    """Who hears what: what becomes of servers, what pools note, every invocation, and how far set-up is.

    ``begins`` is called before every invocation of a pool in this process.
    """

    cluster: Note
    pool: Note
    invoked: Callable[[Invoked], None]
    set_up: Tell = silent
    begins: Callable[[], None] = lambda: None

    def news(self, news: PoolNews) -> None:
        """Hear what the pool of a server elsewhere has to tell."""
        for what, details in news.notes:
            self.pool(what, **details)
        for invocation in news.invoked:
            self.invoked(invocation)


@dataclass(frozen=True)
class Running:
    """A cluster that runs, and what its pools have to tell at the end, once they have settled."""

    cluster: Cluster
    figures: Callable[[], Mapping[str, Any]]
    settle: Callable[[], None]
    ready: Callable[[], None] = lambda: None  # waits until it has begun
    drop: Callable[[], None] = lambda: None  # gives up the epoch in hand, from any thread
    scratch: Path | None = None  # a folder to be removed when it is closed
    peaks: Callable[[], list[int]] = list  # of the memory of graph servers in processes of their own, bytes

    def close(self) -> None:
        """Stop everything."""
        self.cluster.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def check_cluster(config: RunConfig, pool: object | None) -> RunConfig:
    """Refuse what no cluster can be made of, before anything is written; the settings, with threads that fit it."""
    if config.cluster == "local":
        if config.address is not None and config.pool != "ray":
            raise ConfigError(f"address={config.address!r} with cluster='local', which has none: use cluster='ray'.")
        if config.elastic:
            raise ConfigError("elastic=True with cluster='local', whose servers cannot be lost: use cluster='ray'.")
        return config
    if pool is not None:
        raise ConfigError("cluster='ray' with a pool object, which lives in this process: give the name of a pool.")
    ray.check_installed('cluster="ray"')  # before what imports the packages that Ray's extra brings
    from dorylus.cluster.ray import settled_threads

    return replace(config, threads=settled_threads(config.address, config.servers, config.threads))


def make_cluster(job: Job, config: RunConfig, given: Made | None, ears: Ears) -> Running:
    """The cluster that these settings ask for, ready to train, with its own pool unless one is given."""
    if config.cluster == "local":
        made = run_pool(config, ears.pool, ears.invoked, ears.begins) if given is None else given
        local = LocalCluster(job, made.pool, ears.set_up)
        return Running(local, made.figures, made.settle, drop=local.drop_epoch)
    from dorylus.cluster.actors import NodeJob
    from dorylus.cluster.ray import RaySettings, ray_cluster

    assert isinstance(job.graph, Graph)
    scratch = None if job.graph.store or config.run_dir else Path(tempfile.mkdtemp(prefix="dorylus-"))
    try:
        store = job.graph.store or _stored(job.graph, scratch or Path(config.run_dir or "."))
        node_job = NodeJob(
            job=replace(job, graph=None, saved=None),  # type: ignore[arg-type]
            store=store,
            shards=_sharded(job, job.graph, store, config),
            make_pool=partial(_pool_of_node, config),
        )
        settings = RaySettings(address=config.address, cpus=job.threads, revive_s=config.revive_s)
        cluster = ray_cluster(job, node_job, settings, note=ears.cluster, hear=ears.news)
    except BaseException:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)
        raise
    return Running(
        cluster, cluster.figures, cluster.settle, cluster.ready, cluster.drop_epoch, scratch, lambda: cluster.peaks
    )


def _stored(graph: Graph, folder: Path) -> str:
    """Where every node opens a graph that has no store: one written for the run."""
    path = str(folder.resolve() / "graph")
    graph.save(path, overwrite=True)
    return path


def _sharded(job: Job, graph: Graph, store: str, config: RunConfig) -> str:
    """Where every node opens its shard: the folder named, or one beside the store, written once for all runs.

    Its name is made from what was cut and how: runs of the same cut share it, and no run touches that of another cut.
    """
    if config.partition not in METHODS:
        return full_address(config.partition)
    name = hashlib.sha256(job.cut.parts.tobytes() + structure_of(graph).to_bytes(8, "little")).hexdigest()[:16]
    path = f"{store}.shards-{config.partition}-{job.cut.num_servers}-{name}"
    save_shards_once(path, graph, Partitioning(job.cut.parts, job.cut.num_servers, config.partition))
    return path


def _pool_of_node(config: RunConfig, host: str, note: Note, invoked: Callable[[Invoked], None]) -> Made:
    """The pool of one graph server: functions dial the node that it is on."""
    return run_pool(replace(config, servers=1, data_host=host), note, invoked)
