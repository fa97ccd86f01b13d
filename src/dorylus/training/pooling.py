"""The pool of a run, from its settings."""

from collections.abc import Callable

from dorylus.pools import Made, PoolSettings, make_pool
from dorylus.pools.remote.functions_config import FunctionsConfig
from dorylus.pools.remote.invocations import Invoked
from dorylus.training.config import RunConfig

START_PER_SERVER = 100  # functions at most that a server begins with; the tuner goes on from there

SERVICES = {"lambda": "lambda-x86", "lambda-local": "lambda-x86", "http": "cloud-run"}


def service_of(config: RunConfig) -> str | None:
    """The row of the price book that a run's functions are billed by; None where they cost nothing of their own."""
    return config.function_service or SERVICES.get(config.pool)


def run_pool(config: RunConfig, note: Callable[..., None], invoked: Callable[[Invoked], None]) -> Made:
    """The pool that these settings ask for, of a run whose ``intervals`` and ``threads`` are known."""
    settings = PoolSettings(
        name=config.pool,
        functions=config.functions,
        start=config.servers * min(config.intervals or 1, START_PER_SERVER),
        workers=config.threads or 1,
        url=config.function_url,
        function=config.function_name,
        fuse=config.fuse,
        travel=FunctionsConfig(
            data_path=config.data_path,
            precision=config.payload_precision,
            stream=config.stream,
            rematerialize=config.rematerialize is not False,
        ),
    )
    return make_pool(settings, note, invoked)
