import pytest

from dorylus.wire.frames import FrameLimits
from dorylus.wire.pieces import MessageKind, Piece
from dorylus.wire.port import FrameReceiver, Refusal


class Keys:
    """A list of clients without cryptography."""

    def __init__(self):
        self.welcome = {"ann", "bob"}

    def is_welcome(self, name):
        return name in self.welcome


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
def intake(keys, clock):
    return FrameReceiver(keys, FrameLimits(max_frame_bytes=1000), max_pending_bytes=1500, patience_s=30, clock=clock)


def piece(index=0, request=1, total=100, session=5, kind=MessageKind.REQUEST):
    return Piece(kind, index, session, request, total)


def take(intake, piece, content=b"x" * 100, *, connection=b"line", name="ann"):
    def receive(room):
        room[: len(content)] = content[: len(room)]
        return len(content)

    return intake.take(connection, name, piece.to_bytes(), receive)


def refused_as(intake, *args, **options):
    with pytest.raises(Refusal) as caught:
        take(intake, *args, **options)
    return caught.value.counts_as


def test_a_request_in_one_piece_is_whole_at_once(intake):
    asked, content = take(intake, piece())
    assert asked == piece()
    assert bytes(content) == b"x" * 100
    assert intake.pending_bytes == 0


def test_a_request_in_pieces_is_whole_with_the_last(intake):
    assert take(intake, piece(0), b"a" * 60) is None
    assert intake.pending_bytes == 100
    assert bytes(take(intake, piece(1), b"b" * 40)[1]) == b"a" * 60 + b"b" * 40


def test_requests_of_two_connections_do_not_mix(intake):
    take(intake, piece(0), b"a" * 60, connection=b"1")
    take(intake, piece(0), b"c" * 60, connection=b"2", name="bob")
    assert bytes(take(intake, piece(1), b"b" * 40, connection=b"1")[1]) == b"a" * 60 + b"b" * 40
    assert bytes(take(intake, piece(1), b"d" * 40, connection=b"2", name="bob")[1]) == b"c" * 60 + b"d" * 40


def test_a_replay_is_refused_and_gets_no_answer(intake):
    take(intake, piece(request=4))
    for request in (4, 3, 1):
        with pytest.raises(Refusal) as caught:
            take(intake, piece(request=request))
        assert (caught.value.counts_as, caught.value.piece) == ("replays", None)
    assert take(intake, piece(request=5)) is not None


def test_a_replay_over_another_connection_is_refused(intake):
    take(intake, piece(), connection=b"1")
    assert refused_as(intake, piece(), connection=b"2") == "replays"


def test_a_key_that_ends_is_refused_on_an_open_connection(intake, keys):
    take(intake, piece(0), b"a" * 60)
    keys.welcome.remove("ann")
    assert refused_as(intake, piece(1), b"b" * 40) == "expired"
    assert refused_as(intake, piece(request=2)) == "expired"
    assert intake.pending_bytes == 0
    assert take(intake, piece(), name="bob") is not None


def test_a_request_longer_than_a_frame_is_refused_before_memory_is_taken(intake):
    assert refused_as(intake, piece(total=1001)) == "oversize"
    assert refused_as(intake, piece(request=2, total=2**64 - 1)) == "oversize"
    assert intake.pending_bytes == 0


def test_requests_that_are_half_way_in_are_bounded_together(intake):
    take(intake, piece(total=1000), b"a", connection=b"1")
    assert refused_as(intake, piece(total=600), b"a", connection=b"2", name="bob") == "busy"
    take(intake, piece(request=2, total=500), b"a", connection=b"2", name="bob")
    assert intake.pending_bytes == 1500


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
def test_pieces_that_do_not_fit_together_are_garbage(intake, pieces, sizes):
    for each, size in zip(pieces[:-1], sizes[:-1], strict=True):
        take(intake, each, b"a" * size)
    assert refused_as(intake, pieces[-1], b"a" * sizes[-1]) == "garbage"
    assert intake.pending_bytes == 0


def test_a_message_that_does_not_begin_as_one_is_garbage_and_gets_no_answer(intake):
    with pytest.raises(Refusal) as caught:
        intake.take(b"line", "ann", b"hello", lambda room: 0)
    assert (caught.value.counts_as, caught.value.piece) == ("garbage", None)


def test_a_new_request_takes_the_place_of_an_unfinished_one(intake):
    take(intake, piece(0), b"a" * 60)
    assert take(intake, piece(request=2)) is not None
    assert intake.pending_bytes == 0


def test_requests_whose_pieces_stop_coming_are_dropped(intake, clock):
    take(intake, piece(0), b"a" * 60, connection=b"1")
    clock.now = 20
    take(intake, piece(0, session=6), b"a" * 60, connection=b"2")
    assert intake.drop_late() == 0
    clock.now = 31
    assert intake.drop_late() == 1
    assert intake.pending_bytes == 100
