"""How messages travel over a process's socket; the processes themselves are in the integration tests."""

import socket
import struct
import threading
import time

import numpy as np
import pytest

from dorylus.functions.worker import LENGTH, receive, send
from dorylus.wire import DEFAULT, FrameError


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@pytest.mark.parametrize("parts", [[bytes(24)], [b"ab" * 20, b"", memoryview(b"cd")], [np.arange(3).data] * 700])
def test_parts_arrive_joined(pair, parts):
    one, other = pair
    send(one, parts)
    assert bytes(receive(other)) == b"".join(bytes(part) for part in parts)


def test_a_message_bigger_than_the_sockets_buffer_arrives_whole(pair):
    one, other = pair
    content = np.random.default_rng(0).bytes(8 << 20)
    sender = threading.Thread(target=send, args=(one, [content[:100], content[100:]]))
    sender.start()
    assert bytes(receive(other)) == content
    sender.join()


def test_the_other_end_gone_is_the_end(pair):
    one, other = pair
    one.sendall(LENGTH.pack(100) + b"half")
    one.close()
    with pytest.raises(EOFError):
        receive(other)


def test_a_message_that_goes_on_coming_slowly_is_given_up_when_the_time_is_up(pair):
    one, other = pair
    over = threading.Event()

    def drip():
        one.sendall(LENGTH.pack(1000))
        while not over.wait(0.02):
            one.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    begun_s = time.monotonic()
    with pytest.raises(TimeoutError):
        receive(other, begun_s + 0.2)
    assert time.monotonic() - begun_s < 5
    over.set()
    thread.join()


def test_a_message_that_is_not_read_is_given_up_when_the_time_is_up(pair):
    with pytest.raises(TimeoutError):
        send(pair[0], [bytes(64 << 20)], time.monotonic() + 0.2)


@pytest.mark.parametrize("size", [0, 23, DEFAULT.max_frame_bytes + 1, 2**64 - 1])
def test_a_length_no_frame_has_is_not_waited_for(pair, size):
    one, other = pair
    one.sendall(struct.pack("<Q", size))
    with pytest.raises(EOFError, match=f"an announced message of {size} bytes: a frame has at least 24, and at most"):
        receive(other)


def test_a_message_that_no_frame_can_be_is_not_sent(pair):
    one, other = pair
    with pytest.raises(FrameError, match="a message of 3 bytes"):
        send(one, [b"abc"])
    other.setblocking(False)
    with pytest.raises(BlockingIOError):
        other.recv(1)
