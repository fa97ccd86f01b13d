"""The contract of back ends with a graph server; and that one object outside the package is enough for a new one."""

import pickle
from collections import Counter
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch

import dorylus
from dorylus.backends import reference
from dorylus.backends.backend import AttentionSums, Backend, NumberFormat, PlacedCsr
from dorylus.backends.host import NativeBackend, ReferenceBackend
from dorylus.backends.native.dropout import Dropout
from dorylus.errors import ConfigError

BACKENDS: dict[str, Any] = {"native": NativeBackend, "reference": ReferenceBackend}
FLOAT32, BF16 = NumberFormat.FLOAT32, NumberFormat.BF16
ROWS, COLUMNS, HEADS, SLOPE = 13, 8, 2, 0.2
BEGIN, END = 2, 11  # the interval at work
OWN = slice(BEGIN, END)
DROP = Dropout(p=0.4, seed=2**40 + 3, epoch=5, layer=1)

# The definition that results are compared with: NumPy and the functions of ``reference``, without a back end.


@pytest.fixture(params=["native", "reference", "device"])
def backend(request):
    made: Backend = BACKENDS[request.param]()
    return made


@pytest.fixture(params=range(3))
def rng(request):
    return np.random.default_rng(request.param)


def random_csr(rng, num_edges=40):
    """(indptr, indices, values, row scale, column scale) of a square matrix with some empty rows."""
    rows = np.sort(rng.choice(np.setdiff1d(np.arange(1, ROWS - 1), [5]), num_edges))
    indptr = np.searchsorted(rows, np.arange(ROWS + 1)).astype(np.int64)
    indices = rng.integers(0, ROWS, num_edges).astype(np.int32)
    for begin, end in pairwise(indptr):
        indices[begin:end].sort()
    return indptr, indices, *(rng.uniform(0.5, 2, size).astype(np.float32) for size in (num_edges, ROWS, ROWS))


def numbers(rng, rows=ROWS, columns=COLUMNS):
    return rng.uniform(-2, 2, (rows, columns)).astype(np.float32)


def ids_of(rng):
    return rng.permutation(ROWS).astype(np.int32) * 7


def rounded(array):
    """The nearest bfloat16 numbers, as uint16 and as float32."""
    narrow, wide = np.zeros(array.shape, np.uint16), np.zeros(array.shape, np.float32)
    reference.to_bf16(array, narrow, 0, len(array))
    reference.from_bf16(narrow, wide, 0, len(array))
    return narrow, wide


def held(backend, array, number_format=FLOAT32):
    """A matrix of the back end's own memory with these numbers."""
    matrix = backend.allocate(*array.shape, number_format)
    backend.store(backend.from_host(array.copy()), matrix)
    return matrix


def of(backend, matrix):
    """The numbers of a matrix, as float32."""
    backend.synchronise()
    return backend.to_host(backend.widened(matrix))


def same(found, expected):
    np.testing.assert_allclose(found, expected, rtol=3e-5, atol=3e-5)


def compare(backend, method, inputs, outputs, expect):
    """Call a method with matrices of these inputs and outputs; ``expect`` writes the same with NumPy.

    Rows outside the interval must keep what they held.
    """
    given = [held(backend, each) if isinstance(each, np.ndarray) else each for each in inputs]
    made = [held(backend, each) for each in outputs]
    getattr(backend, method[0])(*given, *made, BEGIN, END, **method[1])
    expect(*outputs)
    for found, expected in zip(made, outputs, strict=True):
        same(of(backend, found), expected)


# Memory and exchange


@pytest.mark.parametrize("number_format", NumberFormat)
def test_a_matrix_has_the_shape_and_format_it_was_allocated_with(backend, number_format):
    matrix = backend.allocate(3, 4, number_format)
    assert (tuple(matrix.shape), len(matrix)) == ((3, 4), 3)
    assert backend.number_format(matrix) is number_format
    assert backend.to_host(matrix).dtype == backend.dtype(number_format)


def test_bf16_takes_half_the_bytes_of_float32(backend):
    assert backend.dtype(FLOAT32).itemsize == 2 * backend.dtype(BF16).itemsize == 4


@pytest.mark.parametrize("number_format", NumberFormat)
def test_a_matrix_can_begin_as_zeros(backend, number_format):
    assert not of(backend, backend.allocate(5, 6, number_format, zero=True)).any()


@pytest.mark.parametrize("number_format", NumberFormat)
def test_a_block_of_memory_holds_one_matrix_after_the_other(backend, number_format):
    block = backend.allocate_block(7 * 5 * 4)
    assert block.nbytes >= 7 * 5 * 4
    for value in (1.0, 2.0):
        matrix = backend.matrix_over(block, 7, 5, number_format)
        backend.store(backend.from_host(np.full((7, 5), value, np.float32)), matrix)
        assert (of(backend, backend.matrix_over(block, 7, 5, number_format)) == value).all()


def test_a_read_only_host_array_is_read_as_a_matrix_and_as_a_tensor(backend, rng):
    array = numbers(rng)
    array.flags.writeable = False
    matrix = backend.from_host(array)
    np.testing.assert_array_equal(of(backend, matrix), array)
    np.testing.assert_array_equal(backend.to_torch(matrix).cpu().numpy(), array)


def test_tensors_become_matrices_and_back_also_where_they_are_not_contiguous(backend, rng):
    array = numbers(rng)
    matrix = backend.from_torch(torch.from_numpy(array).t())
    np.testing.assert_array_equal(of(backend, matrix), array.T)
    np.testing.assert_array_equal(backend.to_torch(matrix).cpu().numpy(), array.T)


def test_a_tensor_shares_the_memory_of_its_matrix(backend, rng):
    matrix = held(backend, numbers(rng))
    tensor = backend.to_torch(matrix)
    backend.clear(matrix)
    backend.synchronise()
    assert not tensor.cpu().numpy().any()


def test_ranges_of_rows_and_of_columns_are_views(backend, rng):
    array = numbers(rng)
    matrix = held(backend, array)
    backend.clear(matrix[OWN])
    backend.clear(matrix[:, 1:3])
    array[OWN], array[:, 1:3] = 0, 0
    np.testing.assert_array_equal(of(backend, matrix), array)


def test_a_back_end_travels_to_other_processes(backend):
    assert type(pickle.loads(pickle.dumps(backend))) is type(backend)


# Rows


@pytest.mark.parametrize("target", NumberFormat)
@pytest.mark.parametrize("source", NumberFormat)
def test_rows_are_stored_in_the_format_of_their_target(backend, rng, source, target):
    array = numbers(rng)
    wide, matrix = rounded(array)[1], backend.allocate(ROWS, COLUMNS, target)
    backend.store(held(backend, array, source), matrix)
    expected = array if source is target is FLOAT32 else wide
    np.testing.assert_array_equal(of(backend, matrix), expected)


@pytest.mark.parametrize("number_format", NumberFormat)
def test_a_copy_is_of_the_same_format_and_stays_as_it_was(backend, rng, number_format):
    matrix = held(backend, numbers(rng), number_format)
    before, copy = of(backend, matrix).copy(), backend.copy(matrix)
    backend.clear(matrix)
    assert backend.number_format(copy) is number_format
    np.testing.assert_array_equal(of(backend, copy), before)


def test_rows_are_added_and_divided_elementwise(backend, rng):
    x, y = numbers(rng), np.abs(numbers(rng)) + 1
    total, quotient = held(backend, x), held(backend, x)
    backend.add(held(backend, y[OWN]), total[OWN])
    backend.divide(quotient[OWN], held(backend, y[OWN]), quotient[OWN])
    expected = x.copy()
    expected[OWN] += y[OWN]
    np.testing.assert_array_equal(of(backend, total), expected)
    expected[OWN] = x[OWN] / y[OWN]
    np.testing.assert_array_equal(of(backend, quotient), expected)


@pytest.mark.parametrize("placed", [False, True], ids=["host index", "placed index"])
@pytest.mark.parametrize("taken", NumberFormat)
@pytest.mark.parametrize("source", NumberFormat)
def test_rows_are_taken_by_their_numbers(backend, rng, source, taken, placed):
    array, index = numbers(rng), np.array([3, 0, 3, 12], np.int32)
    found = backend.take_rows(held(backend, array, source), backend.place(index) if placed else index, taken)
    assert backend.number_format(found) is taken
    expected = array if source is taken is FLOAT32 else rounded(array)[1]
    np.testing.assert_array_equal(of(backend, found), expected[index])


def test_no_rows_can_be_taken(backend, rng):
    assert tuple(backend.take_rows(held(backend, numbers(rng)), np.zeros(0, np.int32)).shape) == (0, COLUMNS)


def test_rows_are_added_and_cleared_by_their_numbers(backend, rng):
    array, more, index = numbers(rng), numbers(rng, rows=4), np.array([3, 0, 3, 12], np.int32)
    matrix = held(backend, array)
    backend.scatter_add(held(backend, more), index, matrix)
    for row, part in zip(index, more, strict=True):
        array[row] += part
    np.testing.assert_array_equal(of(backend, matrix), array)
    backend.clear_rows(matrix, index)
    array[index] = 0
    np.testing.assert_array_equal(of(backend, matrix), array)


# Gathers


@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("weights", ["none", "values", "scales", "all"])
@pytest.mark.parametrize("number_format", NumberFormat)
def test_gather_adds_up_weighted_rows_of_neighbours(backend, rng, number_format, weights, accumulate):
    indptr, indices, values, row_scale, col_scale = random_csr(rng)
    factors: dict[str, Any] = {}
    if weights in ("values", "all"):
        factors["values"] = values
    if weights in ("scales", "all"):
        factors |= {"row_scale": row_scale, "col_scale": col_scale}
    x, before = numbers(rng), numbers(rng)
    out = held(backend, before)
    edges = backend.place_csr(indptr, indices, **factors)
    backend.gather(edges, held(backend, x, number_format), out, BEGIN, END, accumulate=accumulate)
    exact = x if number_format is FLOAT32 else rounded(x)[1]
    reference.spmm(indptr, indices, exact, before, BEGIN, END, accumulate=accumulate, **factors)
    same(of(backend, out), before)


@pytest.mark.parametrize("number_format", NumberFormat)
def test_gather_max_and_its_gradient(backend, rng, number_format):
    indptr, indices, *_ = random_csr(rng)
    edges = backend.place_csr(indptr, indices)
    x = np.round(numbers(rng))  # ties
    matrix = held(backend, x, number_format)  # whole numbers: exact in both formats
    outputs = [numbers(rng), numbers(rng)]
    compare(
        backend, ("gather_max", {}), [edges, matrix], outputs,
        lambda out, ties: reference.spmm_max(indptr, indices, x, out, ties, BEGIN, END),
    )  # fmt: skip
    out, ties, share = np.zeros_like(x), np.ones_like(x), numbers(rng)
    reference.spmm_max(indptr, indices, x, out, ties, 0, ROWS)
    turned = reference.csr_transpose(indptr, indices, ROWS)[:2]
    for accumulate in (False, True):
        compare(
            backend, ("gather_max_grad", {"accumulate": accumulate}),
            [backend.place_csr(*turned), matrix, out, share], [numbers(rng)],
            lambda dx, more=accumulate: reference.spmm_max_grad(
                *turned, x, out, share, dx, BEGIN, END, accumulate=more
            ),
        )  # fmt: skip


def test_the_weight_gradient_of_a_product_with_sparse_rows(backend, rng):
    indptr, indices, values, *_ = random_csr(rng)
    dz, expected = numbers(rng), numbers(rng)
    dw = held(backend, expected)
    backend.gather_outer(backend.place_csr(indptr, indices, values), held(backend, dz), dw)
    reference.spmm_outer(indptr, indices, values, dz, expected, 0, ROWS)
    same(of(backend, dw), expected)


@pytest.mark.parametrize("drop", [None, DROP], ids=["no dropout", "dropout"])
@pytest.mark.parametrize("number_format", NumberFormat)
def test_attention_and_its_gradients(backend, rng, number_format, drop):
    indptr, indices, *_ = random_csr(rng)
    z, dout = numbers(rng), numbers(rng)
    s_src, s_dst = numbers(rng, columns=HEADS), numbers(rng, columns=HEADS)
    ids = ids_of(rng)
    shape = {"heads": HEADS, "slope": SLOPE}
    dropped = {} if drop is None else {"drop": drop, "ids": backend.place(ids)}
    expected_drop = {} if drop is None else {"drop": drop, "ids": ids}
    narrow_z, narrow_dout = held(backend, z, number_format), held(backend, dout, number_format)
    if number_format is BF16:
        z, dout = rounded(z)[1], rounded(dout)[1]
    edges = backend.place_csr(indptr, indices)

    for training in (False, True):
        found = [np.zeros((ROWS, columns), np.float32) for columns in (COLUMNS, HEADS, COLUMNS, HEADS)]
        out, *kept = (held(backend, each) for each in found)
        sums = AttentionSums(*kept) if training else None
        scores = held(backend, s_src), held(backend, s_dst)
        backend.attention(edges, narrow_z, *scores, out, BEGIN, END, **shape, kept=sums, **dropped)
        names = dict(zip(("lse", "out_pos", "a_pos"), found[1:], strict=True)) if training else {}
        reference.attention(indptr, indices, z, s_src, s_dst, found[0], BEGIN, END, **shape, **names, **expected_drop)
        for mine, theirs in zip((out, *kept), found, strict=True):
            same(of(backend, mine), theirs)

    out, lse, out_pos, a_pos = found
    compare(
        backend, ("attention_grad_destination", shape), [out, out_pos, a_pos, narrow_dout],
        [numbers(rng, columns=HEADS), numbers(rng, columns=HEADS)],
        lambda delta, ds_dst: reference.attention_grad_dst(
            out, out_pos, a_pos, dout, delta, ds_dst, BEGIN, END, **shape
        ),
    )  # fmt: skip
    turned, delta = reference.csr_transpose(indptr, indices, ROWS)[:2], numbers(rng, columns=HEADS)
    for accumulate in (False, True):
        compare(
            backend, ("attention_grad_source", {**shape, **dropped, "accumulate": accumulate}),
            [backend.place_csr(*turned), narrow_z, s_src, s_dst, lse, delta, narrow_dout],
            [numbers(rng), numbers(rng, columns=HEADS)],
            lambda dz, ds_src, more=accumulate: reference.attention_grad_src(
                *turned, z, s_src, s_dst, lse, delta, dout, dz, ds_src, BEGIN, END,
                **shape, **expected_drop, accumulate=more,
            ),
        )  # fmt: skip


# Segments


@pytest.fixture
def messages(rng):
    """(indptr, messages and scores of the interval's edges)."""
    indptr, indices, *_ = random_csr(rng)
    count = int(indptr[END] - indptr[BEGIN])
    return indptr, indices, np.round(numbers(rng, rows=count)), numbers(rng, rows=count, columns=HEADS)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_segment_sum_and_its_gradient(backend, rng, messages, accumulate, scaled):
    indptr, indices, message, _ = messages
    edges, scale = backend.place_csr(indptr, indices), {"row_scale": random_csr(rng)[3]} if scaled else {}
    compare(
        backend, ("segment_sum", {**scale, "accumulate": accumulate}), [edges, message], [numbers(rng)],
        lambda out: reference.segment_sum(indptr, message, out, BEGIN, END, **scale, accumulate=accumulate),
    )  # fmt: skip
    dout = numbers(rng)
    compare(
        backend, ("segment_sum_grad", scale), [edges, dout], [np.zeros_like(message)],
        lambda grad: reference.segment_spread(indptr, dout, grad, BEGIN, END, **scale),
    )  # fmt: skip


def test_segment_max_and_its_gradient(backend, rng, messages):
    indptr, indices, message, _ = messages
    edges = backend.place_csr(indptr, indices)
    compare(
        backend, ("segment_max", {}), [edges, message], [numbers(rng), numbers(rng)],
        lambda out, ties: reference.segment_max(indptr, message, out, ties, BEGIN, END),
    )  # fmt: skip
    out, share = np.zeros((ROWS, COLUMNS), np.float32), numbers(rng)
    reference.segment_max(indptr, message, out, np.ones_like(out), BEGIN, END)
    compare(
        backend, ("segment_max_grad", {}), [edges, message, out, share], [np.zeros_like(message)],
        lambda grad: reference.segment_max_grad(indptr, message, out, share, grad, BEGIN, END),
    )  # fmt: skip


def test_segment_softmax_and_its_gradient(backend, rng, messages):
    indptr, indices, message, score = messages
    edges, heads = backend.place_csr(indptr, indices), {"heads": HEADS}
    compare(
        backend, ("segment_softmax", heads), [edges, score, message], [numbers(rng), numbers(rng, columns=HEADS)],
        lambda out, lse: reference.segment_softmax(indptr, score, message, out, lse, BEGIN, END, **heads),
    )  # fmt: skip
    out, lse, dout = np.zeros((ROWS, COLUMNS), np.float32), np.zeros((ROWS, HEADS), np.float32), numbers(rng)
    reference.segment_softmax(indptr, score, message, out, lse, BEGIN, END, **heads)
    compare(
        backend, ("segment_softmax_grad", heads), [edges, score, message, out, lse, dout],
        [np.zeros_like(score), np.zeros_like(message)],
        lambda d_score, d_message: reference.segment_softmax_grad(
            indptr, score, message, out, lse, dout, d_score, d_message, BEGIN, END, **heads
        ),
    )  # fmt: skip


# Dropout


@pytest.mark.parametrize("first_column", [0, 4])
@pytest.mark.parametrize("number_format", NumberFormat)
def test_dropout_is_a_function_of_ids_and_columns(backend, rng, number_format, first_column):
    x, ids = numbers(rng), ids_of(rng)
    expected, out = np.zeros_like(x), backend.allocate(ROWS, COLUMNS, number_format)
    backend.dropout(held(backend, x), out, backend.place(ids), DROP, first_column=first_column)
    reference.dropout(x, expected, ids, 0, ROWS, drop=DROP, first_column=first_column)
    np.testing.assert_array_equal(of(backend, out), expected if number_format is FLOAT32 else rounded(expected)[1])
    assert 0 < np.count_nonzero(expected) < expected.size


def test_dropout_may_write_over_what_it_reads_and_a_range_of_ids_has_the_same_mask(backend, rng):
    x, ids = numbers(rng), ids_of(rng)
    matrix, expected = held(backend, x), np.zeros_like(x)
    backend.dropout(matrix[OWN], matrix[OWN], backend.place(ids)[OWN], DROP)
    reference.dropout(x, expected, ids, 0, ROWS, drop=DROP)
    x[OWN] = expected[OWN]
    np.testing.assert_array_equal(of(backend, matrix), x)


def test_dropout_of_sparse_rows_equals_that_of_dense_ones(backend, rng):
    indptr, indices, values, *_ = random_csr(rng)
    ids = ids_of(rng)
    x = backend.place_csr(indptr, indices, values)
    out, expected = backend.place_csr(indptr, indices, np.zeros_like(values)), np.zeros_like(values)
    backend.dropout_sparse(x, out, backend.place(ids), BEGIN, END, DROP)
    backend.synchronise()
    reference.dropout_csr(indptr, indices, values, expected, ids, BEGIN, END, drop=DROP)
    np.testing.assert_array_equal(backend.to_host(out.values), expected)


# A new back end


class Opaque:
    """Numbers that only a back end can read: not an array, and nothing makes one of it. A range of it is a view."""

    def __init__(self, array):
        self.array = array

    @property
    def shape(self):
        return tuple(self.array.shape)

    def __len__(self):
        return len(self.array)

    def __getitem__(self, ranges):
        if not all(isinstance(each, slice) for each in (ranges if isinstance(ranges, tuple) else (ranges,))):
            raise TypeError("only a back end picks single rows and numbers")
        return Opaque(self.array[ranges])

    def __array__(self, *_, **__):
        raise TypeError("this is not in host memory")

    __iter__ = __setitem__ = __array__


class OpaqueBlock:
    """Memory that only a back end can use."""

    def __init__(self, block):
        self.block, self.nbytes = block, block.nbytes


def opened(value):
    """What the host's kernels work on."""
    if isinstance(value, Opaque):
        return value.array
    if isinstance(value, OpaqueBlock):
        return value.block
    if isinstance(value, PlacedCsr | AttentionSums):
        return type(value)(**{name: opened(each) for name, each in vars(value).items()})
    return value


class Recording:
    """A back end of this file, as a GPU has one: what comes from the host is copied, matrices and indices are opaque.

    It counts the methods that are called, and leaves the work to another back end.
    """

    FROM_HOST = frozenset({"from_host", "place", "place_csr"})
    TO_HOST = frozenset({"to_host", "to_torch", "dtype", "number_format"})

    def __init__(self, inner: Any = None) -> None:
        self.calls: Counter[str] = Counter()
        self._inner = inner or ReferenceBackend()

    def __reduce__(self) -> Any:
        return type(self), (self._inner,)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)

        def on_device(*given: Any, **named: Any) -> Any:
            self.calls[name] += 1
            if name in self.FROM_HOST:
                given = tuple(each.copy() if isinstance(each, np.ndarray) else each for each in given)
            found = method(*map(opened, given), **{key: opened(each) for key, each in named.items()})
            return found if name in self.TO_HOST else self._closed(found)

        return on_device

    def allocate_block(self, num_bytes: int) -> OpaqueBlock:
        self.calls["allocate_block"] += 1
        return OpaqueBlock(self._inner.allocate_block(num_bytes))

    def _closed(self, found: Any) -> Any:
        if isinstance(found, PlacedCsr):
            return PlacedCsr(**{name: None if each is None else Opaque(each) for name, each in vars(found).items()})
        return Opaque(found) if isinstance(found, np.ndarray) else found


# The suite above: matrices of a device are compared like all others, by what the back end itself brings to the host.
BACKENDS["device"] = Recording


@pytest.mark.parametrize("misuse", [
    lambda matrix: matrix[0], lambda matrix: matrix[[0, 1]], lambda matrix: matrix[np.arange(2)], list, np.asarray,
    lambda matrix: matrix.dtype, lambda matrix: matrix + matrix, float, lambda matrix: np.take(matrix, [0], axis=0),
    lambda matrix: torch.as_tensor(matrix),
])  # fmt: skip
def test_the_stand_in_of_a_device_refuses_whatever_is_not_done_by_its_back_end(misuse):
    matrix = Recording().allocate(3, 4, FLOAT32)
    with pytest.raises((TypeError, AttributeError, RuntimeError, ValueError)):
        misuse(matrix)


class Gate(dorylus.Layer):
    """A layer with a dense ApplyEdge."""

    def __init__(self, in_columns, out_columns, reduce, **finish):
        super().__init__(in_columns, out_columns, **finish)
        self.reduce = reduce
        self.gate = torch.nn.Linear(2 * in_columns + 1, out_columns)
        self.score = torch.nn.Linear(out_columns, 1)

    def apply_edge(self, source, destination, weight):
        message = torch.tanh(self.gate(torch.cat([source, destination, weight], 1)))
        return (message, self.score(message)) if self.reduce == "softmax" else message


def gates(reduce):
    torch.manual_seed(0)
    return dorylus.Program([Gate(6, 5, reduce), Gate(5, 5, reduce, residual=True), Gate(5, 3, reduce)])


ALWAYS = {"place", "place_csr", "dtype", "matrix_over", "store", "from_torch", "to_torch", "synchronise"}
TRAINED = {  # the model, its settings, and the further methods it must have called
    "gcn": (lambda: dorylus.gcn(hidden=4), {}, {"gather", "dropout"}),
    "gcn of two servers in bf16": (
        lambda: dorylus.gcn(hidden=4),
        {"servers": 2, "precision": "bf16"},
        {"gather", "dropout", "take_rows", "to_host", "from_host", "number_format", "widened"},
    ),
    "gat": (
        lambda: dorylus.gat(hidden=2, heads=2),
        {},
        {"attention", "attention_grad_destination", "attention_grad_source", "dropout"},
    ),
    "sage max": (
        lambda: dorylus.sage(hidden=4, aggregator="max"), {}, {"gather_max", "gather_max_grad", "divide", "dropout"}
    ),
    "edges, mean": (
        lambda: gates("mean"), {"servers": 2}, {"take_rows", "scatter_add", "segment_sum", "segment_sum_grad", "add"}
    ),
    "edges, max": (lambda: gates("max"), {}, {"segment_max", "segment_max_grad", "divide"}),
    "edges, softmax": (lambda: gates("softmax"), {}, {"segment_softmax", "segment_softmax_grad"}),
}  # fmt: skip


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=60, num_classes=3, num_features=6, average_degree=4, seed=0)


def trained(graph, model, backend, **settings):
    """The losses of three epochs and the logits after them, with this back end from beginning to end."""
    result = dorylus.train(graph, model, backend=backend, epochs=3, intervals=2, threads=2, lr=0.05, **settings)
    calls = Counter(getattr(backend, "calls", {}))
    logits = result.predict("logits")
    assert backend is None or backend.calls - calls, "the prediction was computed by another back end"
    return result.losses, logits


@pytest.mark.parametrize("name", TRAINED)
def test_one_object_outside_the_package_is_enough_for_a_new_back_end(graph, name):
    model, settings, expected = TRAINED[name]
    recording = Recording()
    losses, logits = trained(graph, model(), recording, **settings)
    native_losses, native_logits = trained(graph, model(), None, **settings)
    tolerance = 2e-2 if "bf16" in name else 1e-4
    np.testing.assert_allclose(losses, native_losses, rtol=tolerance)
    np.testing.assert_allclose(logits, native_logits, rtol=tolerance, atol=tolerance)
    assert ALWAYS | expected <= set(recording.calls)


@pytest.mark.parametrize("servers", [1, 2])
@pytest.mark.parametrize("name", TRAINED)
def test_a_device_has_the_bits_of_the_kernels_it_runs(graph, name, servers):
    model, settings, _ = TRAINED[name]
    losses, logits = trained(graph, model(), Recording(NativeBackend()), **settings | {"servers": servers})
    native_losses, native_logits = trained(graph, model(), None, **settings | {"servers": servers})
    assert losses == native_losses
    np.testing.assert_array_equal(logits, native_logits)


def test_predictions_of_a_program_a_result_and_a_run_folder_use_the_back_end_that_is_given(graph, tmp_path):
    run_dir, model = tmp_path / "run", TRAINED["gcn"][0]
    first, second, third = Recording(), Recording(), Recording()
    with dorylus.Trainer(graph, model(), backend=first, epochs=2, threads=1, run_dir=run_dir) as trainer:
        trainer.run(1)
    result = dorylus.resume(run_dir, graph, model(), backend=second)
    assert first.calls["gather"]
    assert second.calls["gather"]
    expected = result.predict("logits")
    arguments = {"graph": graph, "model": model()}
    for predict in (
        lambda: dorylus.predict(graph, result.model, backend=third),
        lambda: dorylus.predict_from(run_dir, backend=third, **arguments),
    ):
        third.calls.clear()
        np.testing.assert_array_equal(predict(), expected)
        assert third.calls["gather"]
    with pytest.raises(ConfigError, match="memory='8GiB' with backend="):
        result.predict(memory="8GiB")
    with pytest.raises(ConfigError, match="memory='8GiB' with backend="):
        dorylus.predict_from(run_dir, memory="8GiB", backend=third)  # before the graph is loaded


def test_a_back_end_in_host_memory_keeps_a_memory_limit(graph, tmp_path):
    model, settings = TRAINED["gcn"][0], {"epochs": 2, "threads": 1, "memory": "8GiB", "scratch_dir": tmp_path}
    result = dorylus.train(graph, model(), backend=ReferenceBackend(), **settings)
    np.testing.assert_allclose(result.losses, dorylus.train(graph, model(), **settings).losses, rtol=1e-4)


class OwnNative(NativeBackend):
    """A back end of this process in host memory."""


@pytest.mark.parametrize(
    ("backend", "settings", "cure"),
    [
        (3, {}, "backend=3, which lacks dtype, number_format, allocate and 33 more: give an object with the methods "),
        (NativeBackend, {}, "which is a class: give an object with the methods of dorylus.backends.Backend"),
        (Recording(), {"memory": "8GiB"}, "no dorylus.backends.HostBackend: .* Leave memory out, or backend"),
        (OwnNative(), {"cluster": "ray"}, "cluster='ray' with backend=.* Leave backend out, or use cluster='local'"),
    ],
)
def test_what_is_no_back_end_or_does_not_fit_the_settings_is_refused_before_any_work(
    graph, tmp_path, backend, settings, cure
):
    with pytest.raises(ConfigError, match=cure):
        dorylus.Trainer(graph, dorylus.gcn(), backend=backend, run_dir=tmp_path / "run", **settings)
    assert not list(tmp_path.iterdir())


def test_a_run_whose_matrices_may_lie_on_a_device_is_not_refused_for_want_of_host_memory(graph, monkeypatch):
    monkeypatch.setattr("dorylus.process_memory.free_bytes", lambda: 1 << 16)
    monkeypatch.setattr("dorylus.training.assembly.check_weights_fit", lambda model, graph: None)
    with pytest.raises(ConfigError, match="the run needs about"):
        dorylus.train(graph, dorylus.gcn(hidden=4), epochs=1, threads=1)
    result = dorylus.train(graph, dorylus.gcn(hidden=4), backend=Recording(), epochs=1, threads=1)
    assert result.predict().shape == (60, 3)


@pytest.mark.parametrize("rematerialize", [False, True])
@pytest.mark.parametrize("mode", ["no_pipe", "async"])
def test_every_schedule_runs_on_a_device(graph, mode, rematerialize):
    settings = {"mode": mode, "rematerialize": rematerialize, "servers": 2, "ghost_precision": "bf16"}
    run = {"epochs": 3, "intervals": 1, "threads": 1, "keep": "best", "eval_every": 1, **settings}
    on_device, native = (
        dorylus.train(graph, dorylus.gcn(hidden=4), backend=each, **run) for each in (Recording(NativeBackend()), None)
    )
    np.testing.assert_allclose(on_device.losses, native.losses, rtol=1e-4)


def test_sparse_features_are_multiplied_by_the_back_end_too(graph):
    features = dorylus.SparseFeatures.from_dense((graph.features > 0.5).astype(np.float32))
    sparse = dorylus.Graph.from_edges(
        *np.random.default_rng(0).integers(0, 60, (2, 100)), 60, undirected=True,
        features=features, labels=graph.labels, train_mask=graph.train_mask, num_classes=3,
    )  # fmt: skip
    recording = Recording()
    losses, _ = trained(sparse, dorylus.gcn(hidden=2), recording)
    expected, _ = trained(sparse, dorylus.gcn(hidden=2), None)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert {"dropout_sparse", "gather_outer"} <= set(recording.calls)


def test_every_method_of_the_protocol_is_used_by_a_graph_server(graph):
    """The protocol is as large as it must be."""
    recording = Recording()
    for model, settings, _ in TRAINED.values():
        trained(graph, model(), recording, **settings)
    methods = {name for name in vars(Backend) if not name.startswith("_")}
    assert methods - set(recording.calls) <= {"dropout_sparse", "gather_outer"}  # those of sparse features
