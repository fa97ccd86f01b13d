"""The pool of a run, from its settings."""

import ipaddress
import os
import socket
from collections.abc import Callable

from dorylus.config import RunConfig
from dorylus.errors import ConfigError
from dorylus.pools import making
from dorylus.pools.functions.invocations import Invoked
from dorylus.pools.functions.settings import FunctionsConfig
from dorylus.pools.making import PoolHandle, PoolSettings, make_pool

START_PER_SERVER = 100  # functions at most that a server begins with; the tuner goes on from there

SERVICES = {"lambda": "lambda-x86", "lambda-local": "lambda-x86", "http": "cloud-run"}


def service_of(config: RunConfig) -> str | None:
    """The row of the price book that a run's functions are billed by; None where they cost nothing of their own."""
    return config.function_service or SERVICES.get(config.pool)


def check_pool(config: RunConfig) -> None:
    """Refuse settings that no pool can be made of, before anything is started or written."""
    check_data_host(config)
    making.check_pool(_settings(config))


def check_data_host(config: RunConfig) -> None:
    """Refuse an address for functions to dial that nobody can dial, or that we cannot listen on."""
    elsewhere = config.cluster != "local"  # functions dial the nodes that servers are on
    if elsewhere or config.pool in ("threads", "ray") or config.data_path == "inline":
        return
    host, cure = config.data_host, "give this machine's IPv4 address in the network that functions are in"
    try:
        if ipaddress.IPv4Address(host).is_unspecified:
            raise ConfigError(f"data_host={host}: nobody can dial that address, so {cure}.")
        for port in _data_ports(config):
            socket.create_server((host, port)).close()
    except ValueError:
        raise ConfigError(f"data_host={host!r} is no address: {cure}.") from None
    except OSError as error:
        wanted = f"data_host={host}, data_port={config.data_port}"
        raise ConfigError(f"{wanted}: we cannot listen there ({_reason(error)}): {cure}.") from None


def _reason(error: OSError) -> str:
    # Its own text is longer: it repeats the address.
    return os.strerror(error.errno) if error.errno else str(error)


def _data_ports(config: RunConfig) -> tuple[int, int]:
    return (config.data_port, config.data_port + 1) if config.data_port else (0, 0)


def run_pool(
    config: RunConfig,
    note: Callable[..., None],
    invoked: Callable[[Invoked], None],
    begins: Callable[[], None] = lambda: None,
) -> PoolHandle:
    """The pool that these settings ask for, of a run whose ``intervals`` and ``threads`` are known."""
    return make_pool(_settings(config), note, invoked, begins)


def _settings(config: RunConfig) -> PoolSettings:
    return PoolSettings(
        name=config.pool,
        functions=config.functions,
        start=config.servers * min(config.intervals or 1, START_PER_SERVER),
        workers=config.threads or 1,
        url=config.function_url,
        function=config.function_name,
        address=config.address,
        fuse=config.fuse,
        travel=FunctionsConfig(
            data_path=config.data_path,
            host=config.data_host,
            ports=_data_ports(config),
            precision=config.payload_precision,
            stream=config.stream,
            rematerialize=config.rematerialize is not False,
        ),
    )
