"""A client with valid keys that breaks the protocol is refused and counted, and the port goes on."""

import random
import time

import numpy as np
import pytest
import zmq

from dorylus.wire import Client, DataPort, Frame, FrameLimits, RunKeys, pack, unpack
from dorylus.wire.pieces import MAX_PIECE_BYTES, MessageKind, Piece
from dorylus.wire.sockets import client_socket

DEADLINE_S = 20.0
LIMITS = FrameLimits(max_frame_bytes=4 << 20)
HELLO = b"".join(pack({"hello": True}, {"x": np.arange(3)}))
NUM_HELLO = len(HELLO)


@pytest.fixture
def keys():
    return RunKeys.fresh()


@pytest.fixture
def answered():
    return []


@pytest.fixture
def port(keys, answered):
    def answer(frame):
        answered.append(frame.header)
        return Frame({"served": len(answered)}, {})

    with DataPort(keys, answer, limits=LIMITS) as port:
        yield port


@pytest.fixture
def dial(keys):
    """Makes bare sockets of clients with valid keys."""
    context, dealers = zmq.Context(), []

    def dial(port, held=None, **options):
        dealer = client_socket(context, held or keys.client(60))
        for name, value in {"SNDTIMEO": int(DEADLINE_S * 1000), "RCVTIMEO": int(DEADLINE_S * 1000), **options}.items():
            dealer.set(getattr(zmq, name), value)
        dealer.connect(port.address)
        dealers.append(dealer)
        return dealer

    yield dial
    context.destroy(linger=0)


@pytest.fixture
def dealer(port, dial):
    return dial(port)


def head(request=1, index=0, total=NUM_HELLO, session=1, kind=MessageKind.REQUEST):
    return Piece(kind, index, session, request, total).to_bytes()


def answer_to(dealer):
    start, content = dealer.recv_multipart()
    return Piece.from_bytes(start), unpack(content).header


def until(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.002)


def served(dealer, request):
    """Whether a valid request still gets its answer."""
    dealer.send_multipart([head(request, session=99), HELLO])
    while True:
        piece, header = answer_to(dealer)
        if (piece.session, piece.request) == (99, request):
            return "served" in header


@pytest.mark.parametrize(
    "message",
    [
        [b""],
        [b"hello"],
        [b"", b""],
        [head()],
        [head(), b""],
        [head(), HELLO, b"more"],
        [head(), HELLO] * 30,
        [b"x" * 32, HELLO],
        [HELLO, head()],
        [head(kind=MessageKind.REPLY), HELLO],
        [head(index=1), HELLO],
        [head(), HELLO + b"x"],
        [head(total=1000), b"x" * 1000],
        [head(), HELLO[:-1], b"x"],
        [head(total=MAX_PIECE_BYTES + 10), b"x" * (MAX_PIECE_BYTES + 10)],
    ],
    ids=range(15),
)
def test_garbage_is_refused_and_counted(dealer, port, answered, message):
    dealer.send_multipart(message)
    until(lambda: port.counts.garbage == 1)
    assert not answered
    assert served(dealer, 2)


def test_garbage_in_a_request_is_answered_with_the_reason(dealer):
    dealer.send_multipart([head(total=100), b"x" * 100])
    piece, header = answer_to(dealer)
    assert (piece.kind, piece.request) == (MessageKind.ERROR, 1)
    assert header == {"error": "this is no frame: it does not begin as one.", "kind": "garbage"}


def test_a_replay_is_refused_and_counted(dealer, port, answered):
    message = [head(), HELLO]
    for _ in range(5):
        dealer.send_multipart(message)
    assert served(dealer, 2)
    assert port.counts.replays == 4
    assert len(answered) == 2


def test_a_replay_over_a_new_connection_is_refused_and_counted(port, keys, dial, answered):
    held = keys.client(60)
    for count in ("served", "replays"):
        dealer = dial(port, held)
        dealer.send_multipart([head(), HELLO])
        until(lambda: getattr(port.counts, count) == 1)  # noqa: B023
        dealer.close()
    assert len(answered) == 1


def test_a_length_beyond_the_limit_is_refused_before_anything_is_kept(dealer, port):
    for request, total in enumerate((LIMITS.max_frame_bytes + 1, 2**40, 2**64 - 1), 1):
        dealer.send_multipart([head(request, total=total), b"x"])
        piece, header = answer_to(dealer)
        assert (piece.request, header["kind"]) == (request, "oversize")
    assert port.counts.oversize == 3
    assert served(dealer, 9)


def test_a_message_too_long_to_be_a_piece_ends_the_connection(dealer, port, keys, answered):
    dealer.send_multipart([head(total=4 << 20), bytes(4 << 20)])
    with Client(port.address, keys.client(60), limits=LIMITS) as honest:
        assert honest.request({}, {}, DEADLINE_S).header == {"served": 1}
    assert answered == [{}]


def test_clients_with_unfinished_requests_do_not_take_all_memory(port, dial):
    for dealer in [dial(port) for _ in range(20)]:
        dealer.send_multipart([head(total=LIMITS.max_frame_bytes), b"x"])
    until(lambda: port.counts.busy == 16)
    assert port.counts.served == 0


def test_a_client_that_never_reads_loses_only_its_own_answers(keys, dial):
    rows = np.zeros(1 << 20, np.uint8)
    limits = FrameLimits(max_frame_bytes=2 << 20)
    with DataPort(keys, lambda frame: Frame({}, {"x": rows}), limits=limits) as port:
        dealer = dial(port, RCVHWM=1, RCVBUF=4096)
        for number in range(1, 300):
            dealer.send_multipart([head(number), HELLO])
        until(lambda: port.counts.undelivered > 0)
        with Client(port.address, keys.client(60)) as honest:
            np.testing.assert_array_equal(honest.request({}, {}, DEADLINE_S).arrays["x"], rows)


def test_ten_thousand_damaged_messages_leave_the_port_as_it_was(dealer, port, answered):
    rng = random.Random(3)
    good = [head(7), HELLO]
    for _ in range(10_000):
        parts = [bytearray(part) for part in good]
        for _ in range(rng.randint(1, 3)):
            part = rng.choice(parts)
            part[rng.randrange(len(part))] ^= 1 << rng.randrange(8)
        dealer.send_multipart([bytes(part) for part in parts[: rng.choice((1, 2, 2, 2))]])
        while dealer.poll(0):
            dealer.recv_multipart()
    assert served(dealer, 1)
    counts = port.counts
    total = counts.garbage + counts.replays + counts.oversize + counts.busy + counts.served + counts.unfinished
    assert counts.garbage > 1000
    assert counts.failed == 0
    assert total + 1000 > 10_000
