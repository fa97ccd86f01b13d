import pytest

from dorylus.functions.invocation import DirectTask, Invocation, Ports
from dorylus.wire.frames import FrameError, pack, unpack

PORTS = Ports("tcp://a", "tcp://b", {"secret": "s3cret"})
DIRECT = DirectTask(PORTS, rows=10, part_rows=4, weights="v1", stream=False, timeout_s=2.5)


@pytest.mark.parametrize("direct", [None, DIRECT])
def test_an_invocation_comes_through_a_frame_unchanged(direct):
    sent = Invocation("t", "hash", {"rows.0": 7}, "bf16", direct)
    assert Invocation.from_header(unpack(b"".join(pack(sent.to_header(), {}))).header) == sent


def test_the_repr_of_an_invocation_holds_no_key():
    assert "s3cret" not in repr(Invocation("t", "hash", direct=DIRECT))


@pytest.mark.parametrize(("rows", "part_rows", "parts"), [(10, 4, 3), (8, 4, 2), (1, 4, 1), (0, 4, 0)])
def test_the_last_part_may_have_fewer_rows(rows, part_rows, parts):
    assert DirectTask(PORTS, rows, part_rows, "v").num_parts == parts


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 10**12, "part_rows": 1}, {"rows": 2**63},
        {"rows": -1}, {"rows": "10"}, {"part_rows": 0}, {"timeout_s": 0}, {"timeout_s": float("1e9")},
        {"weights": None}, {"stream": 1}, {"ports": {"rows": "a"}}, {"keys": "k"},
    ],
)  # fmt: skip
def test_a_malformed_header_is_refused(change):
    header = Invocation("t", "hash", direct=DIRECT).to_header() | change
    with pytest.raises(FrameError, match="invocation's"):
        Invocation.from_header(header)
