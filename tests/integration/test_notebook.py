"""A notebook in a real kernel: progress under the cell, and results as tables. The notebook of the examples runs."""

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

CELLS = [
    "import dorylus\n"
    "graph = dorylus.communities(num_vertices=200, num_classes=3, num_features=8, average_degree=5)\n"
    "graph",
    "result = dorylus.train(graph, dorylus.gcn(hidden=4), epochs=30)\nresult",
    "print(result)",
    "dorylus.train(graph, dorylus.gcn(hidden=4), epochs=3, progress=False).losses[:0]",
]


EXAMPLE = Path(__file__).parents[2] / "examples" / "first_run.ipynb"


def outputs_of(sources):
    """The outputs of cells that a new kernel runs one after another."""
    kernel = {"name": "python3", "display_name": "Python", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    notebook.metadata["kernelspec"] = kernel
    client = NotebookClient(notebook, timeout=120, kernel_name="python3")
    client.create_kernel_manager()
    client.km.kernel_cmd = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    client.execute(env=os.environ | {"OMP_NUM_THREADS": "1", "IPYTHONDIR": os.devnull})
    return [cell.outputs for cell in notebook.cells]


@pytest.fixture(scope="module")
def outputs():
    """The outputs of each cell."""
    return outputs_of(CELLS)


def test_progress_is_one_line_of_plain_text_that_ends_with_the_last_epoch(outputs):
    line, table = outputs[1]
    assert line.output_type == "display_data"
    assert set(line.data) == {"text/plain"}
    assert line.data["text/plain"].startswith("epoch 30/30  loss ")
    assert "$" in line.data["text/plain"]
    assert table.data["text/html"].startswith("<table>")


def test_a_graph_is_a_table_and_a_printed_result_is_short(outputs):
    assert "<td>200</td>" in outputs[0][0].data["text/html"]
    assert outputs[2][0].text.count("\n") <= 12


def test_no_progress_is_shown_where_it_is_not_wanted(outputs):
    (only,) = outputs[3]
    assert only.data["text/plain"] == "[]"


def printed(outputs):
    return "".join(each.text for each in outputs if each.output_type == "stream")


def test_the_notebook_of_the_examples_prints_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = [cell for cell in nbformat.read(EXAMPLE, as_version=4).cells if cell.cell_type == "code"]
    found = outputs_of([cell.source for cell in cells])
    assert [printed(each) for each in found] == [printed(cell.outputs) for cell in cells]
    assert all(map(printed, found))
    assert list(tmp_path.iterdir()) == []
