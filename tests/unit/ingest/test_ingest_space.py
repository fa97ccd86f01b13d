"""The peak disk space of an ingest, counted by hand."""

from pathlib import Path

import numpy as np
import pytest

import dorylus.ingest.budget as budget
from dorylus.errors import DataError
from dorylus.ingest.budget import EdgeCounts, Space, check_space
from dorylus.ingest.entry_point import ingest_edges

E, N = 1000, 100
OFFSETS = 8 * (N + 1)


def most(*, directed: bool, stored: int | None = None, weighted: bool = False, **others: int) -> int:
    counts = EdgeCounts(E, stored or (E if directed else 2 * E), N, others.pop("ids", 0), others.pop("names", 0))
    forms = {"weighted": weighted, "directed": directed, "reordered": bool(others.pop("reordered", 0))}
    return Space.of(counts, **forms, **others).most


def test_an_undirected_store_reuses_the_space_of_its_scratch_file() -> None:
    """All but the offsets, which come first where the first vertices have no edge."""
    assert most(directed=False) == 2 * E * 8 + OFFSETS
    assert most(directed=False, weighted=True) == 2 * E * 12 + OFFSETS


def test_the_second_direction_of_a_directed_store_needs_space_of_its_own() -> None:
    first = E * 4 + OFFSETS
    assert most(directed=True) == first + E * 8 + OFFSETS
    assert most(directed=True, weighted=True) == first + E * 4 + E * 12 + OFFSETS


def test_rows_of_vertices_names_and_ids_come_on_top() -> None:
    assert most(directed=False, rows_bytes=700, names=50, ids=50) == 2 * E * 8 + OFFSETS + 700 + 50
    assert most(directed=False, ids=10**6, names=10) == 2 * E * 4 + OFFSETS + 10**6 + 10, "where the ids are more"


def test_reordering_keeps_the_edges_as_read_while_they_are_sorted() -> None:
    assert most(directed=False, reordered=1, ids=800) == E * 8 + 2 * E * 8 + 800
    wide = most(directed=False, reordered=1, features_bytes=10**6, rows_bytes=10**6 + 300, ids=800)
    assert wide == E * 8 + 10**6 + 10**6 + 300 + 800, "or all features twice"


def test_less_space_is_refused_with_folder_and_numbers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Space.of(EdgeCounts(E, 2 * E, N), weighted=False, directed=False, reordered=False)
    free = 16_000 + OFFSETS + budget._WHOLE_BLOCKS - 1
    monkeypatch.setattr(budget.shutil, "disk_usage", lambda _: type("", (), {"free": free}))
    sentence = rf"{tmp_path} needs 144\.4 KiB of space for the store, .* 8\.6 KiB, .* but 144\.4 KiB are free\. Make"
    with pytest.raises(DataError, match=sentence):
        check_space(tmp_path / "draft", made)
    check_space(tmp_path / "draft", made, already=1)


def test_space_that_is_already_used_is_not_reported_as_free(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = Space.of(EdgeCounts(E, 2 * E, N), weighted=False, directed=False, reordered=False)
    monkeypatch.setattr(budget.shutil, "disk_usage", lambda _: type("", (), {"free": 10_240}))
    with pytest.raises(DataError, match=r"but 15\.6 KiB of it are taken and 10\.0 KiB are free\. Make"):
        check_space(tmp_path / "draft", made, already=16_000)


@pytest.mark.parametrize("reorder", ["none", "degree"])
def test_only_files_on_disk_count_as_used_space(reorder: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Masks that are written after the edges do not, nor does the run that is in memory."""
    taken: list[int] = []
    monkeypatch.setattr(budget, "check_space", lambda folder, space, already=0: taken.append(already))
    pairs = np.arange(2 * E).reshape(E, 2)
    ingest_edges(pairs, tmp_path / "unknown", reorder=reorder)
    ingest_edges(pairs, tmp_path / "known", reorder=reorder, num_vertices=2 * E)
    spooled, masks = (0, 3 * 2 * E) if reorder == "none" else (8 * E, 0)
    assert taken == [0, spooled, 0, spooled + masks]
