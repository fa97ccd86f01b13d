import pytest

from dorylus.errors import ConfigError
from dorylus.functions.invocation import Ports
from dorylus.pools.functions.data_paths import PROBES, PathChoice
from dorylus.pools.functions.invocations import FunctionsConfig, Invocations, UsageCounter
from dorylus.pools.pool import InvocationResponse, Lost, Unavailable
from dorylus.wire.frames import pack, unpack


class Function:
    """Answers probes in order from a list of headers and faults."""

    payload_limit_bytes = None

    def __init__(self, *answers):
        self._answers, self.probes = list(answers), []

    def invoke(self, request, timeout_s):
        self.probes.append(unpack(request).header)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return InvocationResponse(b"".join(pack(answer, {})))

    def close(self):
        pass


class SomePorts:
    def __init__(self):
        self.opened = self.closed = 0

    def open(self, config, service):
        self.opened += 1
        return self

    def dialled(self):
        return Ports("tcp://here:1", "tcp://here:2", {"secret": "s"})

    def close(self):
        self.closed += 1


def choose(data_path, function, ports):
    usage = UsageCounter()
    invocations = Invocations(function, usage, 1.0)
    config = FunctionsConfig(data_path=data_path)
    return PathChoice(config, invocations, usage, lambda task: None, ports.open).make("run")


@pytest.mark.parametrize(("data_path", "opened"), [("inline", 0), ("direct", 1)])
def test_a_requested_path_is_taken_without_a_probe(data_path, opened):
    ports = SomePorts()
    path, why = choose(data_path, Function(), ports)
    assert (path.name, why, ports.opened) == (data_path, "asked for", opened)


def test_auto_takes_the_direct_path_where_a_function_reaches_both_ports():
    function, ports = Function({"reached": True}), SomePorts()
    path, why = choose("auto", function, ports)
    assert (path.name, why, ports.closed) == ("direct", "a function reached our data ports", 0)
    assert function.probes[0]["ports"] == {"rows": "tcp://here:1", "weights": "tcp://here:2"}


def test_auto_takes_the_inline_path_where_none_does_and_closes_the_ports():
    ports = SomePorts()
    path, why = choose("auto", Function({"reached": False, "why": "no route"}), ports)
    assert (path.name, ports.closed) == ("inline", 1)
    assert "no function can reach our data ports: no route" in why


def test_a_lost_probe_is_sent_again():
    path, _ = choose("auto", Function(Lost("gone"), {"reached": True}), SomePorts())
    assert path.name == "direct"


@pytest.mark.parametrize("faults", [[Lost("gone")] * PROBES, [Unavailable("no such function")]])
def test_where_no_probe_is_answered_the_path_is_inline(faults):
    ports = SomePorts()
    path, why = choose("auto", Function(*faults), ports)
    assert (path.name, ports.closed) == ("inline", 1)
    assert why.count(str(faults[0])) == 1


def test_where_ports_cannot_be_opened_auto_reports_why():
    def cannot(config, service):
        raise ConfigError("pyzmq is missing")

    class NoPorts:
        open = staticmethod(cannot)

    path, why = choose("auto", Function(), NoPorts)
    assert (path.name, why) == ("inline", "pyzmq is missing")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data_path": "straight"}, "unknown data_path 'straight'"),
        ({"precision": "int4"}, "unknown precision 'int4'"),
        ({"part_bytes": 0}, "part_bytes=0: use a value above 0"),
        ({"part_rows": -1}, "part_rows=-1: use a value above 0"),
        ({"timeout_s": 0}, "timeout_s=0: use a value above 0"),
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        FunctionsConfig(**settings)
