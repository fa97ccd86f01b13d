"""The known pools: one :class:`PoolSpec` for each, with everything in which dorylus treats pools differently.

Settings, help texts, checks and the bill read the specs, so nothing here imports torch or an optional package: a
spec names its maker, and the maker's module is loaded when the pool is made. A pool defined outside dorylus is one
``register(PoolSpec(...))``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from dorylus.errors import ConfigError, given, unknown_value
from dorylus.extras import check_installed

if TYPE_CHECKING:
    from dorylus.pools.makers import PoolListeners, PoolRequest
    from dorylus.pools.pool import PoolHandle


@dataclass(frozen=True, kw_only=True)
class TuningBounds:
    """The start and the bounds of the search for the number of calls in flight.

    It starts with one call for each interval, at most ``start_per_server`` for each graph server. ``at_most`` None
    stands for 1000 (what AWS lets an account run at once by default), or for the start where that is more.
    """

    start_per_server: int = 100
    at_most: int | None = None


@dataclass(frozen=True, kw_only=True)
class PoolSpec:
    """A pool by its name: how it is made, what it needs, and what it can do.

    - ``maker(request, listeners)`` returns the :class:`PoolHandle`; ``check(request)`` refuses bad settings before
      anything is started. Each is a callable, or ``"module:function"``, which is imported when it is called.
    - ``runs_torch``: it runs the body of a task with torch, so a body may be anything; else it runs exported programs.
    - ``keeps_autograd_graphs``: activations stay in memory for the backward pass unless ``rematerialize`` is set.
    - ``has_functions``: the settings ``functions`` and ``function_url`` apply to it.
    - ``dials_ports``: its functions may dial the data ports, so ``data_host`` and ``data_port`` must be usable.
    - ``takes_address``: the setting ``address`` (of a Ray cluster) applies to it.
    - ``service``: the row of the price book its invocations are billed by; None where they cost nothing themselves.
    - ``extra``: the extra of dorylus that installs what it needs.
    - ``tuning``: the bounds within which the number of calls under way is tuned; None where the maker fixes it.
    """

    name: str
    help: str
    maker: "Callable[[PoolRequest, PoolListeners], PoolHandle] | str"
    check: "Callable[[PoolRequest], None] | str | None" = None
    runs_torch: bool = False
    keeps_autograd_graphs: bool = False
    has_functions: bool = True
    dials_ports: bool = False
    takes_address: bool = False
    service: str | None = None
    extra: str | None = None
    tuning: TuningBounds | None = None

    def make(self, request: "PoolRequest", listeners: "PoolListeners") -> "PoolHandle":
        """The pool, started."""
        made: PoolHandle = _loaded(self.maker)(request, listeners)
        return made

    def check_request(self, request: "PoolRequest") -> None:
        """Refuse a pool whose packages are not installed, or settings that it cannot be made of."""
        if self.extra is not None:
            check_installed(given("pool", self.name), self.extra)
        if self.check is not None:
            _loaded(self.check)(request)


def _loaded(function: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(function, str):
        return function
    module, _, name = function.partition(":")
    loaded: Callable[..., Any] = getattr(import_module(module), name)
    return loaded


POOLS: dict[str, PoolSpec] = {}  # by name, in the order of help texts


def register(spec: PoolSpec) -> None:
    """Make a pool known by its name: from now on it is a value of the setting ``pool``, in this process."""
    if not isinstance(spec.name, str) or spec.name.split() != [spec.name]:
        raise ConfigError(
            f"a pool cannot be registered under the name {spec.name!r}: users write it as a setting, so use one word, "
            "such as 'my-pool'."
        )
    if spec.name in POOLS:
        raise ConfigError(f"pool {spec.name!r} is registered already: choose another name, or unregister it first.")
    POOLS[spec.name] = spec


def unregister(name: str) -> None:
    """Remove a pool that :func:`register` made known."""
    del POOLS[pool_spec(name).name]


def pool_spec(name: str) -> PoolSpec:
    """The spec of a pool; an unknown name is refused with the known ones."""
    if name not in tuple(POOLS):  # a value that cannot be hashed is unknown, too
        raise ConfigError(
            f"{unknown_value('pool', name, POOLS)} A pool of your own is registered in each process that names it, "
            "before it is named (docs/pools.md)."
        )
    return POOLS[name]


_MAKERS = "dorylus.pools.makers"

for _spec in (
    PoolSpec(
        name="threads",
        help="the graph server's own threads",
        maker=f"{_MAKERS}:make_threads",
        runs_torch=True,
        keeps_autograd_graphs=True,
        has_functions=False,
    ),
    PoolSpec(
        name="processes",
        help="functions in processes of this machine",
        maker=f"{_MAKERS}:make_processes",
        dials_ports=True,
        extra="functions",
    ),
    PoolSpec(
        name="ray",
        help="any node of a Ray cluster",
        maker=f"{_MAKERS}:make_ray",
        runs_torch=True,
        takes_address=True,
        extra="ray",
    ),
    PoolSpec(
        name="http",
        help="functions behind HTTP: Cloud Run, Knative, OpenFaaS",
        maker=f"{_MAKERS}:make_http",
        check=f"{_MAKERS}:check_http",
        dials_ports=True,
        service="cloud-run",
        extra="functions",
        tuning=TuningBounds(),
    ),
    PoolSpec(
        name="lambda",
        help="functions on AWS Lambda",
        maker=f"{_MAKERS}:make_lambda",
        check=f"{_MAKERS}:check_lambda",
        dials_ports=True,
        service="lambda-x86",
        extra="lambda",
        tuning=TuningBounds(),
    ),
    PoolSpec(
        name="lambda-local",
        help="functions on a stand-in of AWS Lambda on this machine",
        maker=f"{_MAKERS}:make_lambda_local",
        dials_ports=True,
        service="lambda-x86",
        extra="local-functions",
        tuning=TuningBounds(at_most=32),  # its functions are processes of some 60 MB each
    ),
):
    register(_spec)
