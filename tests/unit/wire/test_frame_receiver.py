import pytest

from dorylus.wire.frames import FrameLimits
from dorylus.wire.pieces import MessageKind, Piece
from dorylus.wire.port import FrameReceiver, Refusal


class Keys:
    """A list of clients without cryptography."""

    def __init__(self):
        self.allowed = {"ann", "bob"}

    def is_allowed(self, name):
        return name in self.allowed


class Time:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def keys():
    return Keys()


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def receiver(keys, clock):
    return FrameReceiver(keys, FrameLimits(max_frame_bytes=1000), max_pending_bytes=1500, patience_s=30, clock=clock)


def piece(index=0, request=1, total=100, session=5, kind=MessageKind.REQUEST):
    return Piece(kind, index, session, request, total)


def accept(receiver, piece, content=b"x" * 100, *, connection=b"connection", name="ann"):
    def receive(room):
        room[: len(content)] = content[: len(room)]
        return len(content)

    return receiver.accept(connection, name, piece.to_bytes(), receive)


def refused_as(receiver, *args, **options):
    with pytest.raises(Refusal) as caught:
        accept(receiver, *args, **options)
    return caught.value.counts_as


def test_a_request_in_one_piece_is_whole_at_once(receiver):
    request, content = accept(receiver, piece())
    assert request == piece()
    assert bytes(content) == b"x" * 100
    assert receiver.pending_bytes == 0


def test_a_request_in_pieces_is_whole_with_the_last(receiver):
    assert accept(receiver, piece(0), b"a" * 60) is None
    assert receiver.pending_bytes == 100
    assert bytes(accept(receiver, piece(1), b"b" * 40)[1]) == b"a" * 60 + b"b" * 40


def test_requests_of_two_connections_do_not_mix(receiver):
    accept(receiver, piece(0), b"a" * 60, connection=b"1")
    accept(receiver, piece(0), b"c" * 60, connection=b"2", name="bob")
    assert bytes(accept(receiver, piece(1), b"b" * 40, connection=b"1")[1]) == b"a" * 60 + b"b" * 40
    assert bytes(accept(receiver, piece(1), b"d" * 40, connection=b"2", name="bob")[1]) == b"c" * 60 + b"d" * 40


def test_a_replay_is_refused_and_gets_no_answer(receiver):
    accept(receiver, piece(request=4))
    for request in (4, 3, 1):
        with pytest.raises(Refusal) as caught:
            accept(receiver, piece(request=request))
        assert (caught.value.counts_as, caught.value.piece) == ("replays", None)
    assert accept(receiver, piece(request=5)) is not None


def test_a_replay_over_another_connection_is_refused(receiver):
    accept(receiver, piece(), connection=b"1")
    assert refused_as(receiver, piece(), connection=b"2") == "replays"


def test_a_key_that_ends_is_refused_on_an_open_connection(receiver, keys):
    accept(receiver, piece(0), b"a" * 60)
    keys.allowed.remove("ann")
    assert refused_as(receiver, piece(1), b"b" * 40) == "expired"
    assert refused_as(receiver, piece(request=2)) == "expired"
    assert receiver.pending_bytes == 0
    assert accept(receiver, piece(), name="bob") is not None


def test_a_request_longer_than_a_frame_is_refused_before_memory_is_allocated(receiver):
    assert refused_as(receiver, piece(total=1001)) == "oversize"
    assert refused_as(receiver, piece(request=2, total=2**64 - 1)) == "oversize"
    assert receiver.pending_bytes == 0


def test_requests_that_are_partly_received_are_bounded_together(receiver):
    accept(receiver, piece(total=1000), b"a", connection=b"1")
    assert refused_as(receiver, piece(total=600), b"a", connection=b"2", name="bob") == "busy"
    accept(receiver, piece(request=2, total=500), b"a", connection=b"2", name="bob")
    assert receiver.pending_bytes == 1500


@pytest.mark.parametrize(
    ("pieces", "sizes"),
    [
        ([piece(1)], [60]),
        ([piece(0), piece(2)], [60, 40]),
        ([piece(0), piece(1, total=99)], [60, 40]),
        ([piece(0), piece(1, session=6)], [60, 40]),
        ([piece(0), piece(1, request=2)], [60, 40]),
        ([piece(0)], [101]),
        ([piece(0)], [0]),
        ([piece(0), piece(1)], [60, 41]),
        ([piece(kind=MessageKind.REPLY)], [100]),
        ([piece(0), piece(1, kind=MessageKind.ERROR)], [60, 40]),
    ],
)
def test_pieces_that_do_not_fit_together_are_garbage(receiver, pieces, sizes):
    for each, size in zip(pieces[:-1], sizes[:-1], strict=True):
        accept(receiver, each, b"a" * size)
    assert refused_as(receiver, pieces[-1], b"a" * sizes[-1]) == "garbage"
    assert receiver.pending_bytes == 0


def test_a_message_that_does_not_begin_as_one_is_garbage_and_gets_no_answer(receiver):
    with pytest.raises(Refusal) as caught:
        receiver.accept(b"connection", "ann", b"hello", lambda room: 0)
    assert (caught.value.counts_as, caught.value.piece) == ("garbage", None)


def test_a_new_request_takes_the_place_of_an_unfinished_one(receiver):
    accept(receiver, piece(0), b"a" * 60)
    assert accept(receiver, piece(request=2)) is not None
    assert receiver.pending_bytes == 0


def test_requests_whose_pieces_stop_arriving_are_dropped(receiver, clock):
    accept(receiver, piece(0), b"a" * 60, connection=b"1")
    clock.now = 20
    accept(receiver, piece(0, session=6), b"a" * 60, connection=b"2")
    assert receiver.drop_late() == 0
    clock.now = 31
    assert receiver.drop_late() == 1
    assert receiver.pending_bytes == 100
