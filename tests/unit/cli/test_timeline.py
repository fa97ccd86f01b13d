import json
from xml.etree import ElementTree

import pytest

RUN_TOML = "[graph]\n[model]\n[training]\nepochs = 2\n"
SPANS = [["GA", 0, 3, 0, 0.0, 0.25, 0, 1], ["WU", 1, 3, 0, 0.25, 0.5, 0, 1]]


@pytest.fixture
def run_dir(tmp_path):
    """A run folder whose log has one traced epoch."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.toml").write_text(RUN_TOML)
    log = [{"kind": "run", "t": 0.0}, {"kind": "spans", "t": 1.0, "epoch": 1, "spans": SPANS}]
    (folder / "log.jsonl").write_text("".join(json.dumps(record) + "\n" for record in log))
    return folder


def num_boxes(path):
    return len(list(ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}title")))


def test_the_picture_is_written_to_the_run_folder(dorylus_program, run_dir):
    assert dorylus_program("timeline", run_dir) == (0, f"timeline in {run_dir / 'timeline.svg'}\n", "")
    assert num_boxes(run_dir / "timeline.svg") == 2


def test_the_picture_is_written_to_the_given_file(dorylus_program, run_dir, tmp_path):
    code, out, _ = dorylus_program("timeline", "run", "--epoch", 1, "--out", "mine.svg")
    assert (code, out) == (0, "timeline in mine.svg\n")
    assert num_boxes(tmp_path / "mine.svg") == 2
    assert not (run_dir / "timeline.svg").exists()


def test_epochs_trained_again_after_a_resume_are_drawn_once(dorylus_program, run_dir):
    again = [{"kind": "run", "t": 1.0, "resumed_from": 0}, {"kind": "spans", "t": 2.0, "epoch": 1, "spans": SPANS[:1]}]
    with open(run_dir / "log.jsonl", "a") as log:
        log.writelines(json.dumps(record) + "\n" for record in again)
    dorylus_program("timeline", run_dir)
    assert num_boxes(run_dir / "timeline.svg") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing"], "the folder missing does not exist"),
        (["run", "--epoch", "9"], "no tasks of epoch 9"),
        (["run", "--out", "nowhere/t.svg"], "the folder nowhere does not exist"),
        (["run", "--out", "run"], "it is a folder"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(dorylus_program, run_dir, tmp_path, arguments, message):
    before = sorted(tmp_path.rglob("*"))
    code, out, err = dorylus_program("timeline", *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_run_without_traced_tasks_is_refused_in_one_sentence(dorylus_program, run_dir):
    (run_dir / "log.jsonl").write_text('{"kind": "run", "t": 0.0}\n')
    code, _, err = dorylus_program("timeline", run_dir)
    assert code == 2
    assert err.startswith("error: the run log holds no tasks")
    assert len(err.splitlines()) == 1


def test_a_run_without_a_log_is_refused_in_one_sentence(dorylus_program, run_dir):
    (run_dir / "log.jsonl").unlink()
    code, _, err = dorylus_program("timeline", run_dir)
    assert code == 2
    assert "cannot read the run log" in err
