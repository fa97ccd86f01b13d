"""The parser of text against the obvious one, on good lines, bad lines and noise."""

from itertools import pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given

from dorylus.backends import native, reference
from dorylus.backends.native.edge_input import TextEdges, TextForm
from draws import draws

PLAIN = TextForm(0, 1, None, 2)
many = draws(30)


def read(text: bytes, form: TextForm = PLAIN, *, names: bool = False) -> TextEdges:
    return native.edge_text(np.frombuffer(text, np.uint8), form, names=names)


def check(text: bytes, form: TextForm, *, names: bool = False) -> TextEdges:
    """Both readers give the same edges and the same fault."""
    mine, theirs = read(text, form, names=names), reference.edge_text(np.frombuffer(text, np.uint8), form, names=names)
    assert (mine.num_lines, mine.fault) == (theirs.num_lines, theirs.fault)
    for a, b in zip(mine[:3], theirs[:3], strict=True):
        for x, y in zip(a, b, strict=True) if isinstance(a, tuple) else [(a, b)]:
            np.testing.assert_array_equal(x, y)
            assert x is y is None or x.dtype == y.dtype
    return mine


separators = st.sampled_from([None, ",", "\t", ";", "|"])


@st.composite
def forms(draw: st.DrawFn) -> TextForm:
    num_fields = draw(st.integers(1, 4))
    columns = st.integers(0, num_fields - 1)
    bounds = draw(st.sampled_from([{}, {"lowest": 0, "highest": 2**31 - 2}]))
    return TextForm(
        draw(columns), draw(columns), draw(st.none() | columns), num_fields, draw(separators),
        draw(st.sampled_from(["#%", "", "#"])), **bounds,
    )  # fmt: skip


pieces = st.sampled_from(
    [b"0", b"1", b"12", b"-7", b"+3", b"99999999999999999999", b"9223372036854775807", b"-9223372036854775808", b"x7",
     b"1.5", b"2e3", b"nan", b"inf", b"1e40", b"1e-400", b" ", b"\t", b",", b";", b"|", b"#", b"%", b'"', b"\n",
     b"\n", b"\r\n", b"\r", b"\0", b"\xff", b"0 1\n", b"5\t6\n", b"7,8\n", b"1 2 0.5\n", b'"a b","c"\n', b'""']
)  # fmt: skip


def test_a_weight_may_be_a_column_that_an_end_is_read_from_too():
    form = TextForm(0, 1, 0, 2, ",", "#%", -(2**63), 2**63 - 1)
    assert check(b"7,8\n3,4\n", form).weight.tolist() == [7.0, 3.0]


@many
@given(st.lists(pieces, max_size=30).map(b"".join), forms(), st.booleans())
@example(b'"a",', TextForm(0, 1, None, 2, ","), True)
@example(b'"a" b,c', TextForm(0, 1, None, 2, ","), True)
@example(b"\t1\t2\n", TextForm(1, 2, None, 3, "\t"), False)
@example(b"0 1\n0 1", TextForm(0, 1, None, 2, None), False)
@example(b"0 1\r\n3 4\r", TextForm(0, 1, None, 2, None), False)
@example(b"1 000000000000000000000007\n", TextForm(0, 1, None, 2, None), False)
def test_text_of_unusual_fragments_is_read_like_the_reference(text: bytes, form: TextForm, names: bool) -> None:
    check(text, form, names=names)


@many
@given(st.binary(max_size=200), forms(), st.booleans())
def test_random_bytes_are_read_or_refused_as_the_reference_does(text: bytes, form: TextForm, names: bool) -> None:
    check(text, form, names=names)


ids = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(st.lists(st.tuples(ids, ids, floats)), st.sampled_from([" ", "\t", ",", ", "]), st.sampled_from(["\n", "\r\n"]))
def test_written_edges_are_read_back(edges: list[tuple[int, int, float]], between: str, newline: str) -> None:
    text = "".join(f"{a}{between}{b}{between}{w!r}{newline}" for a, b, w in edges).encode()
    form = TextForm(0, 1, 2, 3, "," if "," in between else None)
    found = read(text, form)
    assert found.fault is None
    assert found.num_lines == len(edges)
    assert found.weight is not None
    assert list(zip(found.source, found.destination, found.weight, strict=True)) == edges


@given(st.lists(st.tuples(st.text('abc é#"', min_size=1).map(str.strip).filter(bool), st.sampled_from(["x", "y z"]))))
def test_names_are_read_back_where_tabs_cut_them(edges: list[tuple[str, str]]) -> None:
    text = "".join(f"{a}\t{b}\n" for a, b in edges).encode()
    found = read(text, TextForm(0, 1, None, 2, "\t", comments=""), names=True)
    assert found.fault is None
    data, offsets = found.source
    names = [data[begin:end].tobytes().decode() for begin, end in pairwise(offsets)]
    assert names == [a for a, _ in edges]


FAULTS = {
    "a word": (b"0 1\nx 2\n", "number"),
    "a missing end": (b"0 1\n2\n", "fields"),
    "a field too many": (b"0 1\n1 2 3\n", "fields"),
    "a fraction": (b"0 1\n1.0 2\n", "number"),
    "a number of 65 bits": (b"0 1\n9223372036854775808 2\n", "overflow"),
    "a mark inside a word": (b"0 1\n1 2#\n", "number"),
    "a NUL": (b"0 1\n1 2\0\n", "number"),
    "an old Macintosh's newline": (b"0 1\n1 2\r3 4\n", "fields"),
}


@pytest.mark.parametrize(("text", "what"), FAULTS.values(), ids=FAULTS.keys())
def test_the_first_bad_line_is_found_and_its_fault_named(text: bytes, what: str) -> None:
    found = read(text)
    assert found.fault is not None
    assert found.fault.what == what
    assert text[found.fault.begin : found.fault.end] == text.split(b"\n")[1]
    assert found.num_lines == 1
    assert found.source.tolist() == [0]


def test_a_number_out_of_bounds_is_a_fault() -> None:
    form = TextForm(0, 1, None, 2, lowest=0, highest=9)
    assert read(b"0 9\n", form).fault is None
    for text in (b"0 10\n", b"-1 9\n", b"10 0\n"):
        fault = read(text, form).fault
        assert fault is not None
        assert fault.what == "range"


@pytest.mark.parametrize("weight", ["nan", "inf", "1e39", "heavy", "", "0x1p3", "1,5"])
def test_a_weight_is_a_finite_number(weight: str) -> None:
    fault = read(f"0|1|{weight}\n".encode(), TextForm(0, 1, 2, 3, "|")).fault
    assert fault is not None
    assert fault.what == "weight"


def test_quotes_hold_the_separator_where_commas_cut_fields() -> None:
    found = check(b'"Paris, Texas" , b\n', TextForm(0, 1, None, 2, ","), names=True)
    assert found.source[0].tobytes() == b"Paris, Texas"
    for bad in (b'"Paris, Texas\n', b'"Paris" Texas,b\n', b'"",b\n'):
        assert check(bad, TextForm(0, 1, None, 2, ","), names=True).fault is not None


@pytest.mark.parametrize(
    ("written", "name"),
    [(b'"d ""e"""', b'd "e"'), (b'"' * 4, b'"'), (b'"a"",""b"', b'a","b'), (b'd""e', b'd""e'), (b'"a" ', b"a")],
)
def test_two_quotes_within_quotes_are_one(written: bytes, name: bytes) -> None:
    found = check(b"c," + written + b"\n" + written + b",f\n", TextForm(0, 1, None, 2, ","), names=True)
    assert found.fault is None
    assert found.source[0].tobytes() == b"c" + name
    assert found.destination[0].tobytes() == name + b"f"


@pytest.mark.parametrize("written", [b'"a""', b'"""', b'"a""b', b'"a"" "b"'])
def test_quotes_that_are_doubled_close_nothing(written: bytes) -> None:
    fault = check(b"c," + written + b"\n", TextForm(0, 1, None, 2, ","), names=True).fault
    assert fault is not None
    assert fault.what == "quotes"


def test_arguments_are_checked() -> None:
    with pytest.raises(ValueError, match=r"columns must lie in 0\.\.1"):
        read(b"0 1\n", TextForm(0, 2, None, 2))
    with pytest.raises(ValueError, match="separator must be one character"):
        read(b"0 1\n", TextForm(0, 1, None, 2, "::"))
    with pytest.raises(TypeError, match="text must hold uint8"):
        native.edge_text(np.zeros(3, np.int32), PLAIN)
