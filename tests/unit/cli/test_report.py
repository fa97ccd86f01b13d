import dataclasses
import json

import dorylus


def trained(name, **settings):
    graph = dorylus.ring(num_vertices=12, num_classes=3, num_features=4)
    return dorylus.train(graph, dorylus.gcn(), epochs=2, threads=1, run_dir=f"runs/{name}", **settings)


def test_runs_are_listed_and_compared(dorylus_program):
    first, second = trained("a"), trained("b", lr=0.5)
    code, out, _ = dorylus_program("runs")
    assert code == 0
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert all("finished" in rows[name] and "ring" in rows[name] for name in ("a", "b"))
    listed = {each["name"]: each for each in json.loads(dorylus_program("runs", "--json")[1])}
    assert listed["a"]["scores"] == {name: round(score, 6) for name, score in first.metrics.items()}
    assert listed["b"]["usd"] == second.bill.total_usd
    code, out, _ = dorylus_program("compare", "runs/a", "runs/b")
    assert code == 0
    assert [line.split() for line in out.splitlines() if line.startswith(" lr")] == [["lr", "0.01", "0.5"]]
    assert "per epoch" in out
    compared = json.loads(dorylus_program("compare", "runs/a", "runs/b", "--json")[1])
    assert compared["settings"]["lr"] == [0.01, 0.5]
    assert [each["name"] for each in compared["runs"]] == ["a", "b"]


def test_a_folder_without_runs_says_so(dorylus_program, tmp_path):
    code, out, _ = dorylus_program("runs", tmp_path)
    assert (code, out) == (0, f"there are no runs in {tmp_path}: dorylus train writes one for each run.\n")


def test_what_a_graph_is_called_does_not_control_the_terminal(dorylus_program, tmp_path):
    ring = dorylus.ring(num_vertices=12, num_classes=3, num_features=4)
    graph = dataclasses.replace(ring, name="\x1b[31m[bold]red\n")
    dorylus.train(graph, dorylus.gcn(), epochs=1, threads=1, run_dir="runs/a")
    _, out, _ = dorylus_program("runs")
    assert "\x1b" not in out
    assert "[bold]red" in out


def test_one_run_alone_is_not_compared(dorylus_program):
    trained("a")
    code, _, err = dorylus_program("compare", "runs/a")
    assert code == 2
    assert "name two or more run folders" in err
