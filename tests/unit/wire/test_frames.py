import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dorylus.errors import DorylusError
from dorylus.wire import frames
from dorylus.wire.frames import DTYPES, Frame, FrameError, FrameLimits, frame_bytes, pack, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc é", max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
ARRAYS = st.dictionaries(
    st.text("abc.0_é/ ", min_size=1, max_size=6),
    st.sampled_from(sorted(DTYPES)).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    ),
    max_size=4,
)


def joined(header, arrays):
    return b"".join(pack(header, arrays))


def raw(content, payload=b"", **lies):
    """A frame around any JSON text; its head is right except for the fields in ``lies``."""
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    entries = content["arrays"] if isinstance(content, dict) and isinstance(content.get("arrays"), list) else []
    head = {"magic": b"DRYL", "version": 1, "zero": 0, "text": len(text), "arrays": len(entries)} | lies
    padding = bytes(-(24 + len(text)) % 64) if payload else b""
    total = lies.get("total", 24 + len(text) + len(padding) + len(payload))
    packed = struct.pack("<4sHHIIQ", *(head[name] for name in ("magic", "version", "zero", "text", "arrays")), total)
    return packed + text + padding + payload


def one_array(name="x", dtype="float32", shape=(2,), payload=bytes(8)):
    return raw({"header": {}, "arrays": [[name, dtype, list(shape)]]}, payload)


@given(st.dictionaries(st.text(max_size=5).filter(str.isprintable), JSON, max_size=4), ARRAYS)
def test_what_is_packed_is_unpacked(header, arrays):
    frame = unpack(joined(header, arrays))
    assert frame.header == header
    assert list(frame.arrays) == list(arrays)
    for name, array in arrays.items():
        assert frame.arrays[name].dtype == array.dtype
        assert frame.arrays[name].shape == array.shape
        assert frame.arrays[name].tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", sorted(DTYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 4), (2, 0, 3), (2, 3, 4)])
def test_every_dtype_and_shape_travels(dtype, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    back = unpack(joined({}, {"x": array})).arrays["x"]
    assert (back.dtype, back.shape) == (array.dtype, array.shape)
    np.testing.assert_array_equal(back, array)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=np.int64)[::3],
        np.arange(12, dtype=np.int32)[::-1],
        np.asfortranarray(np.arange(12, dtype=np.float64).reshape(3, 4)),
        np.broadcast_to(np.float32(7), (3, 2)),
        np.arange(5, dtype=">i4"),
        np.arange(5, dtype=">f8")[::2],
    ],
    ids=["transposed", "strided", "reversed", "fortran", "broadcast", "big-endian", "big-endian and strided"],
)
def test_arrays_that_are_not_contiguous_or_big_endian_are_converted(array):
    back = unpack(joined({}, {"x": array})).arrays["x"]
    np.testing.assert_array_equal(back, array)
    assert back.dtype.newbyteorder("=") == back.dtype
    assert back.flags.c_contiguous


def test_a_numpy_scalar_travels_as_an_array_without_dimensions():
    assert unpack(joined({}, {"total": np.float32(2.5)})).arrays["total"].shape == ()


def test_packing_copies_no_array():
    arrays = {"a": np.arange(100, dtype=np.float32).reshape(10, 10), "b": np.ones(3, np.int64), "c": np.array(1.5)}
    memory = [np.frombuffer(part, np.uint8) for part in pack({}, arrays)]
    for array in arrays.values():
        assert any(np.shares_memory(part, array) for part in memory)


def test_unpacking_copies_no_array():
    buffer = np.frombuffer(joined({}, {"a": np.arange(9, dtype=np.int16), "b": np.ones((2, 2))}), np.uint8).copy()
    for array in unpack(buffer.data).arrays.values():
        assert np.shares_memory(array, buffer)


def test_arrays_begin_at_multiples_of_64_bytes():
    arrays = {str(size): np.ones(size, np.uint8) for size in (1, 63, 64, 65, 3)}
    buffer = np.frombuffer(joined({"pad": "x" * 7}, arrays), np.uint8)
    for array in unpack(buffer.data).arrays.values():
        assert (array.ctypes.data - buffer.ctypes.data) % 64 == 0


def test_arrays_of_a_writable_buffer_may_be_written():
    frame = unpack(bytearray(joined({}, {"x": np.zeros(3)})))
    frame.arrays["x"][:] = 5
    assert frame.arrays["x"].sum() == 15


def test_the_parts_give_the_length_of_the_frame():
    parts = pack({"task": "a"}, {"x": np.zeros((3, 5), np.float32)})
    assert frame_bytes(parts) == len(b"".join(parts))


def test_a_frame_is_what_the_page_specifies():
    text = b'{"header":{"task":"t"},"arrays":[["x","int16",[2]]]}'
    expected = struct.pack("<4sHHIIQ", b"DRYL", 1, 0, len(text), 1, 128 + 4) + text
    assert joined({"task": "t"}, {"x": np.array([1, -1], np.int16)}) == expected.ljust(128, b"\0") + b"\1\0\xff\xff"


@pytest.mark.parametrize(
    ("header", "arrays", "message"),
    [
        ({}, {"x": np.array(["a"])}, "of dtype <U1"),
        ({}, {"x": np.array([None])}, "of dtype object"),
        ({}, {"x": np.array([1j])}, "of dtype complex128"),
        ({}, {"x": np.zeros(2, [("a", "f4")])}, "of dtype"),
        ({}, {"x": [1, 2]}, "is a list"),
        ({}, {"": np.zeros(1)}, "printable text of 1 to 256"),
        ({}, {"a\n": np.zeros(1)}, "printable text of 1 to 256"),
        ({}, {"x" * 257: np.zeros(1)}, "printable text of 1 to 256"),
        ({}, {"x": np.zeros((1,) * 9)}, "9 dimensions of array 'x' in a frame: at most 8"),
        ({"a": float("nan")}, {}, "plain JSON"),
        ({"a": {1, 2}}, {}, "plain JSON"),
        ({"a": "\ud800"}, {}, "plain JSON"),
        ({"a": "x" * 300_000}, {}, "bytes of JSON in a frame: at most 262144"),
    ],
)
def test_what_no_frame_can_carry_is_refused_when_packed(header, arrays, message):
    with pytest.raises(FrameError, match=message):
        pack(header, arrays)


def test_a_header_with_a_cycle_is_refused():
    header: dict = {}
    header["self"] = header
    with pytest.raises(FrameError, match="plain JSON"):
        pack(header, {})


@pytest.mark.parametrize(
    ("buffer", "message"),
    [
        (b"", "a frame of 0 bytes: a frame has at least 24"),
        (b"DRYL", "a frame of 4 bytes: a frame has at least 24"),
        (b"GET / HTTP/1.1\r\nHost: example", "this is no frame"),
        (raw({"header": {}, "arrays": []}, zero=1), "this is no frame"),
        (raw({"header": {}, "arrays": []}, version=2), "version 2 arrived: this side reads version 1"),
        (raw({"header": {}, "arrays": []}) + b"x", "a frame that declares"),
        (raw({"header": {}, "arrays": []})[:-1], "a frame that declares"),
        (raw({"header": {}, "arrays": []}, total=2**64 - 1), "declares 18446744073709551615 bytes"),
        (raw({"header": {}, "arrays": []}, text=2**32 - 1), "bytes of JSON in a frame: at most"),
        (raw({"header": {}, "arrays": []}, text=200), "200 of them JSON"),
        (raw({"header": {}, "arrays": []}, arrays=2**32 - 1), "4294967295 arrays in a frame: at most 4096"),
        (raw({"header": {}, "arrays": []}, arrays=1), "does not describe that many"),
        (raw(b"{"), "not an object"),
        (raw(b"\xff\xfe"), "not an object"),
        (raw(b"[" * 100_000), "not an object"),
        (raw(b'{"header":{"a":NaN},"arrays":[]}'), "not an object"),
        (raw(b'{"header":{"a":' + b"9" * 5000 + b'},"arrays":[]}'), "not an object"),
        (raw([]), "not an object"),
        (raw({"header": {}}), "not an object"),
        (raw({"header": {}, "arrays": [], "more": 1}), "not an object"),
        (raw({"header": [], "arrays": []}), "header is no object"),
        (raw({"header": {}, "arrays": {}}), "does not describe that many"),
        (raw({"header": {}, "arrays": ["x"]}), "other than name, dtype and shape"),
        (raw({"header": {}, "arrays": [["x", "int8"]]}), "other than name, dtype and shape"),
        (raw({"header": {}, "arrays": [["x", "int8", 3]]}), "other than name, dtype and shape"),
        (one_array(name=7), "an array's name"),
        (one_array(name="\x00"), "an array's name"),
        (one_array(dtype="object"), "a dtype that frames do not carry"),
        (one_array(dtype="<f4"), "a dtype that frames do not carry"),
        (one_array(dtype=["float32"]), "a dtype that frames do not carry"),
        (one_array(shape=(-2,)), "whole numbers from 0 on"),
        (one_array(shape=(2.0,)), "whole numbers from 0 on"),
        (one_array(shape=(True, 2)), "whole numbers from 0 on"),
        (one_array(shape=(1,) * 9), "9 dimensions"),
        (one_array(shape=(2**62, 4)), "bytes of array 'x' in a frame: at most"),
        (one_array(shape=(0, 2**40, 2**40), payload=b""), "bytes of array 'x' in a frame: at most"),
        (one_array(shape=(3,)), "the arrays it names need"),
        (one_array(shape=(1,)), "the arrays it names need"),
        (one_array(dtype="bool", payload=b"\1\2"), "bytes other than 0 and 1"),
        (raw({"header": {}, "arrays": [["x", "int8", [0]], ["x", "int8", [0]]]}, b""), "need"),
    ],
)
def test_what_is_no_frame_is_refused_with_the_reason(buffer, message):
    with pytest.raises(FrameError, match=message):
        unpack(buffer)


def test_two_arrays_of_one_name_are_refused():
    buffer = bytearray(joined({}, {"x": np.zeros(1), "y": np.zeros(1)}))
    buffer[buffer.index(b'"y"') + 1] = ord("x")
    with pytest.raises(FrameError, match="names the array 'x' twice"):
        unpack(buffer)


def test_something_hidden_between_the_arrays_is_refused():
    buffer = bytearray(joined({}, {"x": np.zeros(1, np.int8), "y": np.zeros(1, np.int8)}))
    buffer[-10] = 1
    with pytest.raises(FrameError, match="other than zeros before the array 'y'"):
        unpack(buffer)


@pytest.mark.parametrize(
    "limits",
    [
        FrameLimits(max_frame_bytes=100), FrameLimits(max_header_bytes=40), FrameLimits(max_arrays=1),
        FrameLimits(max_dims=1),
        FrameLimits(max_name_chars=3),
    ],
    ids=repr,
)  # fmt: skip
def test_each_limit_holds_on_both_sides(limits):
    arrays = {"long": np.zeros((2, 2)), "b": np.zeros(1)}
    buffer = joined({}, arrays)
    with pytest.raises(FrameError):
        pack({}, arrays, limits)
    with pytest.raises(FrameError):
        unpack(buffer, limits)
    unpack(buffer)


def test_a_buffer_with_gaps_is_refused():
    with pytest.raises(FrameError, match="contiguous"):
        unpack(memoryview(bytes(100))[::2])


def test_an_error_never_contains_the_header():
    text = b'{"header":{"keys":"sesame"},"arrays":[}'
    with pytest.raises(FrameError) as caught:
        unpack(raw(text))
    assert "sesame" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_frame_errors_are_dorylus_errors():
    assert issubclass(FrameError, DorylusError)
    assert frames.FrameError is FrameError
    assert Frame({}, {}) == Frame({}, {})


def test_an_array_too_big_to_be_sent_is_refused_before_it_is_copied():
    endless = np.broadcast_to(np.float32(0), (1 << 20, 1 << 20))  # four bytes of memory, and a copy of four TiB
    with pytest.raises(FrameError, match=r"a frame of 4398046511\d+ bytes: .* at most 268435456 are accepted"):
        pack({}, {"x": endless})
