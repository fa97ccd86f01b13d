"""What an ingest takes on disk at its worst moment, counted by hand."""

from pathlib import Path

import pytest

from dorylus.errors import DataError
from dorylus.graph.ingest import space
from dorylus.graph.ingest.space import Counts, Space, check_space

E, N = 1000, 100
OFFSETS = 8 * (N + 1)


def most(*, directed: bool, stored: int | None = None, held: int = 0, weighted: bool = False, **others: int) -> int:
    counts = Counts(E, stored or (E if directed else 2 * E), N, others.pop("ids", 0), others.pop("names", 0))
    forms = {"weighted": weighted, "directed": directed, "reordered": bool(others.pop("reordered", 0))}
    return Space.of(counts, merge_bytes=held, **forms, **others).most


def test_an_undirected_store_takes_its_scratch_file_whose_space_it_inherits() -> None:
    assert most(directed=False) == 2 * E * 8
    assert most(directed=False, weighted=True) == 2 * E * 12


def test_what_is_read_but_not_given_back_counts_too() -> None:
    assert most(directed=False, held=4000) == 2 * E * 8 + 4000
    assert most(directed=False, held=10**9) == 2 * E * 8 + 2 * E * 4 + OFFSETS, "no more than both files"


def test_a_directed_store_has_two_scratch_files_while_the_first_is_written() -> None:
    assert most(directed=True) == E * 8 + E * 4 + OFFSETS
    assert most(directed=True, weighted=True, held=500) == E * 12 + E * 8 + OFFSETS + 500


def test_rows_of_vertices_names_and_ids_come_on_top() -> None:
    assert most(directed=False, rows_bytes=700, names=50, ids=50) == 2 * E * 8 + 700 + 50
    assert most(directed=False, ids=10**6, names=10) == 2 * E * 4 + OFFSETS + 10**6 + 10, "where the ids are more"


def test_reordering_keeps_the_edges_as_read_while_they_are_sorted() -> None:
    assert most(directed=False, reordered=1, ids=800) == E * 8 + 2 * E * 8 + 800
    wide = most(directed=False, reordered=1, features_bytes=10**6, rows_bytes=10**6 + 300, ids=800)
    assert wide == E * 8 + 10**6 + 10**6 + 300 + 800, "or all features twice"


def test_less_than_that_is_refused_with_folder_and_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(space.shutil, "disk_usage", lambda _: type("", (), {"free": 15_000}))
    made = Space.of(Counts(E, 2 * E, N), weighted=False, directed=False, reordered=False, merge_bytes=0)
    sentence = rf"{tmp_path} needs 15\.6 KiB of free space for the store, .* 8\.6 KiB, .* but 14\.6 KiB are free\. Make"
    with pytest.raises(DataError, match=sentence):
        check_space(tmp_path / "draft", made)
    check_space(tmp_path / "draft", made, already=1000)
