import numpy as np
import pytest

from dorylus.graph import Graph, TextIds, ring
from dorylus.graph import arrays as module
from dorylus.inference.prediction_file import StoredNumberIds, original_ids

NAMES = ["ant", "é", "", "日本語", "driver ant"]


def texts(names):
    """Ids as a store keeps them."""
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(encoded), np.uint8)


@pytest.mark.parametrize("rows", [2, 131_072])
def test_texts_are_read_a_range_at_a_time(monkeypatch, rows):
    monkeypatch.setattr(module, "TEXTS_AT_ONCE", rows)
    ids = TextIds(*texts(NAMES))
    assert ids.dtype == np.dtype("<U10")
    assert ids.rows(1, 4).tolist() == NAMES[1:4]
    offsets, content = ids.parts(3, 5)
    assert offsets.tolist() == [0, 9, 19]
    assert content.tobytes().decode() == "日本語driver ant"


def test_empty_texts_have_a_type_too():
    assert TextIds(*texts(["", ""])).rows(0, 2).tolist() == ["", ""]


def test_numbers_are_read_a_range_at_a_time():
    ids = StoredNumberIds(np.array([7, 2**40, -1]))
    assert ids.dtype == np.int64
    assert ids.rows(1, 3).tolist() == [2**40, -1]


def test_a_graph_has_the_ids_that_it_was_given():
    numbers, named = ring(9), Graph.from_edges([0], [1], ids=TextIds(*texts(["a", "b"])))
    assert original_ids(numbers) is None
    assert original_ids(named).rows(0, 2).tolist() == ["a", "b"]
    stored = original_ids(Graph.from_edges([0], [1], ids=[30, 10]))
    assert isinstance(stored, StoredNumberIds)
    assert stored.rows(0, 2).tolist() == [30, 10]
