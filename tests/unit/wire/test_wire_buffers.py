import numpy as np
import pytest

from dorylus.wire.buffers import Buffers


def address(view):
    return np.frombuffer(view, np.uint8).ctypes.data


@pytest.mark.parametrize("num_bytes", [1, 63, 64, 1000, 1 << 20])
def test_buffers_are_aligned_writable_and_as_long_as_asked(num_bytes):
    view = Buffers().take(num_bytes)
    assert len(view) == num_bytes
    assert not view.readonly
    assert address(view) % 64 == 0


def test_a_buffer_nobody_looks_at_is_given_out_again():
    buffers = Buffers()
    view = buffers.take(1000)
    place = address(view)
    del view
    assert address(buffers.take(900)) == place


def test_a_buffer_somebody_looks_at_is_left_alone():
    buffers = Buffers()
    array = np.ndarray((10, 10), np.float32, buffer=buffers.take(400)[:])[2:5]
    array[:] = 7
    for _ in range(20):
        buffers.take(400)[:] = bytes(400)
    assert (array == 7).all()


def test_a_small_request_does_not_take_a_big_buffer():
    buffers = Buffers()
    place = address(buffers.take(1 << 20))
    assert address(buffers.take(100)) != place


def test_no_more_memory_is_kept_than_agreed():
    buffers = Buffers(max_kept=3, max_kept_bytes=10_000)
    held = [buffers.take(1000) for _ in range(20)]
    assert len(buffers._kept) == 3
    assert address(buffers.take(20_000)) % 64 == 0
    assert sum(each.nbytes for each in buffers._kept) <= 10_000
    assert len({address(view) for view in held}) == 20
