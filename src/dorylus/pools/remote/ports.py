"""The two data ports of a run: the graph server's rows and the parameter server's weights."""

from dorylus.functions.invocation import Ports
from dorylus.pools.remote.data_service import DataService
from dorylus.pools.remote.functions_config import FunctionsConfig
from dorylus.pools.remote.keyring import Keyring


class DataPorts:
    """Both ports, listening with the same keys; functions get keys that end."""

    def __init__(self, config: FunctionsConfig, service: DataService) -> None:
        from dorylus.wire.keys import RunKeys
        from dorylus.wire.port import DataPort

        keys = RunKeys.fresh()
        self._keyring = Keyring(keys, config.key_lifetime_s)
        rows, weights = config.ports
        advertise = config.advertise
        self._rows = DataPort(keys, service.answer_rows, host=config.host, port=rows, advertise=advertise)
        try:
            self._weights = DataPort(keys, service.answer_weights, host=config.host, port=weights, advertise=advertise)
        except BaseException:
            self._rows.close()
            raise

    def dialled(self) -> Ports:
        """Where functions dial, and with which keys from now on."""
        return Ports(self._rows.address, self._weights.address, self._keyring.header())

    def close(self) -> None:
        """Stop listening."""
        self._rows.close()
        self._weights.close()


def open_ports(config: FunctionsConfig, service: DataService) -> DataPorts:
    """The two ports of a run."""
    return DataPorts(config, service)
