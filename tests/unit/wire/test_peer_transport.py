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
    """A transport, the frames it received and the peers it lost."""

    def __init__(self, number, secret):
        self.number, self.transport = number, PeerTransport(HOST, secret, number)
        self.received, self.lost = [], []
        self.changed = threading.Condition()
        self.held = threading.Event()
        self.held.set()

    def open(self, session):
        self.transport.open(session, self._received, self._lost)

    def _received(self, peer, frame):
        self.held.wait(SOON_S)
        with self.changed:
            self.received.append((peer, frame.header["number"], {name: a.copy() for name, a in frame.arrays.items()}))
            self.changed.notify_all()

    def _lost(self, peer, why):
        with self.changed:
            self.lost.append((peer, why))
            self.changed.notify_all()

    def until(self, condition):
        with self.changed:
            assert self.changed.wait_for(condition, SOON_S)


@pytest.fixture
def servers():
    secret = new_secret()
    made = [Server(number, secret) for number in range(3)]
    yield made
    for server in made:
        server.held.set()
        server.transport.close()


def connected(servers, session=1):
    for server in servers:
        server.open(session)
    for server in servers:
        server.transport.connect({other.number: other.transport.address for other in servers})


def test_every_server_receives_its_frames_in_the_order_they_were_posted(servers):
    connected(servers)
    for number in range(50):
        for sender in servers:
            for peer in {0, 1, 2} - {sender.number}:
                rows = np.full((3, 2), 10 * sender.number + peer, np.float32)
                sender.transport.post(peer, {"number": number}, {"rows": rows}, SOON_S)
    for server in servers:
        server.until(lambda server=server: len(server.received) == 100)
        for peer in {0, 1, 2} - {server.number}:
            of_peer = [(number, arrays) for sender, number, arrays in server.received if sender == peer]
            assert [number for number, _ in of_peer] == list(range(50))
            assert all((arrays["rows"] == 10 * peer + server.number).all() for _, arrays in of_peer)


def test_posting_blocks_while_the_queue_is_full_and_not_for_ever(servers, monkeypatch):
    monkeypatch.setattr(module, "WAITING_BYTES", 1 << 20)
    connected(servers)
    servers[1].held.clear()  # reads nothing
    rows = np.zeros((1 << 20,), np.float32)
    start = time.monotonic()

    def post_many():
        for number in range(50):
            servers[0].transport.post(1, {"number": number}, {"rows": rows}, 0.3)

    with pytest.raises(WireError, match="sent nothing"):
        post_many()
    assert time.monotonic() - start < SOON_S
    servers[0].transport.post(1, {"number": 99}, {}, None)  # queued though the queue is full
    servers[1].held.set()
    servers[1].until(lambda: servers[1].received and servers[1].received[-1][1] == 99)


def test_a_server_that_goes_is_reported_once_to_those_connected_to_it(servers):
    connected(servers)
    servers[2].transport.close()
    for server in servers[:2]:
        server.until(lambda server=server: server.lost)
        assert [peer for peer, _ in server.lost] == [2]


def test_the_next_session_drops_the_connections_and_frames_of_the_last(servers):
    connected(servers)
    servers[1].held.clear()
    servers[0].transport.post(1, {"number": 1}, {}, SOON_S)
    servers[1].held.set()
    for server in servers:
        server.open(2)
    for server in servers:
        server.received.clear()
        server.lost.clear()  # a server still in the first session saw the others leave it
    for server in servers:
        server.transport.connect({other.number: other.transport.address for other in servers})
    servers[0].transport.post(1, {"number": 2}, {}, SOON_S)
    servers[1].until(lambda: servers[1].received)
    assert [number for _, number, _ in servers[1].received] == [2]
    assert all(not server.lost for server in servers)


def test_what_belongs_to_an_earlier_session_is_not_posted_in_the_next_and_ends_nothing_of_it(servers):
    connected(servers, session=1)
    for server in servers:
        server.open(2)
    with pytest.raises(WireError, match="session 1 is over"):
        servers[0].transport.connect({1: servers[1].transport.address}, 1)
    for server in servers:
        server.received.clear()
        server.lost.clear()
        server.transport.connect({other.number: other.transport.address for other in servers}, 2)
    with pytest.raises(WireError, match="session 1 is over"):
        servers[0].transport.post(1, {"number": 1}, {}, SOON_S, 1)
    servers[0].transport.disconnect(1)
    servers[0].transport.post(1, {"number": 2}, {}, SOON_S, 2)
    servers[1].until(lambda: servers[1].received)
    assert [number for _, number, _ in servers[1].received] == [2]
    assert servers[0].transport.refused == 2
    assert all(not server.lost for server in servers)


def test_without_a_session_nothing_is_posted_and_no_peer_is_accepted(servers):
    with pytest.raises(WireError, match="no session"):
        servers[0].transport.post(1, {"number": 1}, {}, SOON_S)
    servers[0].open(1)
    with pytest.raises(WireError):
        servers[0].transport.connect({1: servers[1].transport.address})


def test_strangers_are_refused_and_counted_and_keep_no_peer_out(servers):
    for server in servers:
        server.open(1)
    links = [socket.create_connection(servers[1].transport.address) for _ in range(20)]
    for link in links[:10]:
        link.sendall(b"\xff" * 100)
    connected(servers)
    servers[0].transport.post(1, {"number": 1}, {}, SOON_S)
    servers[1].until(lambda: servers[1].received)
    for link in links:
        link.close()
    deadline = time.monotonic() + SOON_S
    while servers[1].transport.refused < 20 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert servers[1].transport.refused >= 20


def unanswered(server, host, count):
    """Connections from a host that send nothing."""
    return [socket.create_connection(server.transport.address, SOON_S, (host, 0)) for _ in range(count)]


def test_as_many_silent_strangers_as_are_allowed_keep_no_peer_out(servers, monkeypatch):
    monkeypatch.setattr(module, "_MAX_UNPROVEN", 8)
    silent = unanswered(servers[1], HOST, 30)
    connected(servers)
    servers[0].transport.post(1, {"number": 1}, {}, SOON_S)
    servers[1].until(lambda: servers[1].received)
    for link in silent:
        link.close()


def test_strangers_of_one_address_make_room_for_each_other_first(servers, monkeypatch):
    monkeypatch.setattr(module, "_MAX_UNPROVEN", 8)
    for server in servers:
        server.open(1)
    (peer,) = unanswered(servers[1], HOST, 1)
    silent = unanswered(servers[1], "127.0.0.2", 30)
    servers[2].transport.connect({1: servers[1].transport.address})  # accepted after those before
    peer.sendall(_HELLO.pack(b"DRYLINE1", 1, 0, 1, bytes(32)))
    assert len(peer.recv(64, socket.MSG_WAITALL)) == 64
    for link in [peer, *silent]:
        link.close()


def test_closing_waits_for_the_threads_of_connections_that_never_proved_themselves(servers):
    silent = unanswered(servers[1], HOST, 40)
    servers[1].transport.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "dorylus-peer-receive"]
    for link in silent:
        link.close()
