"""Text in every usual spelling, and the first bad line by its number."""

from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from all_edges import edges_of
from hypothesis import HealthCheck, given, settings

import dorylus.ingest.readers.text as text
from dorylus.errors import DataError
from dorylus.ingest.readers.files import open_edges

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25)


def read(content: str | bytes, folder: Path, name: str = "web.txt", **options: Any) -> list[tuple[Any, ...]]:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return edges_of(open_edges(folder / name, **options))


SPELLINGS = {
    "blanks": "0 1\n1 2\n",
    "tabs": "0\t1\n1\t2\n",
    "commas": "0,1\n1, 2\n",
    "many blanks": "  0   1\n1 \t 2  \n",
    "comments and empty lines": "# a graph\n% of two edges\n\n0 1 # first\n   \n1 2\n\n",
    "no newline at the end": "0 1\n1 2",
    "windows newlines": "0 1\r\n1 2\r\n",
    "a byte-order mark": "\ufeff0 1\n1 2\n",
    "a byte-order mark and a header": "\ufeffsrc,dst\n0,1\n1,2\n",
    "a header after comments": "# a graph\nsource\ttarget\n0\t1\n1\t2\n",
    "signs and zeros": "+0 01\n0001 2\n",
}


@pytest.mark.parametrize("content", SPELLINGS.values(), ids=SPELLINGS.keys())
def test_every_spelling_gives_the_same_edges(content: str, tmp_path: Path) -> None:
    assert read(content, tmp_path) == [(0, 1), (1, 2)]


def test_a_third_column_is_the_weight(tmp_path: Path) -> None:
    assert read("0 1 0.5\n1 2 -3e1\n", tmp_path) == [(0, 1, 0.5), (1, 2, -30.0)]
    assert read("0\t1 0.5\n1\t2 4\n", tmp_path) == [(0, 1, 0.5), (1, 2, 4.0)]


@pytest.mark.parametrize("columns", [(3, 1), ("to", "from"), "to,from", "3,1", ("to", 1)])
def test_columns_are_chosen_by_position_or_name(columns: Any, tmp_path: Path) -> None:
    content = "kind,from,when,to\nlikes,0,2020,1\nlikes,1,2021,2\n"
    assert read(content, tmp_path, columns=columns) == [(1, 0), (2, 1)]


def test_a_weight_may_be_any_column_and_a_third_column_may_be_left_alone(tmp_path: Path) -> None:
    assert read("0.5 0 1\n", tmp_path, columns=(1, 2, 0)) == [(0, 1, 0.5)]
    assert read("0 1 1500000000\n", tmp_path, columns=(0, 1)) == [(0, 1)]


def test_any_character_may_separate_fields(tmp_path: Path) -> None:
    assert read("0|1\n1|2\n", tmp_path, delimiter="|") == [(0, 1), (1, 2)]
    assert read("0 1\n", tmp_path, delimiter=" ") == [(0, 1)]
    assert read("a b\tc\n", tmp_path, delimiter="tab") == [("a b", "c")]


def test_other_marks_may_open_comments_or_none(tmp_path: Path) -> None:
    assert read("// a\n0 1 / b\n", tmp_path, comments="/") == [(0, 1)]
    assert read("#a %b\nx y\n", tmp_path, comments="") == [("#a", "%b"), ("x", "y")]


def test_names_are_read_as_names(tmp_path: Path) -> None:
    assert read("alice bob\nbob 7\n", tmp_path) == [("alice", "bob"), ("bob", "7")]
    assert read("New York\tParis\nRome\tNew York\n", tmp_path) == [("New York", "Paris"), ("Rome", "New York")]
    assert read('"Paris, Texas",b\nc,d\n', tmp_path, "a.csv") == [("Paris, Texas", "b"), ("c", "d")]
    assert read('c,"d ""e"""\n', tmp_path, "a.csv") == [("c", 'd "e"')]
    assert read("Paris, Texas\tb\n", tmp_path, "a.tsv") == [("Paris, Texas", "b")]
    assert read("é ü 0.5\n", tmp_path) == [("é", "ü", 0.5)]


def test_a_header_over_names_is_recognised_by_its_words_or_given(tmp_path: Path) -> None:
    assert read("source target\na b\n", tmp_path) == [("a", "b")]
    assert read("source target\na b\n", tmp_path, header=False) == [("source", "target"), ("a", "b")]
    assert read("who whom\na b\n", tmp_path) == [("who", "whom"), ("a", "b")]
    assert read("who whom\na b\n", tmp_path, header=True) == [("a", "b")]
    assert read("0 1\n2 3\n", tmp_path, header=True) == [(2, 3)]


@pytest.mark.parametrize("heading", ["src,dst", "Source,Target", "from,to,weight", "dst,src"])
def test_a_known_heading_alone_is_no_edge(heading: str, tmp_path: Path) -> None:
    sentence = (
        "web.txt holds a header and no edge. Leave it out, .* if it is an edge, ingest the file with header=False"
    )
    with pytest.raises(DataError, match=sentence):
        read(f"{heading}\n", tmp_path)
    assert read("src,dst\n", tmp_path, header=False) == [("src", "dst")]


def test_one_line_with_no_known_heading_is_an_edge(tmp_path: Path) -> None:
    assert read("alice,bob\n", tmp_path) == [("alice", "bob")]
    assert read("0,1\n", tmp_path) == [(0, 1)]


def test_numbers_are_read_as_names_on_request(tmp_path: Path) -> None:
    assert read("007 7\n", tmp_path, ids="strings") == [("007", "7")]


def test_any_number_of_64_bits_is_read_when_it_is_to_be_mapped(tmp_path: Path) -> None:
    low, high = -(2**63), 2**63 - 1
    assert read(f"{low} {high}\n", tmp_path, ids="map") == [(low, high)]


BAD = {
    "a word": (
        "0 1\n# fine\n1 two\n",
        r"line 3: '1 two' is not an edge.*ids='strings'\.",
    ),
    "a word first": (
        "1 two\n0 1\n0 1\n",
        r"line 1: '1 two' is not an edge.*If it is a header, ingest the file with header=True",
    ),
    "a missing end": ("0 1\n1\n", r"line 2: '1' is not an edge.*The first line has 2 fields"),
    "a column too many": ("0 1\n1 2 3\n", "line 2: '1 2 3'"),
    "a weight too few": ("0 1 2.5\n1 2\n", "line 2: '1 2'"),
    "four columns": ("0 1 2 3\n", r"has 4 columns.*columns=\(0, 1\)"),
    "a fraction for a vertex": ("0 1\n1.5 2\n", "line 2: '1.5 2'"),
    "fractions for vertices": ("0.0 1.0\n1.5 2.0\n", "line 1: '0.0 1.0'"),
    "a negative vertex": ("0 1\n1 2\n-4 2\n", r"line 3: '-4 2'.*ids='map'"),
    "a vertex beyond 32 bits": ("0 1\n1 2147483647\n", r"line 2: '1 2147483647'.*ids='map'"),
    "a vertex beyond 64 bits": ("0 1\n1 9223372036854775808\n", r"line 2: .*Numbers have 64 bits"),
    "a weight that is a word": ("0 1 2\n1 2 heavy\n", r"line 2: '1 2 heavy'.*finite"),
    "a weight that is no number": ("0 1 2\n1 2 nan\n", r"line 2: '1 2 nan'.*finite"),
    "another separator": ("0 1\n1;2\n", "line 2: '1;2'"),
    "another separator throughout": ("0:1\n1:2\n", r"line 1: '0:1'.*delimiter="),
    "a name that is missing": ("a,b\n,c\n", r"line 2: ',c'.*A name is missing"),
    "quotes that do not close": ('a,b\n"c,d\n', r"line 2: '\"c,d'.*Quotes must close"),
    "lines that end in CR": ("0 1\r1 2\r", r"line 1 holds a carriage return: lines seem to end in CR"),
    "fields that end in CR": ("# a\n0,1\r1,2\r", r"line 2 holds a carriage return"),
    "zeros": ("0,\0\r1\n", r"line 1 holds a zero byte, so it is not text"),
    "an endless field": (f"0,{'1' * 140_000}\n", r"line 1 cannot be split into fields \(field larger"),
    "nothing but comments": ("# nothing\n\n", "holds no edge"),
    "a header alone": ("source target\n# no more\n", "holds a header and no edge"),
}


@pytest.mark.parametrize(("content", "sentence"), BAD.values(), ids=BAD.keys())
def test_the_first_bad_line_is_named(content: str, sentence: str, tmp_path: Path) -> None:
    options = {"header": True} if sentence.startswith("holds a header") else {}
    with pytest.raises(DataError, match=sentence):
        read(content, tmp_path, **options)


def test_a_column_that_is_not_there_lists_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no column 'dest': its columns are 'src', 'dst'"):
        read("src,dst\n0,1\n", tmp_path, columns=("src", "dest"))
    with pytest.raises(DataError, match="no column 5"):
        read("0 1\n", tmp_path, columns=(0, 5))
    with pytest.raises(DataError, match="two columns 'a'"):
        read("a,a\n0,1\n", tmp_path, columns=("a", "a"))


def test_names_are_refused_where_numbers_are_required(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 1: 'a b' is not an edge"):
        read("a b\nc d\n", tmp_path, ids="dense", header=False)


def test_text_in_sixteen_bits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is UTF-16"):
        read("0 1\n".encode("utf-16"), tmp_path)


def numbered(count: int, bad_line: int | None = None) -> bytes:
    lines = [f"{i % 1000}\t{i}" for i in range(count)]
    if bad_line is not None:
        lines[bad_line - 1] = "12\tx7"
    return "\n".join(lines).encode()


@pytest.mark.parametrize("block_bytes", [16, 17, 1000, 1 << 20])
def test_blocks_are_cut_between_lines(block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", block_bytes)
    assert read(numbered(3000), tmp_path) == [(i % 1000, i) for i in range(3000)]


def test_a_bad_line_late_in_a_big_file_has_its_right_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 1 << 16)
    content = b"# heading\nfrom\tto\n" + numbered(100_000, bad_line=81_275)
    with pytest.raises(DataError, match=r"web.txt, line 81,277: '12\\tx7' is not an edge\. Each line has"):
        read(content, tmp_path)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 64)
    with pytest.raises(DataError, match=r"web\.txt, line 32, has more than 4,194,304 bytes"):
        read("0 1\n" * 31 + " " * 200 + "1 2\n", tmp_path)


LONG = {
    "a comment": "# {}\n0 1\n1 2\n",
    "blanks between ends": "0{}1\n",
    "one near the beginning": "0 1\n1 2\n2{}\n",
    "one without an end": "0 1\n1{}2",
}


@pytest.mark.parametrize("form", LONG.values(), ids=LONG.keys())
def test_a_long_line_is_reported_wherever_it_is(form: str, tmp_path: Path) -> None:
    number = form[: form.index("{}")].count("\n") + 1
    with pytest.raises(
        DataError, match=f"web.txt, line {number}, has more than 4,194,304 bytes, the most a line may have"
    ):
        read(form.format(" " * (5 << 20)), tmp_path)


def test_blocks_of_nothing_but_comments_give_no_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "BLOCK_BYTES", 64)
    assert read("0 1\n" + "# nothing\n" * 50 + "1 2\n", tmp_path) == [(0, 1), (1, 2)]


def test_a_long_heading_of_comments_is_passed_over(tmp_path: Path) -> None:
    assert read("# comment\n" * 20_000 + "from,to\n0,1\n", tmp_path) == [(0, 1)]


@shared_folder
@given(st.lists(st.tuples(st.integers(0, 2**31 - 2), st.integers(0, 2**31 - 2)), min_size=1))
def test_written_edges_are_read_back(tmp_path: Path, edges: list[tuple[int, int]]) -> None:
    np.savetxt(tmp_path / "web.txt", np.array(edges), fmt="%d")
    assert edges_of(open_edges(tmp_path / "web.txt")) == edges


@shared_folder
@given(st.binary(min_size=1, max_size=300), st.sampled_from(["auto", "dense", "map", "strings"]))
def test_random_bytes_are_read_or_refused(tmp_path: Path, noise: bytes, ids: str) -> None:
    try:
        found: Any = read(noise, tmp_path, "noise.txt", ids=ids)
    except DataError as error:
        found = str(error)
    if isinstance(found, str):
        assert str(tmp_path / "noise.txt") in found
    else:
        assert 0 < len(found) <= noise.count(b"\n") + 1


@shared_folder
@given(st.integers(1, 200), st.data())
def test_the_error_names_the_damaged_line(tmp_path: Path, count: int, data: st.DataObject) -> None:
    damaged = data.draw(st.integers(1, count))
    junk = data.draw(st.sampled_from(["x", "1", "1 2 3", "1 2x", "- 1", "1,2", "\x01 2"]))
    lines = ["5 6"] * count + ["7 8"] * (count + 1)
    lines.insert(damaged, junk)
    (tmp_path / "web.txt").write_text("\n".join(lines))
    with pytest.raises(DataError, match=f"line {damaged + 1}: "):
        edges_of(open_edges(tmp_path / "web.txt", ids="dense"))


def test_the_number_of_edges_is_estimated_from_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "edges.txt"
    path.write_text("".join(f"{i}\t{i * 7}\n" for i in range(20_000)))
    assert open_edges(path).num_edges == 20_001, "a small file is counted; the last line may have no end"
    monkeypatch.setattr(text, "SAMPLE_BYTES", 512)
    about = open_edges(path).num_edges
    assert about is not None
    assert 19_000 < about < 21_000
