"""Where dense tasks run.

``services`` invoke functions; ``remote`` makes a pool of a service; ``relaunching`` and ``tuning`` wrap any pool: they
try calls again, and say how many are under way at once. ``making`` puts them together.
"""

from dorylus.pools.making import POOLS, Made, PoolSettings, make_pool
from dorylus.pools.pool import TensorPool
from dorylus.pools.threads import ThreadsPool

__all__ = ["POOLS", "Made", "PoolSettings", "TensorPool", "ThreadsPool", "make_pool"]
