"""Connections without keys, with wrong and with expired keys: refused and counted, while other clients are served."""

import logging
import socket
import time
from contextlib import ExitStack, closing, suppress

import numpy as np
import pytest
import zmq

from dorylus.wire import Client, ClientKeys, DataPort, Frame, RunKeys, WireError, pack
from dorylus.wire.pieces import MessageKind, Piece
from dorylus.wire.sockets import client_socket

DEADLINE_S = 30.0
NUM_CONNECTIONS = 1_000
AT_ONCE = 100
SECRET_ROWS = np.full((1000, 16), 42.0, np.float32)


class Time:
    """A clock that stands still until it is moved."""

    now = 1000.0

    def __call__(self):
        return self.now


class Run:
    """A port with secret rows, its keys, and the names of the clients it has answered."""

    def __init__(self):
        self.clock = Time()
        self.keys = RunKeys.fresh(self.clock)
        self.answered = set()
        self.port = DataPort(self.keys, self.answer)

    def answer(self, frame):
        self.answered.add(frame.header["name"])
        return Frame({}, {"rows.0": SECRET_ROWS})

    @property
    def host_and_port(self):
        host, number = self.port.address.removeprefix("tcp://").split(":")
        return host, int(number)


@pytest.fixture
def run():
    run = Run()
    with closing(run.port):
        yield run


@pytest.fixture
def context():
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def keys_of_another_run(run):
    held = RunKeys.fresh().client(60)
    return ClientKeys(held.public, held.secret, run.keys.public, held.expires_at)


def keys_for_another_server(run):
    held = run.keys.client(3600)
    return ClientKeys(held.public, held.secret, RunKeys.fresh().public, held.expires_at)


def expired_keys(run):
    held = run.keys.client(1)
    run.clock.now += 1
    return held


def dial(context, run, keys):
    """A socket that dials once and requests rows as a client does."""
    dealer = context.socket(zmq.DEALER) if keys is None else client_socket(context, keys)
    dealer.set(zmq.LINGER, 0)
    dealer.set(zmq.IMMEDIATE, 0)
    dealer.set(zmq.RECONNECT_IVL, -1)
    dealer.connect(run.port.address)
    content = b"".join(pack({"name": "stranger"}, {}))
    with suppress(zmq.Again):  # refused before it could send
        dealer.send_multipart([Piece(MessageKind.REQUEST, 0, 1, 1, len(content)).to_bytes(), content], zmq.NOBLOCK)
    return dealer


def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize(
    "keys_of_stranger",
    [lambda run: None, keys_of_another_run, keys_for_another_server, expired_keys],
    ids=["without keys", "keys of another run", "keys for another server", "expired keys"],
)
def test_a_thousand_strangers_get_nothing_and_an_honest_client_is_served_meanwhile(run, context, keys_of_stranger):
    with Client(run.port.address, run.keys.client(10 * NUM_CONNECTIONS)) as honest:
        settled = 0
        for done in range(0, NUM_CONNECTIONS, AT_ONCE):
            dealers = [dial(context, run, keys_of_stranger(run)) for _ in range(AT_ONCE)]
            np.testing.assert_array_equal(
                honest.request({"name": "honest"}, {}, DEADLINE_S).arrays["rows.0"], SECRET_ROWS
            )
            until(lambda: run.port.counts.strangers >= done + AT_ONCE)  # noqa: B023
            assert not any(dealer.poll(0, zmq.POLLIN) for dealer in dealers)
            for dealer in dealers:
                dealer.close()
            settled = settled or resident_bytes()
    assert run.answered == {"honest"}
    assert run.port.counts.served == NUM_CONNECTIONS / AT_ONCE
    assert resident_bytes() - settled < 48 << 20


def test_a_thousand_connections_of_noise_get_nothing(run):
    noise = [b"", b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(64), b"\xff" + bytes(8) + b"\x7f\x03" + bytes(53), b"\xff" * 500]
    settled = 0
    for number in range(NUM_CONNECTIONS):
        with socket.create_connection(run.host_and_port, DEADLINE_S) as line:
            line.sendall(noise[number % len(noise)])
        if number == NUM_CONNECTIONS // 10:
            settled = resident_bytes()
    until(lambda: run.port.counts.strangers >= NUM_CONNECTIONS)
    with Client(run.port.address, run.keys.client(60)) as honest:
        honest.request({"name": "honest"}, {}, DEADLINE_S)
    assert run.answered == {"honest"}
    assert resident_bytes() - settled < 48 << 20


def test_silent_connections_do_not_keep_an_honest_client_out(run):
    with ExitStack() as connections:
        for _ in range(200):
            connections.enter_context(socket.create_connection(run.host_and_port, DEADLINE_S))
        with Client(run.port.address, run.keys.client(60)) as honest:
            honest.request({"name": "honest"}, {}, DEADLINE_S)
    assert run.answered == {"honest"}


def test_no_key_is_in_a_log_an_error_or_a_repr(run, caplog):
    caplog.set_level(logging.DEBUG)
    held = [run.keys.client(60), keys_of_another_run(run), expired_keys(run)]
    texts = [repr(run.port), repr(run.keys), str(run.port.counts), *map(repr, held)]
    for keys in held:
        with Client(run.port.address, keys) as client:
            texts.append(repr(client))
            try:
                client.request({"name": "x"}, {}, DEADLINE_S)
            except WireError as error:
                texts.append(f"{error} {error!r}")
    assert sum("refused our key" in text for text in texts) == 2
    texts.append(caplog.text)
    secrets = [run.keys.secret_for_port(), run.keys.public]
    secrets += [text for keys in held for text in (keys.public, keys.secret, keys.server_public)]
    assert not any(secret in text for secret in secrets for text in texts)
