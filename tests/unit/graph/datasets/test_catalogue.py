"""load: names, generator specifications and paths are distinguished; errors list the known ones."""

from pathlib import Path

import numpy as np
import pytest

from dorylus.errors import DataError
from dorylus.graph import communities, load, ring


def test_a_generator_is_known_by_name() -> None:
    assert load("ring").num_vertices == ring().num_vertices


def test_a_generator_takes_its_arguments_from_the_text() -> None:
    graph = load("communities:num_vertices=300,seed=1,average_degree=4.5,multilabel=True,split=(0.5, 0.1)")
    expected = communities(300, seed=1, average_degree=4.5, multilabel=True, split=(0.5, 0.1))
    assert np.array_equal(graph.indices, expected.indices)
    assert np.array_equal(graph.train_mask, expected.train_mask)
    assert graph.multilabel


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("True", True), ("false", False), ("False", False)])
def test_a_switch_may_be_spelt_small(text: str, expected: bool) -> None:
    assert load(f"communities:num_vertices=300,average_degree=4,multilabel={text}").multilabel is expected


def test_a_generator_takes_options_too() -> None:
    assert load("ring:num_vertices=10", num_classes=2).num_classes == 2


@pytest.mark.parametrize(
    "text", ["ring:10", "ring:num_vertices=", "ring:num_vertices=exit()", "ring:**{}", "ring:a=1)+(b=2"]
)
def test_malformed_arguments_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="Write the arguments as name=number"):
        load(text)


def test_an_unknown_argument_lists_the_known_ones() -> None:
    with pytest.raises(DataError, match=r"unknown argument of ring 'num_vertex'.*Did you mean 'num_vertices'"):
        load("ring:num_vertex=10")


def test_a_store_folder_is_opened(tmp_path: Path) -> None:
    ring(10).save(tmp_path / "store")
    assert load(tmp_path / "store").num_vertices == 10
    assert load(str(tmp_path / "store"), verify=True).num_vertices == 10


def test_a_folder_that_is_no_store_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is not a store"):
        load(tmp_path)


def test_a_name_wins_over_a_file_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ring").write_text("0 1\n")
    assert load("ring").num_vertices == 1000
    assert load("./ring").num_vertices == 2
    assert load(Path("ring")).num_vertices == 2


def test_an_unknown_name_lists_the_known_ones_and_the_nearest() -> None:
    with pytest.raises(DataError, match=r"unknown data set 'coraa'.*amazon-computers.*citeseer.*Did you mean 'cora'\?"):
        load("coraa")


def test_a_missing_file_is_called_a_missing_file() -> None:
    with pytest.raises(DataError, match=r"there is no file or folder graphs/web\.txt"):
        load("graphs/web.txt")


def test_an_option_the_reader_does_not_have_is_named(tmp_path: Path) -> None:
    (tmp_path / "web.txt").write_text("0 1\n")
    with pytest.raises(DataError, match="unexpected keyword argument 'verify'"):
        load(tmp_path / "web.txt", verify=True)


@pytest.mark.parametrize("name", ["Cora", "amazon_photo", "Coauthor-CS"])
def test_names_may_be_spelt_in_capitals_and_underscores(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"with download=False, cora lacks|is missing and download=False"):
        load(name, root=tmp_path, download=False)
