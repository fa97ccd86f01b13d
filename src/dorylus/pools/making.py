"""Pools by name, put together as a run uses them: functions, whose calls are tried again and kept to a good number."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dorylus.errors import ConfigError, given, unknown_name
from dorylus.extras import check_installed
from dorylus.pools import ray
from dorylus.pools.autotune import Autotuned
from dorylus.pools.functions.functions_pool import functions_pool
from dorylus.pools.functions.invocations import FunctionUsage, Invoked
from dorylus.pools.functions.settings import FunctionsConfig
from dorylus.pools.functions.unfused import Unfused
from dorylus.pools.limited import LimitedPool
from dorylus.pools.pacing import Policy
from dorylus.pools.pool import TensorPool
from dorylus.pools.relaunch import Relaunching
from dorylus.pools.services.invoker import Invoker
from dorylus.pools.threads import ThreadsPool
from dorylus.pools.tuner import TunerDecision

Note = Callable[..., None]

REMOTE_AT_MOST = 1000  # what AWS lets an account run at once unless asked for more
LOCAL_AT_MOST = 32  # functions on this machine are processes of some 60 MB each


@dataclass(frozen=True, kw_only=True)
class PoolSettings:
    """Which pool, and how it is used.

    ``functions``: how many calls may be under way, and how many functions, where a call takes several; None finds the
    number while they run, from ``start`` on.
    ``url`` is where ``"http"`` finds its functions, ``function`` the name of the one that ``"lambda"`` invokes,
    ``address`` that of the cluster of ``"ray"``.
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


@dataclass(frozen=True)
class PoolHandle:
    """A pool, and what it has to tell at the end of a run, once it has settled: what it asked for has come."""

    pool: TensorPool
    figures: Callable[[], Mapping[str, Any]] = dict
    settle: Callable[[], None] = lambda: None


def make_pool(
    settings: PoolSettings,
    note: Note,
    invoked: Callable[[Invoked], None],
    begins: Callable[[], None] = lambda: None,
) -> PoolHandle:
    """The pool of these settings; ``note`` hears what it decides, ``invoked`` of every invocation.

    ``begins`` is called before each of them.
    """
    if settings.name == "threads":
        return PoolHandle(ThreadsPool())
    if settings.name == "ray":
        return _ray(settings)
    if settings.name not in INVOKERS:
        raise ConfigError(unknown_name("pool", settings.name, POOLS))
    invoker = INVOKERS[settings.name](settings)
    functions = functions_pool(
        invoker, settings.travel, note=note, invoked=invoked, at_once=lambda: pool.limit, begins=begins
    )
    tried = Relaunching(functions, settings.policy)
    pool = _kept_to_number(tried, settings, note)

    def figures() -> dict[str, Any]:
        used = asdict(sum(functions.usage().values(), FunctionUsage()))
        used["duplicate_parts"] = used.pop("duplicates")
        return {"data_path": functions.data_path, "functions": pool.limit, **asdict(tried.counts), **used}

    whole = pool if settings.fuse else Unfused(pool, keep=not settings.travel.rematerialize)
    return PoolHandle(whole, figures, functions.settle)


def check_pool(settings: PoolSettings) -> None:
    """Refuse settings that no pool can be made of, without starting anything."""
    if settings.name == "ray":
        ray.check_installed()
    elif settings.name in INVOKERS:
        check_installed(f'pool="{settings.name}"', EXTRA_OF[settings.name])
        if settings.name != "lambda-local":  # whose making starts a service
            INVOKERS[settings.name](settings).close()


def _ray(settings: PoolSettings) -> PoolHandle:
    """Tasks on a Ray cluster. Ray tries them again; here they are kept to a number, and in order."""
    tasks = ray.ray_pool(settings.address, settings.policy)
    pool = LimitedPool(tasks, settings.functions or tasks.at_most)
    return PoolHandle(pool if settings.fuse else Unfused(pool), lambda: {"functions": pool.limit, **tasks.figures()})


def _kept_to_number(tried: TensorPool, settings: PoolSettings, note: Note) -> LimitedPool | Autotuned:
    if settings.functions is not None:
        return LimitedPool(tried, settings.functions)
    if settings.name == "processes":
        return LimitedPool(tried, settings.workers)

    def decided(decision: TunerDecision) -> None:
        note("autotune", **asdict(decision))

    at_most = LOCAL_AT_MOST if settings.name == "lambda-local" else max(REMOTE_AT_MOST, settings.start)
    return Autotuned(tried, min(settings.start, at_most), decided=decided, at_most=at_most)


def _processes(settings: PoolSettings) -> Invoker:
    from dorylus.pools.services.processes import ProcessesInvoker

    return ProcessesInvoker(settings.functions or settings.workers)


def _http(settings: PoolSettings) -> Invoker:
    from dorylus.pools.services.http import HttpInvoker

    if settings.url is None:
        raise ConfigError(
            f"{given('pool', 'http')} needs to know where its functions are: give {given('function_url')}."
        )
    return HttpInvoker(settings.url)


def _lambda(settings: PoolSettings) -> Invoker:
    from dorylus.functions import aws_access
    from dorylus.pools.services.aws_lambda import LambdaInvoker

    return LambdaInvoker(aws_access(), settings.function)


def _lambda_local(settings: PoolSettings) -> Invoker:
    from dorylus.pools.services.aws_lambda import local_functions_invoker

    return local_functions_invoker()


INVOKERS: Mapping[str, Callable[[PoolSettings], Invoker]] = {
    "http": _http,
    "lambda": _lambda,
    "lambda-local": _lambda_local,
    "processes": _processes,
}
EXTRA_OF: Mapping[str, str] = {
    "http": "functions",
    "lambda": "lambda",
    "lambda-local": "local-functions",
    "processes": "functions",
}
POOLS = ("threads", "ray", *INVOKERS)

__all__ = ["POOLS", "PoolHandle", "PoolSettings", "make_pool"]
