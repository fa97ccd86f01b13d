import dorylus
from dorylus.training.config import RunConfig
from dorylus.training.run_folder import RunFolder


def test_a_run_is_resumed_from_its_folder(dorylus_program, monkeypatch, tmp_path):
    resumed = []
    monkeypatch.setattr(dorylus, "resume", lambda run_dir, sinks: resumed.append((run_dir, len(sinks))), raising=False)
    RunFolder.create(tmp_path / "run", None, RunConfig())
    assert dorylus_program("resume", tmp_path / "run")[0] == 0
    assert resumed == [(tmp_path / "run", 1)]


def test_a_folder_without_a_run_is_refused(dorylus_program, tmp_path):
    code, _, err = dorylus_program("resume", tmp_path)
    assert code == 2
    assert "holds no run" in err


def test_ctrl_c_says_how_to_go_on_again(dorylus_program, monkeypatch, tmp_path):
    def interrupted(run_dir, sinks):
        raise KeyboardInterrupt

    monkeypatch.setattr(dorylus, "resume", interrupted, raising=False)
    RunFolder.create(tmp_path / "run", None, RunConfig())
    code, _, err = dorylus_program("resume", "run")
    assert (code, err) == (130, "interrupted; go on with: dorylus resume run\n")


def test_a_run_of_python_objects_says_how_to_go_on_in_python(dorylus_program, tmp_path):
    RunFolder.create(tmp_path / "run", None, RunConfig())
    code, _, err = dorylus_program("resume", "run")
    assert code == 2
    assert "dorylus.resume(run_dir, graph, model)" in err
