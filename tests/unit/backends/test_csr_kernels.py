from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given
from kernel_cases import Case, cases, few

from dorylus.backends import native, reference


def same(mine: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
    for a, b in zip(mine, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@few
@given(cases(), st.sampled_from([np.int32, np.int64]), st.booleans())
def test_build_sorts_edges_by_row_then_column_and_keeps_duplicates_in_order(
    case: Case, dtype: type, weighted: bool
) -> None:
    rows = case.rng.integers(0, case.num_rows, case.num_edges).astype(dtype)
    cols = case.indices.astype(dtype)
    values = case.vector(case.num_edges) if weighted else None
    shape = (case.num_rows, case.num_cols)
    same(native.csr_build(rows, cols, *shape, values), reference.csr_build(rows, cols, *shape, values))


def test_build_takes_rows_and_columns_of_different_integer_types() -> None:
    rows, cols = np.array([1, 0], np.int32), np.array([0, 1], np.int64)
    same(native.csr_build(rows, cols, 2, 2), reference.csr_build(rows, cols, 2, 2))


@few
@given(cases(), st.booleans(), st.booleans())
def test_transpose_keeps_only_the_selected_rows(case: Case, weighted: bool, some: bool) -> None:
    values = case.vector(case.num_edges) if weighted else None
    keep = case.rng.random(case.num_rows) < 0.5 if some else None
    arguments = (case.indptr, case.indices, case.num_cols)
    same(
        native.csr_transpose(*arguments, values=values, keep_rows=keep),
        reference.csr_transpose(*arguments, values=values, keep_rows=keep),
    )


def some_of(case: Case, length: int, size: int) -> Any:
    """int32 [length] of different numbers below ``size``, and -1 for about a third, where there are enough."""
    numbers = case.rng.permutation(max(length, size))[:length].astype(np.int32)
    return np.where((numbers < size) & (case.rng.random(length) < 0.7), numbers, np.int32(-1))


def self_loops(case: Case, choice: str, num_rows: int) -> Any:
    return {"none": False, "all": True, "marked": case.rng.random(num_rows) < 0.5}[choice]


loop_choices = st.sampled_from(["none", "all", "marked"])


@few
@given(cases(), st.booleans(), loop_choices)
def test_a_selection_takes_rows_renumbers_columns_and_adds_missing_self_loops(
    case: Case, weighted: bool, loops: str
) -> None:
    values = case.vector(case.num_edges) if weighted else None
    rows = case.rng.integers(0, case.num_rows, case.rng.integers(0, 2 * case.num_rows)).astype(np.int32)
    num_columns = max(case.num_cols, len(rows))
    columns = some_of(case, case.num_cols, num_columns)
    arguments = (case.indptr, case.indices, rows, columns, num_columns)
    options = {"values": values, "self_loops": self_loops(case, loops, len(rows))}
    same(native.csr_select(*arguments, **options), reference.csr_select(*arguments, **options))


@few
@given(cases(square=True), st.booleans(), loop_choices)
def test_a_selection_of_every_row_in_another_order_is_a_permutation(case: Case, weighted: bool, loops: str) -> None:
    values = case.vector(case.num_edges) if weighted else None
    order = case.rng.permutation(case.num_rows).astype(np.int32)
    arguments = (case.indptr, case.indices, order, np.argsort(order).astype(np.int32), case.num_rows)
    options = {"values": values, "self_loops": self_loops(case, loops, case.num_rows)}
    same(native.csr_select(*arguments, **options), reference.csr_select(*arguments, **options))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("num_columns", [700, 700_000, 80_000_000])
def test_long_rows_are_put_in_order(weighted: bool, duplicates: bool, num_columns: int) -> None:
    rng = np.random.default_rng(0)
    lengths = [300, 0, 299, 1, 60]
    picked = [rng.choice(300, length, replace=duplicates) for length in lengths]
    indptr = np.cumsum([0, *lengths]).astype(np.int64)
    indices = np.concatenate(picked).astype(np.int32)
    values = rng.random(len(indices), dtype=np.float32) if weighted else None
    columns = rng.choice(num_columns, 300, replace=False).astype(np.int32)
    arguments = (indptr, indices, np.arange(5, dtype=np.int32), columns, num_columns)
    same(native.csr_select(*arguments, values=values), reference.csr_select(*arguments, values=values))


def test_a_selection_holds_no_more_memory_than_its_edges() -> None:
    indptr, indices = np.array([0, 1_000_000], np.int64), np.zeros(1_000_000, np.int32)
    nothing = native.csr_select(indptr, indices, np.zeros(1, np.int32), np.full(1, -1, np.int32), 1)
    assert [part.size for part in nothing if part is not None] == [2, 0]


@few
@given(cases(), st.booleans(), loop_choices)
def test_a_transposed_selection_lists_the_chosen_rows_of_every_column(case: Case, weighted: bool, loops: str) -> None:
    values = case.vector(case.num_edges) if weighted else None
    rows = some_of(case, int(case.rng.integers(case.num_rows, 3 * case.num_rows)), case.num_rows)
    num_rows = int(case.rng.integers(0, case.num_rows + 1))
    row_of = some_of(case, case.num_cols, num_rows)
    arguments = (case.indptr, case.indices, rows, row_of, num_rows)
    options = {"values": values, "self_loops": self_loops(case, loops, num_rows)}
    same(native.csr_select_transpose(*arguments, **options), reference.csr_select_transpose(*arguments, **options))


@few
@given(cases())
def test_reaching_raises_columns_to_the_level_of_their_rows(case: Case) -> None:
    levels = case.rng.integers(-2, 4, case.num_rows).astype(np.int8)
    before = case.rng.integers(-1, 4, case.num_cols).astype(np.int8)
    mine, theirs = before.copy(), before.copy()
    native.csr_reach(case.indptr, case.indices, levels, mine)
    reference.csr_reach(case.indptr, case.indices, levels, theirs)
    np.testing.assert_array_equal(mine, theirs)


@few
@given(cases())
def test_edges_are_counted_between_groups(case: Case) -> None:
    rows = case.rng.integers(-1, 3, case.num_rows).astype(np.int32)
    cols = case.rng.integers(-1, 4, case.num_cols).astype(np.int32)
    arguments = (case.indptr, case.indices, rows, cols, 3, 4)
    counts = native.csr_count(*arguments)
    assert counts.shape == (3, 4)
    np.testing.assert_array_equal(counts, reference.csr_count(*arguments))


@few
@given(cases(), st.booleans())
def test_coalesce_merges_duplicates_and_sums_their_values(case: Case, weighted: bool) -> None:
    values = case.vector(case.num_edges) if weighted else None
    same(
        native.csr_coalesce(case.indptr, case.indices, values=values),
        reference.csr_coalesce(case.indptr, case.indices, values=values),
    )


@few
@given(cases(square=True, max_rows=4, max_edges=8), st.booleans())
def test_symmetry_is_found_exactly_when_it_is_there(case: Case, weighted: bool) -> None:
    values = case.rng.integers(1, 3, case.num_edges).astype(np.float32) if weighted else None
    assert native.csr_is_symmetric(case.indptr, case.indices, values=values) == reference.csr_is_symmetric(
        case.indptr, case.indices, values=values
    )


@few
@given(cases(square=True))
def test_a_graph_with_its_reverse_edges_is_symmetric(case: Case) -> None:
    rows = np.repeat(np.arange(case.num_rows), np.diff(case.indptr))
    both = np.concatenate([rows, case.indices]), np.concatenate([case.indices, rows])
    indptr, indices, _ = native.csr_build(*both, case.num_rows, case.num_rows)
    assert native.csr_is_symmetric(indptr, indices)


def test_one_missing_twin_breaks_symmetry() -> None:
    indptr, indices, _ = native.csr_build(np.array([0, 1, 1]), np.array([1, 0, 2]), 3, 3)
    assert not native.csr_is_symmetric(indptr, indices)


def test_a_twin_of_another_weight_breaks_symmetry() -> None:
    indptr, indices, values = native.csr_build(np.array([0, 1]), np.array([1, 0]), 2, 2, np.array([1, 2], np.float32))
    assert native.csr_is_symmetric(indptr, indices)
    assert not native.csr_is_symmetric(indptr, indices, values=values)


@pytest.mark.parametrize(("row", "col"), [(2, 0), (-1, 0), (0, 3), (0, -1)])
def test_an_edge_outside_the_matrix_is_named(row: int, col: int) -> None:
    with pytest.raises(ValueError, match=rf"edge 1 is \({row}, {col}\), outside 2 rows and 3 columns"):
        native.csr_build(np.array([0, row]), np.array([0, col]), 2, 3)


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int32)


TWO_ROWS = (np.array([0, 1, 3], np.int64), ints(1, 0, 2))  # two rows, three columns


@pytest.mark.parametrize("select", [native.csr_select, native.csr_select_transpose])
@pytest.mark.parametrize(
    ("rows", "columns", "size", "loops", "message"),
    [
        (ints(0, 2), ints(0, 1, 2), 3, False, r"rows\[1\] is 2, outside -?[01]\.\.1"),
        (ints(-2), ints(0, 1, 2), 3, False, r"rows\[0\] is -2"),
        (ints(0, 1), ints(0, 3, 2), 3, False, r"(columns|row_of)\[1\] is 3, outside -1\.\.2"),
        (ints(0, 1), ints(0, -2, 2), 3, False, r"(columns|row_of)\[1\] is -2"),
        (ints(0, 1), ints(0, 1), 3, False, r"edge 2 is \(1, 2\), outside 2 rows and 2 columns"),
        (ints(0, 1), ints(0, 1, 2), -1, False, "num_(columns|rows) must lie in"),
        (ints(0, 1), ints(0, 1, 2), 3, np.ones(5, bool), "self_loops must have . elements, not 5"),
    ],
)
def test_a_selection_out_of_bounds_is_refused(
    select: Any, rows: Any, columns: Any, size: int, loops: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        select(*TWO_ROWS, rows, columns, size, self_loops=loops)


def test_only_a_transposed_selection_may_leave_a_column_empty() -> None:
    empty = native.csr_select_transpose(*TWO_ROWS, ints(-1, 0), ints(0, 1, 2), 3)
    assert (empty[0].tolist(), empty[1].tolist()) == ([0, 0, 1, 1], [1])
    with pytest.raises(ValueError, match=r"rows\[0\] is -1"):
        native.csr_select(*TWO_ROWS, ints(-1, 0), ints(0, 1, 2), 3)


def test_self_loops_need_a_column_for_every_row() -> None:
    with pytest.raises(ValueError, match="self loops of 2 rows do not fit in 1 columns"):
        native.csr_select(*TWO_ROWS, ints(0, 1), ints(0, 0, 0), 1, self_loops=True)
    with pytest.raises(ValueError, match="self loops of 3 rows do not fit in 2 columns"):
        native.csr_select_transpose(*TWO_ROWS, ints(0, 1), ints(0, 1, 2), 3, self_loops=True)


@pytest.mark.parametrize("select", [native.csr_select, native.csr_select_transpose])
def test_a_selection_of_another_type_is_refused(select: Any) -> None:
    for rows, columns in [(np.array([0]), ints(0, 1, 2)), (ints(0), np.array([0.0, 1.0, 2.0]))]:
        with pytest.raises(TypeError, match=r"(rows|columns|row_of) must hold int32"):
            select(*TWO_ROWS, rows, columns, 3)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        select(*TWO_ROWS, None, ints(0, 1, 2), 3)
    with pytest.raises(TypeError, match="self_loops must"):
        select(*TWO_ROWS, ints(0), ints(0, 1, 2), 3, self_loops=1.5)


def test_looking_through_edges_stays_inside_the_arrays() -> None:
    levels = np.zeros(2, np.int8)
    with pytest.raises(ValueError, match=r"edge 2 is \(1, 2\), outside 2 rows and 2 columns"):
        native.csr_reach(*TWO_ROWS, levels, np.zeros(2, np.int8))
    with pytest.raises(ValueError, match="levels must have 2 elements, not 3"):
        native.csr_reach(*TWO_ROWS, np.zeros(3, np.int8), np.zeros(3, np.int8))
    with pytest.raises(TypeError, match="levels must hold int8"):
        native.csr_reach(*TWO_ROWS, levels.astype(np.int64), np.zeros(3, np.int8))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"edge 2 is \(1, 2\), outside 2 rows and 2 columns"):
        native.csr_count(*TWO_ROWS, ints(0, 0), ints(0, 0), 1, 1)
    with pytest.raises(ValueError, match=r"row_group\[1\] is 1, outside -1\.\.0"):
        native.csr_count(*TWO_ROWS, ints(0, 1), ints(0, 0, 0), 1, 1)
    with pytest.raises(ValueError, match="must lie in 0"):
        native.csr_count(*TWO_ROWS, ints(0, 0), ints(0, 0, 0), -1, 1)


def test_rows_out_of_order_are_refused_where_order_matters() -> None:
    indptr, indices = np.array([0, 2, 2], np.int64), np.array([1, 0], np.int32)
    for function in (native.csr_coalesce, native.csr_is_symmetric):
        with pytest.raises(ValueError, match="row 0 is not in ascending order"):
            function(indptr, indices)


@pytest.mark.parametrize("indptr", [[1, 2], [0, 1], [0, 3], []])
def test_offsets_that_miss_the_edges_are_refused(indptr: list[int]) -> None:
    with pytest.raises(ValueError, match="indptr"):
        native.csr_transpose(np.array(indptr, np.int64), np.array([0, 0], np.int32), 1)


def test_falling_offsets_are_refused() -> None:
    with pytest.raises(ValueError, match="indptr falls at row 1"):
        native.csr_coalesce(np.array([0, 2, 1, 2], np.int64), np.array([0, 0], np.int32))


def test_a_column_outside_the_matrix_is_refused_by_the_transpose() -> None:
    with pytest.raises(ValueError, match="outside 1 rows and 2 columns"):
        native.csr_transpose(np.array([0, 1], np.int64), np.array([2], np.int32), 2)


def some_rows(case: Case) -> tuple[Any, Any, int]:
    """(indptr from 0, columns in ascending order, number of the first row) of the case's range of rows."""
    indptr, indices, _ = reference.csr_coalesce(case.indptr, case.indices)
    first = int(indptr[case.begin])
    return indptr[case.begin : case.end + 1] - first, indices[first : int(indptr[case.end])], case.begin


@few
@given(cases(square=True), st.booleans())
def test_missing_self_loops_are_added_to_some_rows(case: Case, weighted: bool) -> None:
    indptr, indices, first_row = some_rows(case)
    values = case.vector(len(indices)) if weighted else None
    options = {"values": values, "first_row": first_row}
    same(native.csr_with_loops(indptr, indices, **options), reference.csr_with_loops(indptr, indices, **options))


@few
@given(cases(square=True), st.booleans())
def test_all_rows_with_self_loops_equal_a_selection_of_all_rows(case: Case, weighted: bool) -> None:
    indptr, indices, _ = native.csr_coalesce(case.indptr, case.indices)
    values = case.vector(len(indices)) if weighted else None
    everyone = np.arange(case.num_rows, dtype=np.int32)
    expected = native.csr_select(indptr, indices, everyone, everyone, case.num_rows, values=values, self_loops=True)
    same(native.csr_with_loops(indptr, indices, values=values), expected)


@few
@given(cases(square=True))
def test_rows_that_hold_their_own_number_are_found(case: Case) -> None:
    indptr, indices, first_row = some_rows(case)
    mine = native.csr_loops(indptr, indices, first_row=first_row)
    theirs = reference.csr_loops(indptr, indices, first_row=first_row)
    assert mine.dtype == np.bool_
    np.testing.assert_array_equal(mine, theirs)


def test_no_row_has_no_loop_and_gets_none() -> None:
    nothing = np.zeros(1, np.int64), np.zeros(0, np.int32)
    assert native.csr_loops(*nothing).shape == (0,)
    assert [part.size for part in native.csr_with_loops(*nothing) if part is not None] == [1, 0]
