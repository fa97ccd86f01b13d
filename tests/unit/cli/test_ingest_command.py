import io

import numpy as np
import pytest
from rich.console import Console

from dorylus.cli.console import stage_bars
from dorylus.graph import Graph
from dorylus.graph.store import open_ids
from dorylus.progress import StageProgress


@pytest.fixture
def edges(tmp_path):
    """A file with four edges, one of them twice."""
    np.array([[0, 1], [1, 2], [0, 1], [2, 2]], "<i4").tofile(tmp_path / "edges.i32")
    return "edges.i32"


def test_edges_become_a_store_that_opens(dorylus_program, edges, tmp_path):
    code, out, err = dorylus_program("ingest", edges, "stored", "--memory", "4GiB")
    assert (code, err) == (0, "")
    assert out == "3 vertices and 5 directed edges, of 4 read from 1 file, in stored\n"
    assert Graph.open(tmp_path / "stored", verify=True).directed is False


def test_several_files_go_into_one_store(dorylus_program, edges, tmp_path):
    np.array([[7, 0]], "<i4").tofile(tmp_path / "more.i32")
    code, out, _ = dorylus_program("ingest", edges, "more.i32", "stored", "--directed", "--drop-self-loops")
    assert code == 0
    assert out.startswith("8 vertices and 3 directed edges, of 5 read")


def test_rows_of_vertices_and_a_name_are_stored(dorylus_program, edges, tmp_path):
    np.save(tmp_path / "x.npy", np.ones((4, 2)))
    np.save(tmp_path / "y.npy", np.array([0, 1, 0, 1]))
    np.save(tmp_path / "train.npy", np.array([1, 2]))
    flags = ("--features", "x.npy", "--labels", "y.npy", "--train", "train.npy", "--name", "four")
    assert dorylus_program("ingest", edges, "stored", "--keep-duplicates", *flags)[0] == 0
    graph = Graph.open(tmp_path / "stored")
    assert (graph.name, graph.num_features, graph.num_edges) == ("four", 2, 7)
    assert graph.train_mask.tolist() == [False, True, True, False]


def test_features_are_stored_in_two_bytes_on_request(dorylus_program, edges, tmp_path):
    np.save(tmp_path / "x.npy", np.full((4, 2), 1 / 3))
    flags = ("--features", "x.npy", "--feature-dtype")
    assert dorylus_program("ingest", edges, "stored", *flags, "float16")[0] == 0
    assert Graph.open(tmp_path / "stored").features.tolist() == [[float(np.float16(1 / 3))] * 2] * 4
    code, _, err = dorylus_program("ingest", edges, "other", *flags, "int8")
    assert code == 2
    assert "the known ones are float16, float32" in err


def test_a_store_is_replaced_only_with_overwrite(dorylus_program, edges):
    assert dorylus_program("ingest", edges, "stored")[0] == 0
    code, _, err = dorylus_program("ingest", edges, "stored")
    assert code == 2
    assert "give --overwrite" in err
    assert dorylus_program("ingest", edges, "stored", "--overwrite")[0] == 0


def test_too_little_memory_is_one_paragraph(dorylus_program, edges, tmp_path):
    code, _, err = dorylus_program("ingest", edges, "stored", "--memory", "5MB")
    assert code == 2
    assert err.startswith("error: --memory is 5,000,000 bytes")
    assert not (tmp_path / "stored").exists()


def test_a_bar_shows_the_stage_its_progress_and_its_rate():
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    with stage_bars(screen) as report:
        report(StageProgress("reading edges", 500_000, 1_000_000, "bytes"))
        report(StageProgress("reading edges", 1_000_000, 1_000_000, "bytes"))
        report(StageProgress("writing edges", 10, 40, "edges"))
    output = screen.file.getvalue()
    assert "reading edges" in output
    assert "100%" in output
    assert " 25%" in output


def test_no_bars_are_drawn_into_a_file():
    screen = Console(file=io.StringIO())
    with stage_bars(screen) as report:
        report(StageProgress("reading edges", 1, 2, "bytes"))
    assert screen.file.getvalue() == ""


def test_vertices_are_reordered_on_request(dorylus_program, edges, tmp_path):
    assert dorylus_program("ingest", edges, "stored", "--directed", "--reorder", "degree")[0] == 0
    assert open_ids(tmp_path / "stored").tolist() == [1, 2, 0]
    code, _, err = dorylus_program("ingest", edges, "other", "--reorder", "degre")
    assert code == 2
    assert "Did you mean 'degree'" in err


@pytest.mark.parametrize("command", [("ingest", "edges.i32"), ("convert", "ring:num_vertices=12")])
def test_a_missing_parent_folder_is_not_created(dorylus_program, edges, tmp_path, command):
    code, _, err = dorylus_program(*command, "nowhere/at/all")
    assert code == 2
    assert "the folder nowhere/at does not exist" in err
    assert not (tmp_path / "nowhere").exists()


def test_ctrl_c_reports_that_nothing_was_written(dorylus_program, edges, tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("dorylus.ingest.pipeline.read_edges", interrupted)
    assert dorylus_program("ingest", edges, "stored") == (130, "", "interrupted: nothing was written\n")
    assert [each.name for each in tmp_path.iterdir()] == [edges]


def test_names_with_rows_are_refused_with_the_flags_of_the_command(dorylus_program, tmp_path):
    (tmp_path / "names.csv").write_text("a,b\nb,c\n")
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    code, _, err = dorylus_program("ingest", "names.csv", "stored", "--features", "x.npy")
    assert code == 2
    assert "ids are names, which are numbered as they appear in the edges. Say which vertex" in err
    assert "each row belongs to by --vertices: a file" in err


def test_a_warning_is_printed_when_most_vertices_have_no_edge(dorylus_program, tmp_path):
    np.array([[0, 1], [4, 100]], "<i4").tofile(tmp_path / "gap.i32")
    out = dorylus_program("ingest", "gap.i32", "stored")[1]
    assert out.splitlines()[1].startswith("At least 97 of the vertices have no edge: the largest id is 100. Where ids")
    assert "have no edge" not in dorylus_program("ingest", "gap.i32", "mapped", "--ids", "map")[1]


def test_weights_are_reported(dorylus_program, tmp_path):
    (tmp_path / "edges.txt").write_text("0 1 5\n1 2 7\n0 2 9\n")
    assert dorylus_program("ingest", "edges.txt", "stored")[1] == (
        "3 vertices and 6 directed edges with weights, of 3 read from 1 file, in stored\n"
    )


@pytest.mark.parametrize("flags", [(), ("--directed",), ("--reorder", "degree")])
def test_a_first_line_that_may_be_a_header_is_refused_until_the_flag_decides(dorylus_program, tmp_path, flags):
    (tmp_path / "names.csv").write_text("person,friend\na,b\nb,c\n")
    code, _, err = dorylus_program("ingest", "names.csv", "stored", *flags)
    assert code == 2
    assert err.startswith(
        "error: names.csv, line 1 names 'person' and 'friend', which no other line does: pass --header"
    )
    assert "or --no-header if it is an edge" in err
    assert not (tmp_path / "stored").exists()
    for decided, count in (("--header", 3), ("--no-header", 5)):
        out = dorylus_program("ingest", "names.csv", "stored", "--overwrite", *flags, decided)[1]
        assert out.startswith(f"{count} vertices")


@pytest.mark.parametrize("flags", [(), ("--directed",)])
@pytest.mark.parametrize(
    "text",
    ["src,dst\na,b\nc,d\n", "a,b\nb,c\n", "a,b\nc,a\n", "a,b\nc,b\n", "a,b\n", "a,a\nb,c\n", "0,1\n2,3\n"],
    ids=["known heading", "second again", "first again", "second twice", "one edge", "loop", "numbers"],
)
def test_no_other_first_line_is_refused(dorylus_program, tmp_path, text, flags):
    (tmp_path / "names.csv").write_text(text)
    assert dorylus_program("ingest", "names.csv", "stored", *flags)[0] == 0


def test_edges_without_a_store_are_refused_with_the_missing_argument(dorylus_program, edges):
    code, _, err = dorylus_program("ingest", edges)
    assert code == 2
    assert err.startswith("error: only edges.i32 is given. Name the files of edges first and then the folder of the")
    assert dorylus_program("ingest")[0] == 2


def test_the_number_of_files_read_and_the_empty_ones_are_reported(dorylus_program, edges, tmp_path):
    for name in ("day=1/part-0.txt", "day=1/part-1.txt", "day=2/part-0.txt", "day=2/part-1.txt"):
        (tmp_path / "edges" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "edges" / name).write_text("0 1\n" if name.endswith("0.txt") else "")
    (tmp_path / "edges" / "_SUCCESS").touch()
    code, out, err = dorylus_program("ingest", "edges", "stored", "--directed")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "2 vertices and 1 directed edges, of 2 read from 2 files, in stored",
        "2 files without an edge left out, the first edges/day=1/part-1.txt",
    ]


@pytest.mark.parametrize("flags", [(), ("--directed",), ("--reorder", "degree")])
def test_one_id_far_beyond_the_others_is_reported(dorylus_program, tmp_path, flags):
    """The effect of one flipped bit, where there are more edges than vertices."""
    pairs = np.random.default_rng(0).integers(0, 100, (2000, 2)).astype("<i4")
    pairs[77, 1] ^= 1 << 10
    pairs.tofile(tmp_path / "flipped.i32")
    out = dorylus_program("ingest", "flipped.i32", "stored", *flags)[1]
    largest = pairs.max()
    assert f"of the vertices have no edge: the largest id is {largest:,}." in out
    assert "an id of the input is wrong" in out
    np.save(tmp_path / "y.npy", np.zeros(largest + 1, np.int64))
    assert "have no edge" not in dorylus_program("ingest", "flipped.i32", "labelled", *flags, "--labels", "y.npy")[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("", "stored"), "a path of edges is empty: name a file or a folder"),
        (("edges.i32", "x" * 300), "File name too long. Choose another name or folder"),
        (("edges.i32", "x" * 250), "its name has 250 bytes, and at most 230"),
        (("edges.i32", "stored", "--memory", "99999999999999999GiB"), "no machine has so much"),
        (("edges.i32", "stored", "--num-vertices", "-1"), "error: --num-vertices -1: a graph has from 0 to"),
    ],
)
def test_odd_paths_and_numbers_are_refused_in_one_sentence(dorylus_program, edges, tmp_path, arguments, sentence):
    code, out, err = dorylus_program("ingest", *arguments)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1
    assert [each.name for each in tmp_path.iterdir()] == [edges]


@pytest.mark.parametrize("flags", [(), ("--directed", "--reorder", "degree")])
def test_an_id_that_would_make_a_store_of_vertices_without_edges_is_refused(dorylus_program, tmp_path, flags):
    np.array([[0, 1], [1, 2**31 - 2]], "<i4").tofile(tmp_path / "far.i32")
    code, _, err = dorylus_program("ingest", "far.i32", "stored", *flags)
    assert code == 2
    assert "the largest id is 2,147,483,646, but there are 2 edges" in err
    assert "--ids map" in err
    assert "--num-vertices 2147483647" in err
    assert [each.name for each in tmp_path.iterdir()] == ["far.i32"]
    assert dorylus_program("ingest", "far.i32", "stored", "--ids", "map", *flags)[0] == 0


def test_a_store_within_the_folder_of_edges_is_not_taken_for_edges(dorylus_program, edges, tmp_path):
    assert dorylus_program("ingest", edges, "stored")[0] == 0
    code, _, err = dorylus_program("ingest", ".", "other")
    assert code == 2
    assert "stored is a store, which holds no files of edges: move it out of the folder, or name the files" in err


def test_a_table_of_vertices_is_ingested_by_its_columns(dorylus_program, tmp_path):
    (tmp_path / "e.csv").write_text("citing,cited\na,b\nb,c\nb,z\n")
    (tmp_path / "v.csv").write_text(
        "paper,x1,x2,age,field,use\nc,1,,2,bio,train\na,3,4,5,art,train\nb,7,8,9,bio,test\n"
    )
    table = ("--vertices", "v.csv", "--id", "paper", "--label", "field")
    code, out, _ = dorylus_program(
        "ingest",
        "e.csv",
        "stored",
        *table,
        "--features",
        "x*,age",
        "--fill",
        "x2=mean",
        "--split",
        "use",
        "--drop-unknown",
    )
    assert code == 0
    assert out.splitlines()[1] == "1 edges left out, as one of their ends is not among the vertices"
    graph = Graph.open(tmp_path / "stored")
    assert (graph.class_names, graph.feature_names) == (("art", "bio"), ("x1", "x2", "age"))
    assert graph.features.tolist() == [[1, 6, 2], [3, 4, 5], [7, 8, 9]]
    assert graph.test_mask.tolist() == [False, False, True]
    shares = ("--split", "train=.5,val=0", "--seed", "3", "--fill", "0", "--categories", "age", "--drop-unknown")
    assert dorylus_program("ingest", "e.csv", "other", *table, *shares, "--features", "age")[0] == 0
    other = Graph.open(tmp_path / "other")
    assert other.feature_names == ("age=2", "age=5", "age=9")
    assert other.train_mask.sum() == 2, "one of each class"
    code, _, err = dorylus_program("ingest", "e.csv", "refused", *table, "--fill", "x2=mean")
    assert code == 2
    assert "e.csv, line 4" in err
    assert "--drop-unknown" in err
    code, _, err = dorylus_program("ingest", "e.csv", "refused", *table, "--split", "train=.5,dev")
    assert code == 2
    assert "NAME=VALUE" in err


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--split", "0.6,0.2"), "--split 0.6,0.2: name the splits, as in --split train=0.6,val=0.2."),
        (("--split", "train=60,val=20"), "--split train=60.0,val=20.0: shares are from 0 to 1"),
        (("--split", "train=.5"), "(a category, as in --fill city=none)."),
        (("--fill", "city=none,age=abc"), "--fill age=abc for column 'age', which holds numbers: give a number"),
    ],
)
def test_a_table_of_settings_is_spelled_as_its_flag(dorylus_program, tmp_path, monkeypatch, flags, sentence):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.csv").write_text("a,b\n1,2\n")
    (tmp_path / "v.csv").write_text("id,kind,city,age\n1,x,Rome,3\n2,y,,4\n")
    code, _, err = dorylus_program("ingest", "e.csv", "g", "--vertices", "v.csv", "--label", "kind", *flags)
    assert code == 2
    assert sentence in " ".join(err.split())
