import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.wire.frames import FrameError
from dorylus.wire.pieces import MAX_PIECE_BYTES, PIECE_BYTES, FrameAssembler, MessageKind, Piece, messages, split

PIECE = Piece(MessageKind.REQUEST, index=3, session=2**63 + 1, request=7, total_bytes=2**40)


def test_a_piece_travels_in_32_bytes():
    content = PIECE.to_bytes()
    assert len(content) == 32
    assert Piece.from_bytes(content) == PIECE


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with 32 bytes, but 0 arrived"),
        (bytes(31), "begins with 32 bytes, but 31 arrived"),
        (bytes(32), "not begin with this protocol's magic"),
        (b"DP\x02" + PIECE.to_bytes()[3:], "not begin with this protocol's magic"),
        (b"DP\x01\x09" + PIECE.to_bytes()[4:], "not begin with this protocol's magic"),
        (Piece(MessageKind.REPLY, 0, 0, 0, 100).to_bytes(), "request 0"),
        (Piece(MessageKind.REPLY, 0, 0, 1, 23).to_bytes(), "23 bytes"),
    ],
)
def test_what_is_no_piece_is_refused(content, message):
    with pytest.raises(FrameError, match=message):
        Piece.from_bytes(content)


@given(st.lists(st.integers(0, 200_000), max_size=6))
def test_the_stretches_of_a_frame_are_the_frame(sizes):
    parts = [bytes([number % 251]) * size for number, size in enumerate(sizes)]
    stretches = [bytes(stretch) for stretch in split(parts, 64 << 10)]
    assert b"".join(stretches) == b"".join(parts)
    assert all(len(stretch) <= 64 << 10 for stretch in stretches)


def test_big_parts_are_cut_without_copying():
    array = np.zeros(3 * PIECE_BYTES + 5, np.uint8)
    stretches = list(split([b"head", array.data]))
    assert [len(stretch) for stretch in stretches] == [4, PIECE_BYTES, PIECE_BYTES, PIECE_BYTES, 5]
    assert all(np.shares_memory(np.frombuffer(stretch, np.uint8), array) for stretch in stretches[1:])


def test_small_parts_travel_together():
    assert list(split([b"head", b"", b"one", bytes(61), b"two"])) == [b"headone" + bytes(61) + b"two"]


def test_messages_count_their_pieces():
    heads = [
        Piece.from_bytes(head) for head, _ in messages(Piece(MessageKind.REPLY, 0, 5, 6, 99), [bytes(2 * PIECE_BYTES)])
    ]
    assert [(head.index, head.session, head.request, head.total_bytes) for head in heads] == [
        (0, 5, 6, 99),
        (1, 5, 6, 99),
    ]


def put(assembly, content):
    assembly.room[: len(content)] = content
    return assembly.add(len(content))


def test_pieces_in_order_make_the_frame():
    first = Piece(MessageKind.REPLY, 0, 1, 2, 30)
    assembly = FrameAssembler(first, memoryview(bytearray(30)))
    assert put(assembly, b"a" * 20) is None
    assert assembly.expects(Piece(MessageKind.REPLY, 1, 1, 2, 30))
    assert bytes(put(assembly, b"b" * 10)) == b"a" * 20 + b"b" * 10


@pytest.mark.parametrize(
    "other",
    [
        Piece(MessageKind.REPLY, 0, 1, 2, 30),
        Piece(MessageKind.REPLY, 2, 1, 2, 30),
        Piece(MessageKind.REPLY, 1, 9, 2, 30),
        Piece(MessageKind.REPLY, 1, 1, 3, 30),
        Piece(MessageKind.REPLY, 1, 1, 2, 31),
        Piece(MessageKind.ERROR, 1, 1, 2, 30),
    ],
    ids=["again", "one missing", "session", "request", "length", "kind"],
)
def test_any_other_piece_is_not_expected(other):
    assembly = FrameAssembler(Piece(MessageKind.REPLY, 0, 1, 2, 30), memoryview(bytearray(30)))
    put(assembly, b"a" * 20)
    assert not assembly.expects(other)


@pytest.mark.parametrize("num_bytes", [-1, 0, 31, 2**40])
def test_a_piece_that_is_empty_or_beyond_the_end_is_refused(num_bytes):
    assembly = FrameAssembler(Piece(MessageKind.REPLY, 0, 1, 2, 30), memoryview(bytearray(30)))
    with pytest.raises(FrameError, match="empty, too long or beyond"):
        assembly.add(num_bytes)


def test_a_piece_longer_than_pieces_may_be_is_refused():
    size = 2 * MAX_PIECE_BYTES
    assembly = FrameAssembler(Piece(MessageKind.REPLY, 0, 1, 2, size), memoryview(bytearray(size)))
    with pytest.raises(FrameError, match="too long"):
        assembly.add(MAX_PIECE_BYTES + 1)
