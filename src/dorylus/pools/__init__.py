"""Where dense tasks run."""

from collections.abc import Callable, Mapping

from dorylus.errors import ConfigError, unknown_name
from dorylus.pools.pool import TensorPool
from dorylus.pools.threads import ThreadsPool

POOLS: Mapping[str, Callable[[], TensorPool]] = {"threads": ThreadsPool}


def make_pool(name: str) -> TensorPool:
    """The pool of this name."""
    if name not in POOLS:
        raise ConfigError(unknown_name("pool", name, POOLS))
    return POOLS[name]()


__all__ = ["POOLS", "TensorPool", "ThreadsPool", "make_pool"]
