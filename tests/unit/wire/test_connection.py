import socket
import threading

import numpy as np
import pytest

from dorylus.wire import FrameError, WireError, pack
from dorylus.wire import connection as module
from dorylus.wire.connection import HANDSHAKE_S, answer, dial, new_secret

HOST = "127.0.0.1"


def both_ends(ours=None, theirs=None, session=7, its_session=7):
    """Dial a listener that answers: (what dialling gave, what answering gave), errors among them."""
    secret = new_secret()
    answered = []

    def accept(listener):
        link, _ = listener.accept()
        try:
            answered.append(answer(link, theirs or secret, its_session, me=1))
        except (WireError, EOFError, OSError) as error:
            link.close()
            answered.append(error)

    with socket.create_server((HOST, 0)) as listener:
        thread = threading.Thread(target=accept, args=(listener,))
        thread.start()
        try:
            dialled = dial(listener.getsockname(), ours or secret, session, me=0, peer=1)
        except WireError as error:
            dialled = error
        thread.join(HANDSHAKE_S)
    return dialled, answered[0]


@pytest.fixture
def connection():
    ends = both_ends()
    yield ends
    for end in ends:
        end.close()


def test_frames_arrive_as_they_were_sent(connection):
    sender, receiver = connection
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.zeros((0, 4), np.float32)}
    for number in range(3):
        sender.send(pack({"number": number}, arrays))
    for number in range(3):
        frame = receiver.receive()
        assert frame.header == {"number": number}
        assert np.array_equal(frame.arrays["a"], arrays["a"])
        assert frame.arrays["b"].shape == (0, 4)
    assert (sender.peer, receiver.peer) == (1, 0)


def test_frames_that_are_kept_are_not_overwritten_by_those_that_come_after(connection):
    sender, receiver = connection
    kept = []
    for number in range(5):
        sender.send(pack({}, {"rows": np.full((50, 4), number, np.float32)}))
        kept.append(receiver.receive().arrays["rows"][10:][5:, 1])
    assert [set(rows.tolist()) for rows in kept] == [{0}, {1}, {2}, {3}, {4}]


def test_a_frame_larger_than_the_sockets_buffers_arrives_whole(connection):
    sender, receiver = connection
    rows = np.random.default_rng(0).random((2048, 1024), np.float32)
    thread = threading.Thread(target=sender.send, args=(pack({}, {"rows": rows}),))
    thread.start()
    assert np.array_equal(receiver.receive().arrays["rows"], rows)
    thread.join(10)


def test_a_peer_that_does_not_know_the_secret_is_not_answered():
    dialled, answered = both_ends(ours=new_secret())
    assert isinstance(dialled, WireError)  # the dialling end refuses a listener that cannot prove itself, too
    assert isinstance(answered, WireError | EOFError | OSError)


def test_a_listener_that_does_not_know_the_secret_is_refused():
    dialled, _ = both_ends(theirs=new_secret())
    assert "is not server 1 of this run" in str(dialled)


def test_a_peer_of_an_earlier_session_is_not_answered():
    dialled, answered = both_ends(its_session=8)
    assert "closed the connection" in str(dialled)
    assert "no server of this session" in str(answered)


def test_a_proof_is_good_for_one_connection_only():
    """An eavesdropper repeats a recorded handshake, but the challenge is a new one."""
    secret, recorded = new_secret(), bytearray()
    with socket.create_server((HOST, 0)) as tap, socket.create_server((HOST, 0)) as listener:

        def relay():
            with tap.accept()[0] as near, socket.create_connection(listener.getsockname()) as far:
                for source, target, count in ((near, far, 56), (far, near, 64), (near, far, 32)):
                    content = source.recv(count, socket.MSG_WAITALL)
                    recorded.extend(content if source is near else b"")
                    target.sendall(content)

        def call():
            dial(tap.getsockname(), secret, 1, 0, 1).close()

        threads = [threading.Thread(target=work) for work in (relay, call)]
        for thread in threads:
            thread.start()
        answer(listener.accept()[0], secret, 1, me=1).close()
        for thread in threads:
            thread.join(10)
        assert len(recorded) == 56 + 32
        with socket.create_connection(listener.getsockname()) as stranger, listener.accept()[0] as link:
            stranger.sendall(bytes(recorded))
            with pytest.raises(WireError, match="does not know the run's secret"):
                answer(link, secret, 1, me=1)


@pytest.mark.parametrize("noise", [b"", b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(200), b"DRYLINE1" + b"\xff" * 100])
def test_noise_is_refused(noise):
    with socket.create_server((HOST, 0)) as listener, socket.create_connection(listener.getsockname()) as stranger:
        stranger.sendall(noise)
        stranger.shutdown(socket.SHUT_WR)
        with listener.accept()[0] as link, pytest.raises((WireError, EOFError, OSError)):
            answer(link, new_secret(), 1, me=0)


class Trickle:
    """Sends some bytes, one at a time and slowly, until it is stopped or the other end closes."""

    def __init__(self, link, content):
        self._link, self._content, self._stop = link, content, threading.Event()
        self._thread = threading.Thread(target=self._send)

    def _send(self):
        for byte in self._content:
            try:
                self._link.sendall(bytes([byte]))
            except OSError:
                return
            if self._stop.wait(0.02):
                return

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join(10)


@pytest.mark.parametrize("already", [b"", b"hello"], ids=["its hello", "its proof"])
def test_a_stranger_that_sends_slowly_is_dropped(monkeypatch, already):
    monkeypatch.setattr(module, "HELLO_S", 0.2)
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)
    hello = module._HELLO.pack(b"DRYLINE1", 1, 1, 0, bytes(32))
    with socket.create_server((HOST, 0)) as listener, socket.create_connection(listener.getsockname()) as stranger:
        if already:
            stranger.sendall(hello)
        with listener.accept()[0] as link, Trickle(stranger, b"D" * 500), pytest.raises(TimeoutError):
            answer(link, new_secret(), 1, me=0)


def test_a_listener_that_sends_slowly_is_dropped(monkeypatch):
    monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)
    with socket.create_server((HOST, 0)) as listener:

        def talk():
            with listener.accept()[0] as link, Trickle(link, b"D" * 500):
                link.settimeout(10)
                while link.recv(1000):
                    pass

        thread = threading.Thread(target=talk)
        thread.start()
        with pytest.raises(WireError, match="closed the connection"):
            dial(listener.getsockname(), new_secret(), 1, me=0, peer=1)
        thread.join(10)


def test_a_frame_beyond_the_limit_is_refused_before_memory_is_allocated(connection):
    sender, receiver = connection
    head = bytearray(pack({}, {})[0])
    head[16:24] = (1 << 60).to_bytes(8, "little")
    sender.send([bytes(head)])
    with pytest.raises(FrameError, match="at most"):
        receiver.receive()


def test_both_ends_notice_that_one_closes(connection):
    sender, receiver = connection
    waiting = []

    def receive():
        try:
            receiver.receive()
        except (EOFError, OSError) as error:
            waiting.append(error)

    thread = threading.Thread(target=receive)
    thread.start()
    sender.close()
    thread.join(10)
    assert waiting
    with pytest.raises(OSError, match=r"descriptor|closed|Bad"):
        sender.send(pack({}, {}))


def test_an_address_without_a_listener_is_named_in_the_error():
    with socket.create_server((HOST, 0)) as gone:
        address = gone.getsockname()
    with pytest.raises(WireError, match=rf"server 3 at 127\.0\.0\.1:{address[1]} cannot be reached"):
        dial(address, new_secret(), 1, me=0, peer=3)
