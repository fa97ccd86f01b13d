"""Where dense tasks run.

``registry`` lists the pools, ``makers`` makes the pool of a run. ``threads`` and ``ray`` run torch; ``processes``,
``http`` and ``aws_lambda`` invoke functions, and ``functions`` makes a pool of them. ``relaunch``, ``limited`` and
``autotune`` wrap any pool: they retry calls and limit how many are in flight.
"""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.pools.functions.invocations import Invoked
    from dorylus.pools.makers import PoolListeners, PoolRequest, check_pool, make_pool, run_pool, service_of
    from dorylus.pools.pool import PoolFault, PoolHandle, TensorPool, ThreadsPool
    from dorylus.pools.ray import connected
    from dorylus.pools.registry import POOLS, PoolSpec, register, unregister
    from dorylus.pools.settings import FunctionSettings

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
        "pool": "PoolFault PoolHandle TensorPool ThreadsPool",
        "ray": "connected",
        "registry": "POOLS PoolSpec register unregister",
        "settings": "FunctionSettings",
    },
)
