"""Where dense tasks run.

``services`` invoke functions; ``remote`` makes a pool of a service; ``relaunching`` and ``tuning`` wrap any pool: they
try calls again, and say how many are under way at once. ``making`` puts them together.
"""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.pools.functions.invocations import Invoked
    from dorylus.pools.makers import PoolListeners, PoolRequest, check_pool, make_pool, run_pool, service_of
    from dorylus.pools.pool import PoolFault, PoolHandle, TensorPool
    from dorylus.pools.ray import connected
    from dorylus.pools.registry import POOLS, PoolSpec, register, unregister
    from dorylus.pools.settings import FunctionSettings
    from dorylus.pools.threads import ThreadsPool

__all__ = [
    "POOLS",
    "FunctionSettings",
    "Invoked",
    "PoolFault",
    "PoolHandle",
    "PoolListeners",
    "PoolRequest",
    "PoolSpec",
    "TensorPool",
    "ThreadsPool",
    "check_pool",
    "connected",
    "make_pool",
    "register",
    "run_pool",
    "service_of",
    "unregister",
]

__getattr__ = lazy_names(
    __name__,
    {
        "functions.invocations": "Invoked",
        "makers": "PoolListeners PoolRequest check_pool make_pool run_pool service_of",
        "pool": "PoolFault PoolHandle TensorPool",
        "ray": "connected",
        "registry": "POOLS PoolSpec register unregister",
        "settings": "FunctionSettings",
        "threads": "ThreadsPool",
    },
)
