"""Checksums of bytes: those of zlib."""

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.backends import native

CONTENT = np.random.default_rng(3).integers(0, 256, 1 << 17, np.uint8)


@given(st.integers(0, 300), st.integers(0, 3000), st.integers(0, (1 << 32) - 1))
def test_the_checksum_is_that_of_zlib_wherever_the_bytes_begin_and_end(begin, size, before):
    part = CONTENT[begin : begin + size]
    assert native.crc32(part, before) == zlib.crc32(part.data, before)


@pytest.mark.parametrize("size", [1 << 16, (1 << 17) - 1])
def test_long_bytes_have_the_checksum_of_zlib(size):
    assert native.crc32(CONTENT[:size].tobytes()) == zlib.crc32(CONTENT[:size].data)


def test_a_checksum_continues_that_of_the_bytes_before():
    assert native.crc32(CONTENT[500:], native.crc32(CONTENT[:500])) == native.crc32(CONTENT)


@given(st.integers(0, 5000), st.integers(1, 700))
def test_every_block_has_its_checksum_and_the_last_one_may_be_shorter(size, block):
    expected = [zlib.crc32(CONTENT[begin : min(begin + block, size)].data) for begin in range(0, size, block)]
    assert native.crc32_blocks(CONTENT[:size], block).tolist() == expected


def test_blocks_of_no_bytes_are_refused():
    with pytest.raises(ValueError, match="block_bytes is 0: give at least 1"):
        native.crc32_blocks(CONTENT, 0)
