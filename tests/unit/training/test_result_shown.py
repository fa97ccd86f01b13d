"""How a result shows itself: as a few lines, as a table of a notebook, and its history as columns."""

import re
from html.parser import HTMLParser

import pandas
import polars
import pytest

import dorylus


@pytest.fixture(scope="module")
def graph():
    return dorylus.communities(num_vertices=90, num_classes=3, num_features=6, average_degree=4)


@pytest.fixture(scope="module")
def result(graph):
    return dorylus.train(graph, dorylus.gcn(hidden=4), epochs=5, eval_every=2, servers=2, progress=False)


class Cells(HTMLParser):
    """The texts of a document and the tags it has."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)

    def handle_data(self, data):
        self.texts.append(data)


def test_a_result_is_printed_in_at_most_twelve_lines(graph, result, tmp_path):
    longest = dorylus.train(
        graph, dorylus.gcn(), epochs=1, mode="async", servers=2, ghost_precision="bf16", run_dir=tmp_path / "run"
    )
    assert str(longest).count("\n") <= 11
    assert f"{tmp_path}/run" in str(longest)
    assert "approximate     mode=async, ghost_precision=bf16" in str(longest)
    assert "approximate" not in str(result)
    assert re.search(r"^  test accuracy +\d+\.\d %$", str(result), re.MULTILINE)
    assert re.search(r"^  epochs +5 in .* stopped by: epochs$", str(result), re.MULTILINE)


def test_a_result_shows_the_epoch_whose_weights_it_keeps(graph):
    best = dorylus.train(graph, dorylus.gcn(hidden=4), epochs=8, lr=1.0, eval_every=1, keep="best", progress=False)
    assert best.best_epoch < 8
    assert f"stopped by: epochs; weights of epoch {best.best_epoch}, the best on validation\n" in str(best)


def test_a_table_of_a_notebook_shows_names_as_text(graph):
    import dataclasses

    named = dataclasses.replace(graph, name="<script>alert('x')</script>\nsecond line")
    result = dorylus.train(named, dorylus.gcn(), epochs=1)
    for each in (result, named):
        cells = Cells(each._repr_html_())
        assert cells.tags == {"table", "caption", "tr", "th", "td"}
        assert "<script>alert('x')</script>" in "".join(cells.texts)
    assert str(result).count("\n") <= 11


def test_a_graphs_table_has_its_sizes(graph):
    texts = Cells(graph._repr_html_()).texts
    assert texts[:3] == ["Graph 'communities'", "vertices", "90"]
    assert "180 (undirected)" not in texts
    assert f"{graph.num_edges} (undirected)" in texts


def test_history_has_a_row_an_epoch_and_scores_where_it_was_evaluated(result):
    history = result.history
    assert list(history)[:4] == ["epoch", "loss", "seconds", "usd"]
    assert {len(column) for column in history.values()} == {5}
    assert history["epoch"] == [1, 2, 3, 4, 5]
    assert history["loss"] == result.losses
    assert history["seconds"] == result.epoch_seconds
    assert history["usd"] == sorted(history["usd"])
    assert history["usd"][0] > 0
    assert [score is not None for score in history["val_accuracy"]] == [False, True, False, True, False]


@pytest.mark.parametrize("library", [pandas, polars])
def test_data_frames_take_a_history(result, library):
    frame = library.DataFrame(result.history)
    assert frame.shape == (5, len(result.history))
    assert list(frame["loss"]) == result.losses


def test_the_history_of_a_resumed_run_is_whole(graph, tmp_path):
    settings = {"epochs": 6, "eval_every": 2, "checkpoint_every": 1, "seed": 3}
    with dorylus.Trainer(graph, dorylus.gcn(), run_dir=tmp_path / "run", **settings) as trainer:
        trainer.run(3)
    resumed = dorylus.resume(tmp_path / "run", graph, dorylus.gcn())
    whole = dorylus.train(graph, dorylus.gcn(), **settings)
    for name in ("epoch", "loss", "val_accuracy", "test_macro_f1"):
        assert resumed.history[name] == whole.history[name]
    assert None not in resumed.history["usd"]
    assert len(resumed.history["seconds"]) == 6
