import pytest

import dorylus
from dorylus.cli.flags import dashed
from dorylus.config import RECUT, RunConfig
from dorylus.runs.run_folder import RunFolder


def test_a_run_is_resumed_from_its_folder(dorylus_program, monkeypatch, tmp_path):
    resumed = []
    monkeypatch.setattr(
        dorylus, "resume", lambda run_dir, sinks, progress: resumed.append((run_dir, len(sinks))), raising=False
    )
    RunFolder.create(tmp_path / "run", None, RunConfig())
    assert dorylus_program("resume", tmp_path / "run")[0] == 0
    assert resumed == [(tmp_path / "run", 1)]


@pytest.fixture
def resumed(monkeypatch, tmp_path):
    """A run to resume, and the settings with which it was resumed."""
    given = []
    monkeypatch.setattr(
        dorylus, "resume", lambda run_dir, sinks, progress, **settings: given.append(settings), raising=False
    )
    RunFolder.create(tmp_path / "run", None, RunConfig(servers=2))
    return given


@pytest.mark.parametrize("name", RECUT)
def test_every_setting_that_may_change_is_a_flag(dorylus_program, name):
    assert f"--{dashed(name)} " in dorylus_program("resume", "--help")[1]


@pytest.mark.parametrize("name", sorted(set(RunConfig.names()) - set(RECUT)))
def test_no_other_setting_is_a_flag(dorylus_program, name):
    assert f"--{dashed(name)} " not in dorylus_program("resume", "--help")[1]


def test_the_number_of_intervals_and_servers_may_change(dorylus_program, resumed):
    assert dorylus_program("resume", "run", "--servers", 3, "--partition", "hash", "--intervals", 4)[0] == 0
    assert resumed == [{"servers": 3, "partition": "hash", "intervals": 4}]


def test_a_bad_number_of_intervals_is_refused_before_anything_is_loaded(dorylus_program, resumed):
    code, _, err = dorylus_program("resume", "run", "--servers", 0)
    assert (code, resumed) == (2, [])
    assert "use --servers 1 or more" in err


def test_a_folder_without_a_run_is_refused(dorylus_program, tmp_path):
    code, _, err = dorylus_program("resume", tmp_path)
    assert code == 2
    assert "holds no run" in err


def test_ctrl_c_prints_how_to_resume_again(dorylus_program, monkeypatch, tmp_path):
    def interrupted(run_dir, sinks, progress):
        raise KeyboardInterrupt

    monkeypatch.setattr(dorylus, "resume", interrupted, raising=False)
    RunFolder.create(tmp_path / "run", None, RunConfig())
    code, _, err = dorylus_program("resume", "run")
    assert (code, err) == (130, "interrupted; continue with: dorylus resume run\n")


def test_the_error_for_a_run_of_python_objects_explains_how_to_resume_in_python(dorylus_program, tmp_path):
    RunFolder.create(tmp_path / "run", None, RunConfig())
    code, _, err = dorylus_program("resume", "run")
    assert code == 2
    assert "dorylus.resume(run_dir, graph, model)" in err
