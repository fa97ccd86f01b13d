"""Which data path a pool uses: the one asked for, or the direct one where a function says that it can reach us."""

from collections.abc import Callable

from dorylus.errors import ConfigError
from dorylus.pools.faults import PoolFault, Unavailable
from dorylus.pools.remote.data_path import DataPath
from dorylus.pools.remote.data_service import DataService
from dorylus.pools.remote.direct import DirectPath, OpenPorts
from dorylus.pools.remote.functions_config import FunctionsConfig
from dorylus.pools.remote.inline import InlinePath
from dorylus.pools.remote.invocations import Invocations, told
from dorylus.pools.remote.open_task import OpenTask
from dorylus.pools.remote.usage import UsageCounter
from dorylus.pools.remote.weight_versions import WeightVersions

OpenPortsOf = Callable[[FunctionsConfig, DataService], OpenPorts]
PROBES = 3  # how often a function is asked whether it reaches us, if it is lost on the way


class PathChoice:
    """Makes the data path of a run. ``completed`` is told of tasks that functions have pushed the last piece of."""

    def __init__(
        self,
        config: FunctionsConfig,
        invocations: Invocations,
        usage: UsageCounter,
        completed: Callable[[OpenTask], None],
        open_ports: OpenPortsOf,
    ) -> None:
        self._config, self._invocations, self._usage = config, invocations, usage
        self._completed, self._open_ports = completed, open_ports

    def make(self, run: str) -> tuple[DataPath, str]:
        """The path, and why it is this one."""
        asked = self._config.data_path
        if asked == "inline":
            return self._inline(), "asked for"
        if asked == "direct":
            return self._direct(run)[0], "asked for"
        try:
            direct, ports = self._direct(run)
        except ConfigError as error:
            return self._inline(), str(error)
        reached, why = self._probe(ports)
        if reached:
            return direct, why
        direct.close()
        return self._inline(), why

    def _inline(self) -> InlinePath:
        return InlinePath(self._invocations, self._usage, self._config.precision)

    def _direct(self, run: str) -> tuple[DirectPath, OpenPorts]:
        versions = WeightVersions(run)
        service = DataService(versions, self._usage, self._config.precision, self._completed)
        ports = self._open_ports(self._config, service)
        return DirectPath(self._invocations, service, versions, ports, self._config), ports

    def _probe(self, ports: OpenPorts) -> tuple[bool, str]:
        """Whether a function can reach the ports, and how that is known."""
        header = {"probe": True, **ports.dialled().to_header()}
        why, unasked = "", "no function could be asked whether it reaches our data ports"
        for _ in range(PROBES):
            try:
                said = self._invocations.ask("probe", header, {}).header
            except Unavailable as fault:
                return False, f"{unasked}: {fault}"
            except PoolFault as fault:
                why = f"{unasked}: {fault}"
                continue
            if said.get("reached") is True:
                return True, "a function reached our data ports"
            return False, f"no function can reach our data ports: {told(said.get('why', said.get('error', '')))}"
        return False, why
