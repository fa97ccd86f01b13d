"""Where dense tasks run.

``services`` invoke functions; ``remote`` makes a pool of a service; ``relaunching`` and ``tuning`` wrap any pool: they
try calls again, and say how many are under way at once. ``making`` puts them together.
"""

from typing import TYPE_CHECKING

from dorylus.lazy import lazy_names

if TYPE_CHECKING:
    from dorylus.pools import ray
    from dorylus.pools.from_config import check_pool, run_pool, service_of
    from dorylus.pools.functions.invocations import Invoked
    from dorylus.pools.making import POOLS, PoolHandle, PoolSettings, make_pool
    from dorylus.pools.pool import PoolFault, TensorPool
    from dorylus.pools.ray import connected
    from dorylus.pools.settings import FunctionSettings
    from dorylus.pools.threads import ThreadsPool

__all__ = [
    "POOLS",
    "FunctionSettings",
    "Invoked",
    "PoolFault",
    "PoolHandle",
    "PoolSettings",
    "TensorPool",
    "ThreadsPool",
    "check_pool",
    "connected",
    "make_pool",
    "ray",
    "run_pool",
    "service_of",
]

__getattr__ = lazy_names(
    __name__,
    {
        ".": "ray",
        "from_config": "check_pool run_pool service_of",
        "functions.invocations": "Invoked",
        "making": "POOLS PoolHandle PoolSettings make_pool",
        "pool": "PoolFault TensorPool",
        "ray": "connected",
        "settings": "FunctionSettings",
        "threads": "ThreadsPool",
    },
)
