"""Makes the pool of a run from its settings.

A pool of functions is wrapped twice: one wrapper retries calls, the other limits how many are in flight.
"""

import ipaddress
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dorylus.errors import ConfigError, given
from dorylus.pools import ray
from dorylus.pools.autotune import Autotuned, TunerDecision
from dorylus.pools.functions.functions_pool import functions_pool
from dorylus.pools.functions.invocations import FunctionsConfig, FunctionUsage, Invoked
from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import Invoker, PoolHandle, TensorPool, ThreadsPool
from dorylus.pools.registry import pool_spec
from dorylus.pools.relaunch import Relaunching
from dorylus.pools.settings import FunctionSettings

Note = Callable[..., None]


@dataclass(frozen=True, kw_only=True)
class PoolRequest:
    """The pool to make, and how it is used.

    ``functions``: how many calls may be under way, and how many functions, where a call takes several; None tunes the
    number within the bounds of the pool's spec, from ``start`` on, or uses ``workers`` where the spec has none. ``url``
    is where ``"http"`` finds its functions, ``function`` the name of the one that ``"lambda"`` invokes, ``address``
    that of the cluster of ``"ray"``.
    """

    name: str = "threads"
    functions: int | None = None
    start: int = 1
    workers: int = 1
    url: str | None = None
    function: str = "dorylus"
    address: str | None = None
    fuse: bool = True
    travel: FunctionsConfig = field(default_factory=FunctionsConfig)
    policy: Policy = field(default_factory=Policy)

    @staticmethod
    def of(
        config: FunctionSettings,
        *,
        servers: int = 1,
        intervals: int | None = None,
        threads: int | None = None,
        address: str | None = None,
        keeps_graphs: bool = False,
    ) -> "PoolRequest":
        """The request of these settings, for the tasks of so many servers, each of so many intervals and threads.

        ``keeps_graphs``: forward calls keep what their gradient needs, which is not computed again.
        """
        tuning = pool_spec(config.pool).tuning
        start_per_server = 1 if tuning is None else tuning.start_per_server
        return PoolRequest(
            name=config.pool,
            functions=config.functions,
            start=servers * min(intervals or 1, start_per_server),
            workers=threads or 1,
            url=config.function_url,
            function=config.function_name,
            address=address,
            fuse=config.fuse,
            travel=FunctionsConfig(
                data_path=config.data_path,
                host=config.data_host,
                ports=_data_ports(config),
                precision=config.payload_precision,
                stream=config.stream,
                rematerialize=not keeps_graphs,
            ),
        )


@dataclass(frozen=True, kw_only=True)
class PoolListeners:
    """Callbacks of a pool: ``note(what, **details)`` for its decisions, ``invoked`` for every invocation that ended.

    ``begins`` is called before every invocation.
    """

    note: Note = lambda what, **details: None
    invoked: Callable[[Invoked], None] = lambda invocation: None
    begins: Callable[[], None] = lambda: None


def service_of(config: FunctionSettings) -> str | None:
    """The row of the price book that a run's functions are billed by; None where they cost nothing themselves."""
    return config.function_service or pool_spec(config.pool).service


def check_pool(config: FunctionSettings, *, address: str | None, is_local: bool) -> None:
    """Refuse settings that no pool can be made of, before anything is started or written.

    ``is_local``: servers are in this process; servers on a Ray cluster listen on the nodes they are placed on.
    """
    if is_local:
        check_data_host(config)
    pool_spec(config.pool).check_request(PoolRequest.of(config, address=address))


def run_pool(
    config: FunctionSettings,
    note: Note,
    invoked: Callable[[Invoked], None],
    begins: Callable[[], None] = lambda: None,
    *,
    servers: int,
    intervals: int | None,
    threads: int | None,
    address: str | None,
    keeps_graphs: bool,
) -> PoolHandle:
    """The pool of these settings, for so many servers; the other arguments are those of :meth:`PoolRequest.of`."""
    work: dict[str, Any] = {"servers": servers, "intervals": intervals, "threads": threads}
    request = PoolRequest.of(config, **work, address=address, keeps_graphs=keeps_graphs)
    return make_pool(request, PoolListeners(note=note, invoked=invoked, begins=begins))


def make_pool(request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """The pool that is requested, started."""
    return pool_spec(request.name).make(request, listeners)


def check_data_host(config: FunctionSettings) -> None:
    """Refuse a data_host that functions cannot dial, or that this process cannot listen on."""
    if not pool_spec(config.pool).dials_ports or config.data_path == "inline":
        return
    host, cure = config.data_host, "give this machine's IPv4 address in the network that functions are in"
    try:
        if ipaddress.IPv4Address(host).is_unspecified:
            raise ConfigError(f"{given('data_host', host)}: that address cannot be dialled, so {cure}.")
        for port in _data_ports(config):
            socket.create_server((host, port)).close()
    except ValueError:
        raise ConfigError(f"{given('data_host', host)} is no address: {cure}.") from None
    except OSError as error:
        address = f"{given('data_host', host)}, {given('data_port', config.data_port)}"
        raise ConfigError(f"{address}: this process cannot listen there ({_reason(error)}): {cure}.") from None


def _reason(error: OSError) -> str:
    # The text of the error itself repeats the address.
    return os.strerror(error.errno) if error.errno else str(error)


def _data_ports(config: FunctionSettings) -> tuple[int, int]:
    return (config.data_port, config.data_port + 1) if config.data_port else (0, 0)


def make_threads(request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """Dense tasks in the threads of the engine."""
    return PoolHandle(ThreadsPool())


def make_ray(request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """Dense tasks on a Ray cluster. Ray retries them; the wrapper limits their number and keeps their order."""
    tasks = ray.ray_pool(request.address, request.policy)
    pool = LimitedPool(tasks, request.functions or tasks.at_most)
    return PoolHandle(pool if request.fuse else Unfused(pool), lambda: {"functions": pool.limit, **tasks.figures()})


def make_processes(request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """Functions in processes of this machine."""
    from dorylus.pools.processes import ProcessesInvoker

    return pool_of_functions(ProcessesInvoker(request.functions or request.workers), request, listeners)


def make_http(request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """Functions behind HTTP."""
    return pool_of_functions(_http_invoker(request), request, listeners)


def check_http(request: PoolRequest) -> None:
    """Refuse an address or a token that no request can be sent with."""
    _http_invoker(request).close()


def make_lambda(request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """Functions on AWS Lambda."""
    return pool_of_functions(_lambda_invoker(request), request, listeners)


def check_lambda(request: PoolRequest) -> None:
    """Refuse AWS settings that no client can be made of."""
    _lambda_invoker(request).close()


def make_lambda_local(request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """Functions on a stand-in of AWS Lambda on this machine, which is started here and ends with the pool."""
    from dorylus.pools.aws_lambda import local_functions_invoker

    return pool_of_functions(local_functions_invoker(), request, listeners)


def _http_invoker(request: PoolRequest) -> Invoker:
    from dorylus.pools.http import HttpInvoker

    if request.url is None:
        raise ConfigError(f"{given('pool', 'http')} needs the address of its functions: give {given('function_url')}.")
    return HttpInvoker(request.url)


def _lambda_invoker(request: PoolRequest) -> Invoker:
    from dorylus.functions import aws_access
    from dorylus.pools.aws_lambda import LambdaInvoker

    return LambdaInvoker(aws_access(), request.function)


def pool_of_functions(invoker: Invoker, request: PoolRequest, listeners: PoolListeners) -> PoolHandle:
    """The pool of the functions that an invoker invokes: calls are retried, and limited in number."""
    functions = functions_pool(
        invoker,
        request.travel,
        note=listeners.note,
        invoked=listeners.invoked,
        at_once=lambda: pool.limit,
        begins=listeners.begins,
    )
    relaunching = Relaunching(functions, request.policy)
    pool = _limited(relaunching, request, listeners.note)

    def figures() -> Mapping[str, Any]:
        used = asdict(sum(functions.usage().values(), FunctionUsage()))
        used["duplicate_parts"] = used.pop("duplicates")
        return {"data_path": functions.data_path, "functions": pool.limit, **asdict(relaunching.counts), **used}

    whole = pool if request.fuse else Unfused(pool, keep=not request.travel.rematerialize)
    return PoolHandle(whole, figures, functions.settle)


def _limited(relaunching: TensorPool, request: PoolRequest, note: Note) -> LimitedPool | Autotuned:
    if request.functions is not None:
        return LimitedPool(relaunching, request.functions)
    tuning = pool_spec(request.name).tuning
    if tuning is None:
        return LimitedPool(relaunching, request.workers)

    def decided(decision: TunerDecision) -> None:
        note("autotune", **asdict(decision))

    start = request.start if tuning.at_most is None else min(request.start, tuning.at_most)
    return Autotuned(relaunching, start, decided=decided, at_most=tuning.at_most)
