import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import Case, cases, few, widths

from dorylus.backends import native, reference
from dorylus.backends.native.dropout import Dropout
from dorylus.backends.reference.dropout import philox

drops = st.builds(
    Dropout,
    p=st.sampled_from([0.0, 0.1, 0.5, 0.9]),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**32 - 1),
    layer=st.integers(0, 200),
)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_the_reference_generator_gives_the_published_words(counter: tuple, key: tuple, words: tuple) -> None:  # type: ignore[type-arg]
    assert tuple(int(w) for w in philox(counter, key)) == words


@few
@given(cases(), widths, drops, st.booleans())
def test_dropout_agrees_with_the_reference_bit_for_bit(case: Case, width: int, drop: Dropout, bf16: bool) -> None:
    x = case.matrix(case.num_rows, width)
    out = case.bf16(case.num_rows, width) if bf16 else case.matrix(case.num_rows, width)
    mine, theirs, ids = out.copy(), out.copy(), case.ids()
    native.dropout(x, mine, ids, case.begin, case.end, drop=drop)
    reference.dropout(x, theirs, ids, case.begin, case.end, drop=drop)
    np.testing.assert_array_equal(mine, theirs)


def test_the_mask_follows_the_vertex_whatever_its_row() -> None:
    drop, ids = Dropout(0.5, 1, 2, 3), np.arange(50, dtype=np.int32)
    order = np.random.default_rng(0).permutation(50).astype(np.int32)
    x = np.ones((50, 41), np.float32)
    plain, shuffled = np.zeros_like(x), np.zeros_like(x)
    native.dropout(x, plain, ids, 0, 50, drop=drop)
    for begin in range(0, 50, 7):
        native.dropout(x, shuffled, ids[order], begin, min(begin + 7, 50), drop=drop)
    np.testing.assert_array_equal(plain[order], shuffled)


def test_dropout_may_write_over_its_input() -> None:
    drop, ids = Dropout(0.3, 1, 2, 3), np.arange(9, dtype=np.int32)
    x = np.random.default_rng(0).standard_normal((9, 77)).astype(np.float32)
    out = np.zeros_like(x)
    native.dropout(x, out, ids, 0, 9, drop=drop)
    native.dropout(x, x, ids, 0, 9, drop=drop)
    np.testing.assert_array_equal(x, out)


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_share_kept_is_one_minus_p_and_the_mean_stays(p: float) -> None:
    x, out = np.ones((1000, 100), np.float32), np.zeros((1000, 100), np.float32)
    native.dropout(x, out, np.arange(1000, dtype=np.int32), 0, 1000, drop=Dropout(p, 5, 1, 0))
    assert (out > 0).mean() == pytest.approx(1 - p, abs=5 * (p * (1 - p) / out.size) ** 0.5)
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / (1 - p))}


@pytest.mark.parametrize(
    "other", [Dropout(0.5, 6, 1, 0), Dropout(0.5, 5, 2, 0), Dropout(0.5, 5, 1, 1), Dropout(0.5, 5 + 2**32, 1, 0)]
)
def test_another_seed_epoch_or_layer_gives_an_unrelated_mask(other: Dropout) -> None:
    x, ids = np.ones((100, 100), np.float32), np.arange(100, dtype=np.int32)
    first, second = np.zeros_like(x), np.zeros_like(x)
    native.dropout(x, first, ids, 0, 100, drop=Dropout(0.5, 5, 1, 0))
    native.dropout(x, second, ids, 0, 100, drop=other)
    assert ((first > 0) == (second > 0)).mean() == pytest.approx(0.5, abs=0.03)


def test_nothing_dropped_is_the_identity() -> None:
    x = np.random.default_rng(0).standard_normal((9, 30)).astype(np.float32)
    out = np.zeros_like(x)
    native.dropout(x, out, np.arange(9, dtype=np.int32), 0, 9, drop=Dropout(0.0, 1, 1, 1))
    np.testing.assert_array_equal(x, out)


@few
@given(cases(), drops)
def test_sparse_dropout_equals_dropout_of_the_dense_matrix(case: Case, drop: Dropout) -> None:
    values, ids = case.vector(case.num_edges), case.ids()
    rows = np.repeat(np.arange(case.num_rows), np.diff(case.indptr))
    sparse = np.full_like(values, 9)
    native.dropout_csr(case.indptr, case.indices, values, sparse, ids, case.begin, case.end, drop=drop)
    mask = np.ones((case.num_rows, case.num_cols), np.float32)
    native.dropout(mask, mask, ids, 0, case.num_rows, drop=drop)
    inside = np.zeros(case.num_edges, bool)
    inside[case.range_edges] = True
    np.testing.assert_array_equal(sparse, np.where(inside, values * mask[rows, case.indices], 9))


@few
@given(cases(), drops)
def test_sparse_dropout_agrees_with_the_reference(case: Case, drop: Dropout) -> None:
    values, ids = case.vector(case.num_edges), case.ids()
    mine, theirs = np.full_like(values, 9), np.full_like(values, 9)
    native.dropout_csr(case.indptr, case.indices, values, mine, ids, case.begin, case.end, drop=drop)
    reference.dropout_csr(case.indptr, case.indices, values, theirs, ids, case.begin, case.end, drop=drop)
    np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    "bad", [{"p": 1.0}, {"p": -0.1}, {"seed": -1}, {"seed": 2**64}, {"epoch": -1}, {"layer": 2**23}]
)
def test_a_dropout_out_of_range_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"dropout {next(iter(bad))}="):
        Dropout(**{"p": 0.5, "seed": 0, "epoch": 0, "layer": 0, **bad})  # type: ignore[arg-type]


@few
@given(cases(), widths, st.integers(0, 60), drops, st.booleans())
def test_dropout_of_some_columns_agrees_with_the_reference(
    case: Case, width: int, fours: int, drop: Dropout, bf16: bool
) -> None:
    x = case.matrix(case.num_rows, width)
    out = case.bf16(case.num_rows, width) if bf16 else case.matrix(case.num_rows, width)
    mine, theirs, ids = out.copy(), out.copy(), case.ids()
    native.dropout(x, mine, ids, case.begin, case.end, drop=drop, first_column=4 * fours)
    reference.dropout(x, theirs, ids, case.begin, case.end, drop=drop, first_column=4 * fours)
    np.testing.assert_array_equal(mine, theirs)


@few
@given(cases(), widths, st.sampled_from([4, 16, 20, 48]), drops)
def test_blocks_of_columns_side_by_side_are_dropped_as_the_whole_matrix_is(
    case: Case, width: int, block: int, drop: Dropout
) -> None:
    x, ids = case.matrix(case.num_rows, width), case.ids()
    whole, parts = np.zeros_like(x), np.zeros_like(x)
    native.dropout(x, whole, ids, 0, case.num_rows, drop=drop)
    for first in range(0, width, block):
        columns = slice(first, min(first + block, width))
        native.dropout(x[:, columns], parts[:, columns], ids, 0, case.num_rows, drop=drop, first_column=first)
    np.testing.assert_array_equal(parts, whole)
