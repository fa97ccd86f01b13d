"""Numbers for ids against a dictionary."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from dorylus.backends import native, reference
from dorylus.backends.native import _native

awkward = st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)
batches = st.lists(st.tuples(st.lists(st.tuples(awkward, awkward), max_size=40), st.booleans()), max_size=6)


def names(given: list[str]) -> tuple[np.ndarray, np.ndarray]:
    encoded = [name.encode() for name in given]
    return np.frombuffer(b"".join(encoded), np.uint8), np.cumsum([0, *map(len, encoded)], dtype=np.int64)


@given(batches)
def test_numbers_come_in_the_order_of_first_appearance(given_batches: list) -> None:
    mine, theirs = native.NumberIds(), reference.NumberIds()
    for edges, fixed in given_batches:
        source, destination = np.array(edges, np.int64).reshape(-1, 2).T.copy()
        for a, b in zip(
            mine.pairs(source, destination, fixed=fixed), theirs.pairs(source, destination, fixed=fixed), strict=True
        ):
            assert a.dtype == np.int32
            np.testing.assert_array_equal(a, b)
    assert len(mine) == len(theirs)
    np.testing.assert_array_equal(mine.ids(0, len(mine)), theirs.ids(0, len(theirs)))


short = st.text("ab\0é", max_size=20)


@given(st.lists(st.tuples(st.lists(st.tuples(short, short), max_size=20), st.booleans()), max_size=5))
def test_names_come_in_the_order_of_first_appearance(given_batches: list) -> None:
    mine, theirs = native.NameIds(), reference.NameIds()
    for edges, fixed in given_batches:
        ends = names([a for a, _ in edges]), names([b for _, b in edges])
        *numbers, new = mine.pairs(*ends, fixed=fixed)
        *expected, expected_new = theirs.pairs(*ends, fixed=fixed)
        for a, b in zip([*numbers, *new], [*expected, *expected_new], strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(mine) == len(theirs)


@pytest.mark.parametrize("step", [1, 1 << 20, 2**40 + 1])
def test_many_ids_keep_their_numbers_while_the_table_grows(step: int) -> None:
    ids = np.random.default_rng(0).permutation(150_000).astype(np.int64) * step
    table = native.NumberIds()
    for begin in range(0, len(ids), 17_000):
        part = ids[begin : begin + 17_000]
        table.pairs(part, part[::-1].copy())
    assert len(table) == len(ids)
    again, _ = table.pairs(ids, ids, fixed=True)
    np.testing.assert_array_equal(table.ids(0, len(ids))[again], ids)
    assert table.pairs(ids[:1] - 1 - step * 200_000, ids[:1], fixed=True)[0].tolist() == [-1]


@pytest.mark.parametrize("kind", [native.NumberIds, native.NameIds])
def test_a_table_keeps_its_limit(kind: type) -> None:
    limit = kind.bytes_for(100_000)
    table = kind(limit)
    ids = np.arange(400_000)
    column = (lambda part: part) if kind is native.NumberIds else (lambda part: names([str(i) for i in part]))
    everyone = column(ids)
    with pytest.raises(OverflowError, match="ids"):
        table.pairs(everyone, everyone)
    assert 100_000 <= len(table) < 400_000
    assert kind.bytes_for(len(table)) <= limit
    known = column(ids[:100_000])
    np.testing.assert_array_equal(table.pairs(known, known)[0], ids[:100_000])


def test_the_memory_of_a_table_grows_with_its_ids() -> None:
    sizes = [native.NumberIds.bytes_for(10**power) / 10**power for power in (6, 7, 8)]
    assert all(12 < size < 20 for size in sizes)


def test_the_hash_of_names_is_siphash() -> None:
    # The first vectors of SipHash's authors for 128 bits, with the key 00 01 .. 0f.
    key = 0x0706050403020100, 0x0F0E0D0C0B0A0908
    assert _native.name_hash(b"", *key).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert _native.name_hash(b"\0", *key).hex() == "da87c1d86b99af44347659119b22fc45"


def test_offsets_of_names_are_checked() -> None:
    data, table = np.zeros(4, np.uint8), native.NameIds()
    for offsets in ([0, 5], [-1, 2], [0, 3, 1], []):
        with pytest.raises(ValueError, match="offsets must"):
            table.pairs((data, np.array(offsets, np.int64)), (data, np.array([0, 1], np.int64)))
    with pytest.raises(ValueError, match="a destination for every source"):
        table.pairs((data, np.array([0, 1, 2])), (data, np.array([0, 1])))
