import sys

import pytest

from dorylus.partition import METHODS, open_shards

GRAPH = "communities:num_vertices=2000,num_features=1"


def rows(out: str) -> dict[str, list[str]]:
    """The cells of each line of the table, by method."""
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in out.splitlines() if line.startswith("│")]
    return {cells[0]: cells[1:] for cells in lines}


def test_one_method_is_one_line(dorylus_program):
    code, out, _ = dorylus_program("partition", GRAPH, "--servers", 4)
    found = rows(out)
    assert code == 0
    assert list(found) == ["method", "stream"]
    assert found["method"] == ["edge cut", "ghosts/vertex", "vertex balance", "edge balance", "seconds"]
    assert float(found["stream"][0].removesuffix("%")) < 30
    assert float(found["stream"][2]) <= 1.05
    assert float(found["stream"][3]) <= 1.05
    assert "communities, 2,000 vertices, 40,000 directed edges, 4 servers" in out


def test_all_compares_the_methods_side_by_side(dorylus_program):
    code, out, _ = dorylus_program("partition", GRAPH, "--servers", 4, "--method", "all", "--passes", 2)
    assert code == 0
    assert tuple(rows(out))[1:] == METHODS


def test_all_without_pymetis_prints_the_others_and_the_cure(dorylus_program, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    code, out, _ = dorylus_program("partition", GRAPH, "--servers", 4, "--method", "all")
    assert code == 0
    assert tuple(rows(out))[1:] == ("hash", "range", "stream")
    assert 'pip install "dorylus[metis]"' in out


def test_metis_alone_without_pymetis_is_refused(dorylus_program, monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    code, _, err = dorylus_program("partition", GRAPH, "--servers", 4, "--method", "metis")
    assert code == 2
    assert err.count("\n") == 1
    assert 'pip install "dorylus[metis]"' in err


def test_the_table_fits_a_terminal_of_eighty_columns(dorylus_program, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = dorylus_program("partition", "ring", "--servers", 2, "--method", "range")
    assert "vertex balance" in out
    assert "…" not in out


def test_a_star_that_cannot_be_balanced_is_reported(dorylus_program, tmp_path):
    (tmp_path / "star.txt").write_text("".join(f"0 {leaf}\n" for leaf in range(1, 200)))
    code, out, _ = dorylus_program("partition", "star.txt", "--servers", 4)
    assert code == 0
    assert "no division of this graph is within 5 %" in out


def test_shards_are_saved_and_cut_again(dorylus_program, tmp_path):
    code, out, _ = dorylus_program("partition", GRAPH, "--servers", 4, "--out", "shards")
    assert code == 0
    assert out.splitlines()[-1] == "4 shards in shards"
    assert open_shards(tmp_path / "shards").num_servers == 4
    code, _, _ = dorylus_program("partition", "shards", "--servers", 2, "--method", "range", "--out", "fewer")
    assert code == 0
    fewer = open_shards(tmp_path / "fewer")
    assert (fewer.num_servers, fewer.method, fewer.num_edges) == (2, "range", 40_000)


def test_a_folder_that_exists_is_replaced_only_with_overwrite(dorylus_program, tmp_path):
    dorylus_program("partition", "ring", "--servers", 2, "--method", "range", "--out", "shards")
    again = ("partition", "ring", "--servers", 3, "--method", "range", "--out", "shards")
    code, out, err = dorylus_program(*again)
    assert (code, out) == (2, "")
    assert "shards exists already: give --overwrite" in err
    assert dorylus_program(*again, "--overwrite")[0] == 0
    assert open_shards(tmp_path / "shards").num_servers == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--servers", 4, "--method", "strem"), "Did you mean 'stream'?"),
        (("--servers", 0), "--servers 0, but"),
        (("--servers", 2001), "use from 1 to 2,000"),
        (("--servers", 4, "--passes", 0), "passes=0"),
        (("--servers", 4, "--method", "hash", "--passes", 2), "only 'stream' takes passes"),
        (("--servers", 4, "--seed", -1), "--seed -1: use"),
        (("--servers", 4, "--method", "all", "--out", "shards"), "name that one"),
    ],
)
def test_invalid_arguments_are_one_sentence_and_exit_code_2(dorylus_program, tmp_path, arguments, message):
    code, out, err = dorylus_program("partition", GRAPH, *arguments)
    assert code == 2
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_servers_must_be_given(dorylus_program):
    code, _, err = dorylus_program("partition", GRAPH)
    assert code == 2
    assert "--servers" in err


def test_a_limit_is_reported_first_and_writes_the_same_shards(dorylus_program, tmp_path):
    dorylus_program("partition", GRAPH, "--servers", 2, "--out", "free")
    code, out, _ = dorylus_program("partition", GRAPH, "--servers", 2, "--out", "bound", "--memory", "64GiB")
    assert code == 0
    assert out.startswith("stream: keeps to 64.0 GiB")
    free, bound = ({file.name: file.read_bytes() for file in (tmp_path / name).iterdir()} for name in ("free", "bound"))
    assert bound == free


def test_a_limit_that_is_too_small_is_one_sentence_and_writes_nothing(dorylus_program, tmp_path):
    code, _, err = dorylus_program("partition", GRAPH, "--servers", 2, "--out", "shards", "--memory", "1MiB")
    assert code == 2
    assert "Give at least" in err
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_shards_need_an_existing_parent_folder(dorylus_program):
    code, _, err = dorylus_program("partition", "ring:num_vertices=12", "--servers", "2", "--out", "nowhere/shards")
    assert code == 2
    assert "the folder nowhere does not exist" in err
