"""25,000 damaged frames: each is refused or is a frame within its buffer; nothing else is raised, nothing is kept."""

import random
import struct

import numpy as np
import pytest

from dorylus.wire.frames import HEAD, FrameError, pack, unpack

NUM_EACH = 5_000
GOOD = [
    b"".join(pack(header, arrays))
    for header, arrays in [
        ({}, {}),
        ({"task": "7.0.1"}, {"rows.0": np.ones((3, 5), np.float32)}),
        ({"task": "x", "columns": {"rows.0": 9}}, {"a": np.arange(4), "b": np.array(True), "c": np.zeros((0, 3))}),
        ({"n": [1, 2.5, None, "é"]}, {f"weight.{i}": np.full((2, 2), i, np.float16) for i in range(6)}),
    ]
]
EDGES = [0, 1, 2, 23, 24, 63, 64, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1]
SHAPES = [b"[3,5]", b"[-1]", b"[9999999999]", b"[0,18446744073709551616]", b"[[]]", b"{}", b"[1e9]", b"[true]", b"null"]


def noise(rng):
    """Random bytes, half of them after a head with the right sizes."""
    content = rng.randbytes(rng.randrange(200))
    text_bytes = rng.randint(0, len(content))
    head = HEAD.pack(b"DRYL", 1, 0, text_bytes, rng.randrange(3), HEAD.size + len(content))
    return head + content if rng.random() < 0.5 else content


def truncation(rng):
    frame = rng.choice(GOOD)
    start = rng.randrange(len(frame)) if rng.random() < 0.2 else 0
    return frame[start : rng.randrange(len(frame))]


def bit_flips(rng):
    frame = bytearray(rng.choice(GOOD))
    for _ in range(rng.randint(1, 4)):
        frame[rng.randrange(len(frame))] ^= 1 << rng.randrange(8)
    return frame


def lying_head(rng):
    frame = bytearray(rng.choice(GOOD))
    offset, code = rng.choice([(8, "<I"), (12, "<I"), (16, "<Q")])
    struct.pack_into(code, frame, offset, rng.choice(EDGES) if rng.random() < 0.7 else rng.randrange(2**32))
    return frame


def lying_text(rng):
    """JSON with another shape, after a head with the right sizes."""
    text_bytes, num_arrays = struct.unpack_from("<II", frame := rng.choice(GOOD), 8)
    text = bytearray(frame[HEAD.size : HEAD.size + text_bytes])
    at = rng.choice([place for place, byte in enumerate(text) if byte == ord("[")])
    text[at : text.find(b"]", at) + 1] = rng.choice(SHAPES)
    body = frame[HEAD.size + text_bytes :]
    head = HEAD.pack(b"DRYL", 1, 0, len(text), num_arrays, HEAD.size + len(text) + len(body))
    return head + text + body


def resident_bytes():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096


@pytest.mark.parametrize("damage", [noise, truncation, bit_flips, lying_head, lying_text])
def test_a_damaged_frame_is_refused_or_stays_within_its_buffer(damage):
    rng = random.Random(damage.__name__)
    refused = 0
    before = 0
    for number in range(NUM_EACH):
        if number == NUM_EACH // 10:
            before = resident_bytes()
        buffer = damage(rng)
        try:
            frame = unpack(buffer)
        except FrameError:
            refused += 1
            continue
        memory = np.frombuffer(buffer, np.uint8)
        assert sum(array.nbytes for array in frame.arrays.values()) <= len(buffer)
        assert all(np.shares_memory(array, memory) for array in frame.arrays.values() if array.size)
    assert refused > NUM_EACH // 4
    assert resident_bytes() - before < 16 << 20
