"""The pool of a run, from its settings."""

import ipaddress
import os
import socket
from collections.abc import Callable

from dorylus.errors import ConfigError, given
from dorylus.pools import making
from dorylus.pools.functions.invocations import Invoked
from dorylus.pools.functions.settings import FunctionsConfig
from dorylus.pools.making import PoolHandle, PoolSettings, make_pool
from dorylus.pools.settings import FunctionSettings

START_PER_SERVER = 100  # functions at most that a server begins with; the tuner goes on from there

SERVICES = {"lambda": "lambda-x86", "lambda-local": "lambda-x86", "http": "cloud-run"}


def service_of(config: FunctionSettings) -> str | None:
    """The row of the price book that a run's functions are billed by; None where they cost nothing of their own."""
    return config.function_service or SERVICES.get(config.pool)


def check_pool(config: FunctionSettings, *, address: str | None, is_local: bool) -> None:
    """Refuse settings that no pool can be made of, before anything is started or written.

    ``is_local``: servers are in this process; functions dial the nodes that servers are on.
    """
    if is_local:
        check_data_host(config)
    making.check_pool(_settings(config, address=address))


def check_data_host(config: FunctionSettings) -> None:
    """Refuse an address for functions to dial that no machine can dial, or that this one cannot listen on."""
    if config.pool in ("threads", "ray") or config.data_path == "inline":
        return
    host, cure = config.data_host, "give this machine's IPv4 address in the network that functions are in"
    try:
        if ipaddress.IPv4Address(host).is_unspecified:
            raise ConfigError(f"{given('data_host', host)}: no machine can dial that address, so {cure}.")
        for port in _data_ports(config):
            socket.create_server((host, port)).close()
    except ValueError:
        raise ConfigError(f"{given('data_host', host)} is no address: {cure}.") from None
    except OSError as error:
        where = f"{given('data_host', host)}, {given('data_port', config.data_port)}"
        raise ConfigError(f"{where}: we cannot listen there ({_reason(error)}): {cure}.") from None


def _reason(error: OSError) -> str:
    # Its own text is longer: it repeats the address.
    return os.strerror(error.errno) if error.errno else str(error)


def _data_ports(config: FunctionSettings) -> tuple[int, int]:
    return (config.data_port, config.data_port + 1) if config.data_port else (0, 0)


def run_pool(
    config: FunctionSettings,
    note: Callable[..., None],
    invoked: Callable[[Invoked], None],
    begins: Callable[[], None] = lambda: None,
    *,
    servers: int,
    intervals: int | None,
    threads: int | None,
    address: str | None,
) -> PoolHandle:
    """The pool of these settings, for the tasks of so many servers, each of so many intervals and threads."""
    settings = _settings(config, servers=servers, intervals=intervals, threads=threads, address=address)
    return make_pool(settings, note, invoked, begins)


def _settings(
    config: FunctionSettings,
    *,
    servers: int = 1,
    intervals: int | None = None,
    threads: int | None = None,
    address: str | None = None,
) -> PoolSettings:
    return PoolSettings(
        name=config.pool,
        functions=config.functions,
        start=servers * min(intervals or 1, START_PER_SERVER),
        workers=threads or 1,
        url=config.function_url,
        function=config.function_name,
        address=address,
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
