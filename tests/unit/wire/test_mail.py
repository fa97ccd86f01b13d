import socket
import threading
import time

import numpy as np
import pytest

from dorylus.wire import WireError
from dorylus.wire import peer_transport as module
from dorylus.wire.connection import _HELLO, new_secret
from dorylus.wire.peer_transport import PeerTransport

HOST, SOON_S = "127.0.0.1", 10.0


class Server:
    """A mail room, what it received and what it lost."""

    def __init__(self, number, secret):
        self.number, self.room = number, PeerTransport(HOST, secret, number)
        self.received, self.lost = [], []
        self.told = threading.Condition()
        self.held = threading.Event()
        self.held.set()

    def open(self, session):
        self.room.open(session, self._received, self._lost)

    def _received(self, peer, frame):
        self.held.wait(SOON_S)
        with self.told:
            self.received.append((peer, frame.header["number"], {name: a.copy() for name, a in frame.arrays.items()}))
            self.told.notify_all()

    def _lost(self, peer, why):
        with self.told:
            self.lost.append((peer, why))
            self.told.notify_all()

    def until(self, condition):
        with self.told:
            assert self.told.wait_for(condition, SOON_S)


@pytest.fixture
def servers():
    secret = new_secret()
    made = [Server(number, secret) for number in range(3)]
    yield made
    for server in made:
        server.held.set()
        server.room.close()


def connected(servers, session=1):
    for server in servers:
        server.open(session)
    for server in servers:
        server.room.connect({other.number: other.room.address for other in servers})


def test_everybody_gets_what_is_meant_for_them_in_the_order_it_was_posted(servers):
    connected(servers)
    for number in range(50):
        for sender in servers:
            for peer in {0, 1, 2} - {sender.number}:
                rows = np.full((3, 2), 10 * sender.number + peer, np.float32)
                sender.room.post(peer, {"number": number}, {"rows": rows}, SOON_S)
    for server in servers:
        server.until(lambda server=server: len(server.received) == 100)
        for peer in {0, 1, 2} - {server.number}:
            of_peer = [(number, arrays) for sender, number, arrays in server.received if sender == peer]
            assert [number for number, _ in of_peer] == list(range(50))
            assert all((arrays["rows"] == 10 * peer + server.number).all() for _, arrays in of_peer)


def test_who_posts_waits_while_too_much_waits_and_not_for_ever(servers, monkeypatch):
    monkeypatch.setattr(module, "WAITING_BYTES", 1 << 20)
    connected(servers)
    servers[1].held.clear()  # takes nothing in
    rows = np.zeros((1 << 20,), np.float32)
    start = time.monotonic()

    def post_many():
        for number in range(50):
            servers[0].room.post(1, {"number": number}, {"rows": rows}, 0.3)

    with pytest.raises(WireError, match="took nothing"):
        post_many()
    assert time.monotonic() - start < SOON_S
    servers[0].room.post(1, {"number": 99}, {}, None)  # a word that nobody may wait with
    servers[1].held.set()
    servers[1].until(lambda: servers[1].received and servers[1].received[-1][1] == 99)


def test_a_server_that_goes_is_told_to_those_it_had_lines_with_once(servers):
    connected(servers)
    servers[2].room.close()
    for server in servers[:2]:
        server.until(lambda server=server: server.lost)
        assert [peer for peer, _ in server.lost] == [2]


def test_the_next_session_drops_the_lines_and_the_letters_of_the_last(servers):
    connected(servers)
    servers[1].held.clear()
    servers[0].room.post(1, {"number": 1}, {}, SOON_S)
    servers[1].held.set()
    for server in servers:
        server.open(2)
    for server in servers:
        server.received.clear()
        server.lost.clear()  # whoever was still in the first session saw the others leave it
    for server in servers:
        server.room.connect({other.number: other.room.address for other in servers})
    servers[0].room.post(1, {"number": 2}, {}, SOON_S)
    servers[1].until(lambda: servers[1].received)
    assert [number for _, number, _ in servers[1].received] == [2]
    assert all(not server.lost for server in servers)


def test_what_belongs_to_an_earlier_session_is_not_posted_in_the_next_and_ends_nothing_of_it(servers):
    connected(servers, session=1)
    for server in servers:
        server.open(2)
    with pytest.raises(WireError, match="session 1 is over"):
        servers[0].room.connect({1: servers[1].room.address}, 1)
    for server in servers:
        server.received.clear()
        server.lost.clear()
        server.room.connect({other.number: other.room.address for other in servers}, 2)
    with pytest.raises(WireError, match="session 1 is over"):
        servers[0].room.post(1, {"number": 1}, {}, SOON_S, 1)
    servers[0].room.hang_up(1)
    servers[0].room.post(1, {"number": 2}, {}, SOON_S, 2)
    servers[1].until(lambda: servers[1].received)
    assert [number for _, number, _ in servers[1].received] == [2]
    assert servers[0].room.refused == 2
    assert all(not server.lost for server in servers)


def test_without_a_session_nothing_is_posted_and_nobody_gets_in(servers):
    with pytest.raises(WireError, match="no session"):
        servers[0].room.post(1, {"number": 1}, {}, SOON_S)
    servers[0].open(1)
    with pytest.raises(WireError):
        servers[0].room.connect({1: servers[1].room.address})


def test_strangers_are_refused_counted_and_keep_nobody_out(servers):
    for server in servers:
        server.open(1)
    lines = [socket.create_connection(servers[1].room.address) for _ in range(20)]
    for line in lines[:10]:
        line.sendall(b"\xff" * 100)
    connected(servers)
    servers[0].room.post(1, {"number": 1}, {}, SOON_S)
    servers[1].until(lambda: servers[1].received)
    for line in lines:
        line.close()
    deadline = time.monotonic() + SOON_S
    while servers[1].room.refused < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert servers[1].room.refused >= 20


def unanswered(server, host, count):
    """Connections from a host that say nothing."""
    return [socket.create_connection(server.room.address, SOON_S, (host, 0)) for _ in range(count)]


def test_as_many_silent_strangers_as_are_waited_for_keep_no_peer_out(servers, monkeypatch):
    monkeypatch.setattr(module, "_STRANGERS", 8)
    silent = unanswered(servers[1], HOST, 30)
    connected(servers)
    servers[0].room.post(1, {"number": 1}, {}, SOON_S)
    servers[1].until(lambda: servers[1].received)
    for line in silent:
        line.close()


def test_strangers_of_one_address_make_room_for_each_other_first(servers, monkeypatch):
    monkeypatch.setattr(module, "_STRANGERS", 8)
    for server in servers:
        server.open(1)
    (peer,) = unanswered(servers[1], HOST, 1)
    silent = unanswered(servers[1], "127.0.0.2", 30)
    servers[2].room.connect({1: servers[1].room.address})  # comes in after those before
    peer.sendall(_HELLO.pack(b"DRYLINE1", 1, 0, 1, bytes(32)))
    assert len(peer.recv(64, socket.MSG_WAITALL)) == 64
    for line in [peer, *silent]:
        line.close()
