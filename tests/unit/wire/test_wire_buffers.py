import threading

import numpy as np
import pytest

from dorylus.wire.pieces import Buffers


def address(view):
    return np.frombuffer(view, np.uint8).ctypes.data


@pytest.mark.parametrize("num_bytes", [1, 63, 64, 1000, 1 << 20])
def test_buffers_are_aligned_writable_and_of_the_requested_length(num_bytes):
    view = Buffers().take(num_bytes)
    assert len(view) == num_bytes
    assert not view.readonly
    assert address(view) % 64 == 0


def test_a_buffer_that_nothing_refers_to_is_reused():
    buffers = Buffers()
    view = buffers.take(1000)
    place = address(view)
    del view
    assert address(buffers.take(900)) == place


def test_a_buffer_with_a_view_is_not_reused():
    buffers = Buffers()
    array = np.ndarray((10, 10), np.float32, buffer=buffers.take(400)[:])[2:5]
    array[:] = 7
    for _ in range(20):
        buffers.take(400)[:] = bytes(400)
    assert (array == 7).all()


def as_array(view):
    return np.ndarray((10, 10), np.float32, buffer=view)


REFERENCES = {
    "the view itself": lambda view: view,
    "a slice of the view": lambda view: view[4:8],
    "a cast of a slice of the view": lambda view: view[4:8].cast("f"),
    "an array of the view": as_array,
    "an array of a slice": lambda view: as_array(view[:]),
    "a view of a view of an array": lambda view: as_array(view)[2:][1:].T[::2],
    "an array from its buffer": lambda view: np.frombuffer(view[8:], np.uint8)[4:],
    "a memoryview of an array": lambda view: memoryview(as_array(view)[3:])[1:],
    "an array over the memory of an array": lambda view: np.frombuffer(as_array(view)[3:].data, np.float32),
    "an array of another dtype": lambda view: as_array(view).view(np.int32).reshape(-1)[::7],
    "an array without copying": lambda view: np.asarray(np.asarray(view)[4:]),
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_buffer_stays_as_it_is_while_anything_refers_to_it_and_no_longer(reference):
    buffers = Buffers()
    place = address(view := buffers.take(400))
    kept = REFERENCES[reference](view)
    del view
    assert all(address(buffers.take(400)) != place for _ in range(5))
    del kept
    assert place in {address(buffers.take(400)) for _ in range(5)}


def test_five_frames_that_are_kept_hold_five_contents():
    buffers = Buffers()
    kept = []
    for number in range(5):
        view = buffers.take(400)
        view[:] = bytes([number]) * 400
        kept.append(np.ndarray((20,), np.uint8, buffer=view)[5:])
    assert [int(array[0]) for array in kept] == [0, 1, 2, 3, 4]


def test_a_buffer_that_another_thread_releases_is_reused():
    buffers = Buffers()
    place = address(view := buffers.take(400))
    handed_over = [view]
    del view
    thread = threading.Thread(target=handed_over.clear)
    thread.start()
    thread.join()
    assert address(buffers.take(400)) == place


def test_a_small_request_does_not_take_a_big_buffer():
    buffers = Buffers()
    place = address(buffers.take(1 << 20))
    assert address(buffers.take(100)) != place


def test_no_more_memory_is_kept_than_the_limits_allow():
    buffers = Buffers(max_kept=3, max_kept_bytes=10_000)
    held = [buffers.take(1000) for _ in range(20)]
    assert buffers.kept_bytes <= 3 * (1000 + 64)
    assert address(buffers.take(20_000)) % 64 == 0
    assert 0 < buffers.kept_bytes <= 10_000
    assert len({address(view) for view in held}) == 20
