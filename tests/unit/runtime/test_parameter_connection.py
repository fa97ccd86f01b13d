"""The connection to a parameter server: answers in order, bounded waits, and closing while a request waits."""

import threading
import time

import numpy as np
import pytest

from dorylus.pipeline import Kind, Task
from dorylus.runtime import remote_weights
from dorylus.runtime.remote_weights import ParameterConnection
from dorylus.wire import DataPort, Frame, RunKeys, WireError

DEADLINE_S = 30.0
TASK = Task(epoch=0, phase=0, interval=0, step=0, kind=Kind.APPLY_VERTEX)


class Port:
    """A port that answers when the test allows it, and records the requests."""

    def __init__(self):
        self.numbers, self.may_answer = [], threading.Event()
        self.may_answer.set()
        keys = RunKeys.fresh()
        self.key = keys.client(60.0).to_header()
        self.port = DataPort(keys, self._answer, host="127.0.0.1")

    def connection(self):
        return ParameterConnection(self.port.address, self.key, session=7)

    def _answer(self, frame):
        assert frame.header["session"] == 7
        self.numbers.append(frame.header.get("number"))
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
    connection, over = port.connection(), threading.Event()
    answers = []
    for number in range(20):
        connection.submit({"number": number}, {}, answers.append)
    connection.submit({"number": 20}, {}, lambda answer: over.set())
    assert over.wait(DEADLINE_S)
    connection.close()
    assert port.numbers == list(range(21))
    assert all(isinstance(answer, Frame) for answer in answers)


def test_a_version_is_fetched_once(port):
    connection = port.connection()
    pulled = [connection.pull(TASK, lambda frame: dict(frame.arrays), DEADLINE_S) for _ in range(3)]
    assert connection.take_fetched() == 16
    assert connection.take_fetched() == 0
    assert pulled[0] is pulled[1] is pulled[2]
    connection.close()


def test_a_waiting_request_fails_at_once_when_the_connection_is_closed(port):
    port.may_answer.clear()
    connection, results = port.connection(), []
    connection.submit({}, {}, results.append)
    connection.submit({}, {}, results.append)
    begun = time.monotonic()
    connection.close()
    assert time.monotonic() - begun < DEADLINE_S / 2
    assert [type(each) for each in results] == [WireError, WireError]
    assert "the connection was closed" in str(results[0])


def test_a_server_that_is_gone_is_lost_for_good(port, monkeypatch):
    monkeypatch.setattr(remote_weights, "CONNECT_S", 0.5)
    connection = port.connection()
    connection.ask({"number": 1}, {}, DEADLINE_S)
    port.port.close()
    with pytest.raises(WireError):
        connection.ask({"number": 2}, {}, DEADLINE_S)
    begun = time.monotonic()
    with pytest.raises(WireError):
        connection.ask({"number": 3}, {}, DEADLINE_S)
    assert time.monotonic() - begun < 0.4  # there is no second attempt to connect
    connection.close()


def test_a_server_that_does_not_answer_is_lost(port, monkeypatch):
    monkeypatch.setattr(remote_weights, "ANSWER_S", 0.3)
    port.may_answer.clear()
    connection = port.connection()
    with pytest.raises(WireError, match="has not answered for"):
        connection.ask({}, {}, DEADLINE_S)
    connection.close()


def test_a_request_on_a_closed_connection_fails_at_once(port):
    connection = port.connection()
    connection.close()
    begun = time.monotonic()
    with pytest.raises(WireError, match="session 7 is over"):
        connection.pull(TASK, lambda frame: dict(frame.arrays), DEADLINE_S)
    assert time.monotonic() - begun < DEADLINE_S / 2
    assert not port.numbers
