import numpy as np
import pytest

from dorylus.inference import prediction_file as module
from dorylus.inference.prediction_file import StoredNumberIds, StoredTextIds, original_ids

NAMES = ["ant", "é", "", "日本語", "driver ant"]


def texts(names):
    """Ids as a store keeps them."""
    encoded = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, encoded)]).astype(np.int64)
    return offsets, np.frombuffer(b"".join(encoded), np.uint8)


@pytest.mark.parametrize("rows", [2, 131_072])
def test_texts_are_read_a_range_at_a_time(monkeypatch, rows):
    monkeypatch.setattr(module, "ROWS", rows)
    ids = StoredTextIds(*texts(NAMES))
    assert ids.dtype == np.dtype("<U10")
    assert ids.rows(1, 4).tolist() == NAMES[1:4]
    offsets, content = ids.parts(3, 5)
    assert offsets.tolist() == [0, 9, 19]
    assert content.tobytes().decode() == "日本語driver ant"


def test_empty_texts_have_a_type_too():
    assert StoredTextIds(*texts(["", ""])).rows(0, 2).tolist() == ["", ""]


def test_numbers_are_read_a_range_at_a_time():
    ids = StoredNumberIds(np.array([7, 2**40, -1]))
    assert ids.dtype == np.int64
    assert ids.rows(1, 3).tolist() == [2**40, -1]


@pytest.mark.parametrize(
    ("kept", "kind"), [(np.array([3, 1]), StoredNumberIds), (texts(["a", "b"]), StoredTextIds), (None, type(None))]
)
def test_ids_are_those_of_the_store(monkeypatch, kept, kind):
    opened = []
    monkeypatch.setattr("dorylus.inference.prediction_file.open_ids", lambda path: opened.append(path) or kept)
    assert isinstance(original_ids("here"), kind)
    assert opened == ["here"]


def test_a_graph_without_a_store_has_no_ids():
    assert original_ids(None) is None
