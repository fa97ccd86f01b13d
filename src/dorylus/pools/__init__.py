"""Where dense tasks run."""

from dorylus.pools.making import POOLS, Made, PoolSettings, make_pool
from dorylus.pools.pool import TensorPool
from dorylus.pools.threads import ThreadsPool

__all__ = ["POOLS", "Made", "PoolSettings", "TensorPool", "ThreadsPool", "make_pool"]
