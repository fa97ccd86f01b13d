"""The progress of ``dorylus.train``: where it is shown, and how."""

import os
import pty
import sys
from types import SimpleNamespace

import pytest
from log_of_a_run import epoch_record, evaluation_record, result_record, run_record

import dorylus
from dorylus.errors import ConfigError
from dorylus.report import shown_progress
from dorylus.report.terminal import NotebookProgress, TerminalProgress, notebook_display


class Cell:
    """What a notebook shows under a cell: the function ``display`` of IPython, and the handle that it returns."""

    def __init__(self):
        self.lines = []

    def display(self, data, *, raw, display_id):
        assert raw
        assert display_id
        return self.update(data, raw=raw) or self

    def update(self, data, *, raw):
        assert set(data) == {"text/plain"}
        self.lines.append(data["text/plain"])


def test_a_notebook_has_one_line_that_changes_a_few_times_a_second():
    cell = Cell()
    sink = NotebookProgress(cell.display)
    sink.wait("laying out the graph")
    sink.write({**run_record(100), "t": 0.0})
    for epoch in range(1, 101):
        sink.write({**epoch_record(epoch, 0.01), "t": epoch * 0.01})
    sink.write({**evaluation_record(100, val=0.625), "t": 1.0})
    sink.write({**result_record(), "t": 1.01})
    sink.close()
    assert cell.lines[0] == "laying out the graph ..."
    assert len(cell.lines) <= 8
    assert cell.lines[-1].startswith("epoch 100/100  loss ")
    assert "val 62.5 %" in cell.lines[-1]
    assert all("\n" not in line for line in cell.lines)


def test_a_kernel_is_known_without_importing_anything(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert notebook_display() is None
    assert "IPython" not in sys.modules
    cell, shell = Cell(), SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", cell)
    assert notebook_display() == cell.display
    del shell.kernel  # IPython in a terminal
    assert notebook_display() is None


def test_nothing_is_shown_where_stderr_is_no_terminal():
    with shown_progress(None, [1]) as sinks:
        assert sinks == [1]


@pytest.mark.parametrize("progress", [None, True, False])
def test_a_terminal_shows_progress_unless_it_is_not_wanted(progress, monkeypatch):
    master, slave = pty.openpty()
    with os.fdopen(slave, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", terminal)
        patched.setenv("TERM", "xterm")
        with shown_progress(progress, ()) as sinks:
            assert [type(each) for each in sinks] == ([] if progress is False else [TerminalProgress])
    os.close(master)


def test_progress_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="progress='bar'"), shown_progress("bar", ()):
        pass


def test_true_prints_lines_to_stderr_and_no_table(capsys):
    graph = dorylus.communities(num_vertices=60, num_classes=3, num_features=4, average_degree=4)
    dorylus.train(graph, dorylus.gcn(), epochs=3, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    first, *lines = err.splitlines()
    assert first.startswith("gcn on communities")
    assert lines[-1].startswith("epoch 3/3  loss ")
    assert "$" in lines[-1]
    assert not any("│" in line for line in lines)
    dorylus.train(graph, dorylus.gcn(), epochs=3)
    assert capsys.readouterr() == ("", "")
