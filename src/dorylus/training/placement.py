"""Places the servers of a run: from its settings to the job, and to the runtime that runs the job."""

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from dorylus.backends import Backend, NativeBackend
from dorylus.config import RunConfig
from dorylus.errors import ConfigError, given
from dorylus.extras import check_installed
from dorylus.graph import Graph, full_address
from dorylus.partition import METHODS, Partitioning, save_shards_once, structure_of
from dorylus.pools import POOLS, Invoked, PoolHandle, TensorPool, run_pool
from dorylus.runtime import Job, LocalRuntime, Note, Runtime, Training
from dorylus.saga import Program
from dorylus.training.assembly import RunParts, in_host_memory, threads_of
from dorylus.training.run_records import RunRecords


def check_cluster(config: RunConfig, pool: object | None) -> RunConfig:
    """Refuse settings that no runtime fits, before anything is written; returns them with threads that fit."""
    if config.cluster == "local":
        if config.address is not None and not POOLS[config.pool].takes_address:
            raise ConfigError(
                f"{given('address', config.address)} with {given('cluster', 'local')}, which has none: use "
                f"{given('cluster', 'ray')}."
            )
        if config.elastic:
            raise ConfigError(
                f"{given('elastic', True)} with {given('cluster', 'local')}, whose servers cannot be lost: use "
                f"{given('cluster', 'ray')}."
            )
        return config
    if pool is not None:
        raise ConfigError(
            f"{given('cluster', 'ray')} with a pool object, which exists in this process only: give the name of a pool."
        )
    check_installed(given("cluster", "ray"), "ray")  # before importing packages that only Ray's extra installs
    from dorylus.runtime import settled_threads

    return replace(config, threads=settled_threads(config.address, config.servers, config.threads))


def pool_handle(pool: TensorPool | PoolHandle | None) -> PoolHandle | None:
    """The handle of a pool object; refuses an object that is no pool."""
    if pool is None:
        return None
    handle = pool if isinstance(pool, PoolHandle) else PoolHandle(pool)
    also = f"the name of a pool ({', '.join(POOLS)}) or "
    _check_methods("pool", handle.pool, TensorPool, CALLED_ON_A_POOL, also)
    return handle


def check_backend(backend: Backend | None, config: RunConfig) -> Backend:
    """The back end of a run: native by default. Refuses an object that is none, or that settings do not allow."""
    if backend is None:
        return NativeBackend()
    _check_methods("backend", backend, Backend, [name for name in vars(Backend) if name[0] != "_"])
    if config.cluster != "local" and type(backend) is not NativeBackend:
        raise ConfigError(
            f"{given('cluster', config.cluster)} with {given('backend', backend)}, which other processes do not have: "
            f"servers in other processes use the native back end. Leave {given('backend')} out, or use "
            f"{given('cluster', 'local')}."
        )
    if config.memory is not None and not in_host_memory(backend):
        raise ConfigError(
            f"{given('memory', config.memory)} with {given('backend', backend)}, which is no "
            "dorylus.backends.HostBackend: under a limit matrices lie in host memory and in files. Leave "
            f"{given('memory')} out, or {given('backend')}: the native back end keeps a limit."
        )
    return backend


CALLED_ON_A_POOL = ("submit", "close")  # by servers in this process, which cancel no call
NAMED_AT_MOST = 3  # missing methods named in an error


def _check_methods(setting: str, value: object, protocol: type, methods: Iterable[str], also: str = "") -> None:
    """Refuse an object without these methods of a protocol; ``also``: what else the setting takes."""
    missing = [name for name in methods if not callable(getattr(value, name, None))]
    if not missing and not isinstance(value, type):
        return
    more = f" and {len(missing) - NAMED_AT_MOST} more" if len(missing) > NAMED_AT_MOST else ""
    found = f"lacks {', '.join(missing[:NAMED_AT_MOST])}{more}" if missing else "is a class"
    package = protocol.__module__.rpartition(".")[0]
    raise ConfigError(
        f"{given(setting, value)}, which {found}: give {also}an object with the methods of "
        f"{package}.{protocol.__name__}."
    )


def make_runtime(
    job: Job,
    config: RunConfig,
    pool: PoolHandle | None,
    records: RunRecords,
    fewer_servers: Callable[[], Job | None],
) -> Runtime:
    """The runtime of these settings, with a pool of its own unless one is given."""
    assert job.training is not None
    keeps_graphs = job.training.keep_graph
    if config.cluster == "local":
        if pool is None:
            accounts = records.accounts
            listeners = records.note_pool, accounts.invoked, accounts.invocation_begins
            pool = _pool(config, keeps_graphs, config.servers, *listeners)
        return LocalRuntime(job, pool, records.set_up)
    from dorylus.runtime import NodeJob, RaySettings, RemoteRuntime, ray_servers

    graph = job.graph
    assert isinstance(graph, Graph)
    scratch = None if graph.store or config.run_dir else Path(tempfile.mkdtemp(prefix="dorylus-"))

    def remove_scratch() -> None:
        if scratch is not None:
            shutil.rmtree(scratch, ignore_errors=True)

    def place(job: Job) -> Any:
        node_job = NodeJob(
            job=replace(job, graph=None, saved=None),  # type: ignore[arg-type]
            store=store,
            shards=_sharded(job, graph, store, config),
            make_pool=partial(_pool_of_node, replace(config, intervals=job.cut.layouts[0].num_intervals), keeps_graphs),
        )
        return ray_servers(job, node_job, settings)

    settings = RaySettings(address=config.address, cpus=job.threads, revive_s=config.revive_s)
    try:
        store = graph.store or _stored(graph, scratch or Path(config.run_dir or "."))
        return RemoteRuntime(
            job,
            place,
            fewer_servers=fewer_servers,
            note=records.note_servers,
            pool_news=records.pool_news,
            at_close=remove_scratch,
        )
    except BaseException:
        remove_scratch()
        raise


def _stored(graph: Graph, folder: Path) -> str:
    """Write a graph that has no store into a folder, from which every node opens it; returns its path."""
    path = str(folder.resolve() / "graph")
    graph.save(path, overwrite=True)
    return path


def _sharded(job: Job, graph: Graph, store: str, config: RunConfig) -> str:
    """The folder that every node opens its shard from: the named one, or one beside the store, written once.

    Its name is a checksum of the partition and the graph: runs of the same partition share it, others have their own.
    """
    if config.partition not in METHODS:
        return full_address(config.partition)
    name = hashlib.sha256(job.cut.parts.tobytes() + structure_of(graph).to_bytes(8, "little")).hexdigest()[:16]
    path = f"{store}.shards-{config.partition}-{job.cut.num_servers}-{name}"
    save_shards_once(path, graph, Partitioning(job.cut.parts, job.cut.num_servers, config.partition))
    return path


def _pool_of_node(
    config: RunConfig, keeps_graphs: bool, host: str, note: Note, invoked: Callable[[Invoked], None]
) -> PoolHandle:
    """The pool of one graph server; functions connect to the node of that server."""
    return _pool(replace(config, data_host=host), keeps_graphs, 1, note, invoked)


def _pool(
    config: RunConfig,
    keeps_graphs: bool,
    servers: int,
    note: Note,
    invoked: Callable[[Invoked], None],
    begins: Callable[[], None] = lambda: None,
) -> PoolHandle:
    work: dict[str, Any] = {"intervals": config.intervals, "threads": config.threads, "keeps_graphs": keeps_graphs}
    return run_pool(config, note, invoked, begins, servers=servers, address=config.address, **work)


def training_job(
    graph: Graph,
    program: Program,
    parts: RunParts,
    config: RunConfig,
    make_optimizer: Callable[[Any], Optimizer],
    make_lr_schedule: Callable[[Optimizer], LRScheduler | None],
    backend: Backend,
    first_epoch: int = 0,
) -> Job:
    """The job to train a program on a graph from an epoch on, by these settings."""
    training = Training(
        plan=parts.training,
        loss=parts.loss,
        loss_total=parts.loss_total,
        make_optimizer=make_optimizer,
        make_lr_schedule=make_lr_schedule,
        parameter_servers=config.parameter_servers,
        mode=config.mode,
        staleness=config.staleness,
        update=config.weight_update,
        seed=config.seed,
        keep_graph=parts.keeps_graphs,
        first_epoch=first_epoch,
    )
    return Job(
        graph=graph,
        cut=parts.cut,
        saved=parts.saved,
        program=program,
        evaluation=parts.evaluation,
        backend=backend,
        training=training,
        threads=threads_of(config),
        deadline_s=config.deadline_s,
        bf16=config.precision == "bf16",
        ghost_bf16=config.ghost_precision == "bf16",
        limited=None if parts.limits is None else parts.limits.limited,
        bounded=None if parts.limits is None else parts.limits.bounded,
    )
