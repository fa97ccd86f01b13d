"""The connection to a parameter server: in order, never waiting longer than it must, and closed while one waits."""

import threading
import time

import numpy as np
import pytest

from dorylus.pipeline import Kind, Task
from dorylus.runtime import remote_weights as parameter_line
from dorylus.runtime.remote_weights import ParameterConnection
from dorylus.wire import DataPort, Frame, RunKeys, WireError

DEADLINE_S = 30.0
TASK = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)


class Port:
    """A port that answers as it is told to, and keeps what it was asked."""

    def __init__(self):
        self.asked, self.may_answer = [], threading.Event()
        self.may_answer.set()
        keys = RunKeys.fresh()
        self.key = keys.client(60.0).to_header()
        self.port = DataPort(keys, self._answer, host="127.0.0.1")

    def line(self):
        return ParameterConnection(self.port.address, self.key, session=7)

    def _answer(self, frame):
        assert frame.header["session"] == 7
        self.asked.append(frame.header.get("number"))
        self.may_answer.wait(DEADLINE_S)
        known = [3] in frame.header.get("known", [])
        return Frame({"version": [3]}, {} if known else {"w": np.ones(4, np.float32)})


@pytest.fixture
def port():
    made = Port()
    yield made
    made.may_answer.set()
    made.port.close()


def test_requests_are_answered_in_the_order_they_came(port):
    line, over = port.line(), threading.Event()
    answers = []
    for number in range(20):
        line.submit({"number": number}, {}, answers.append)
    line.submit({"number": 20}, {}, lambda answer: over.set())
    assert over.wait(DEADLINE_S)
    line.close()
    assert port.asked == list(range(21))
    assert all(isinstance(answer, Frame) for answer in answers)


def test_a_version_is_fetched_once(port):
    line = port.line()
    pulled = [line.pull(TASK, lambda frame: dict(frame.arrays), DEADLINE_S) for _ in range(3)]
    assert line.take_fetched() == 16
    assert line.take_fetched() == 0
    assert pulled[0] is pulled[1] is pulled[2]
    line.close()


def test_who_waits_when_it_is_closed_is_told_at_once(port):
    port.may_answer.clear()
    line, told = port.line(), []
    line.submit({}, {}, told.append)
    line.submit({}, {}, told.append)
    begun = time.monotonic()
    line.close()
    assert time.monotonic() - begun < DEADLINE_S / 2
    assert [type(each) for each in told] == [WireError, WireError]
    assert "the connection was closed" in str(told[0])


def test_a_server_that_is_gone_is_lost_for_good(port, monkeypatch):
    monkeypatch.setattr(parameter_line, "CONNECT_S", 0.5)
    line = port.line()
    line.ask({"number": 1}, {}, DEADLINE_S)
    port.port.close()
    with pytest.raises(WireError):
        line.ask({"number": 2}, {}, DEADLINE_S)
    begun = time.monotonic()
    with pytest.raises(WireError):
        line.ask({"number": 3}, {}, DEADLINE_S)
    assert time.monotonic() - begun < 0.4  # nobody dials again
    line.close()


def test_a_server_that_says_nothing_is_lost(port, monkeypatch):
    monkeypatch.setattr(parameter_line, "ANSWER_S", 0.3)
    port.may_answer.clear()
    line = port.line()
    with pytest.raises(WireError, match="has not answered for"):
        line.ask({}, {}, DEADLINE_S)
    line.close()


def test_who_asks_after_it_was_closed_is_told_at_once(port):
    line = port.line()
    line.close()
    begun = time.monotonic()
    with pytest.raises(WireError, match="session 7 is over"):
        line.pull(TASK, lambda frame: dict(frame.arrays), DEADLINE_S)
    assert time.monotonic() - begun < DEADLINE_S / 2
    assert not port.asked
