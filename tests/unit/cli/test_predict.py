import numpy as np
import pytest

import dorylus.inference
from dorylus.config import RunConfig
from dorylus.inference.prediction_file import PredictionFile, PredictionForm
from dorylus.runs.run_folder import RunFolder

LOGITS = np.arange(6, dtype=np.float32).reshape(3, 2)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A run with known predictions; returns the recorded calls."""
    calls = []

    def predict_from(run_dir, what, layer=-1, *, out, tell, **settings):
        calls.append((run_dir.name, what, layer, settings))
        array = LOGITS.argmax(1) if what == "classes" else LOGITS
        file = PredictionFile(out, PredictionForm(3, None if array.ndim == 1 else 2, array.dtype), what)
        written = file.write([array], tell)
        file.close()
        return written

    monkeypatch.setattr(dorylus.inference, "predict_from", predict_from, raising=False)
    RunFolder.create(tmp_path / "run", None, RunConfig())
    return calls


def test_classes_are_written_into_the_run_folder_by_default(dorylus_program, run, tmp_path):
    code, out, _ = dorylus_program("predict", "run")
    assert (code, out) == (0, "classes of 3 vertices in run/classes.npy\n")
    assert np.load(tmp_path / "run" / "classes.npy").tolist() == [1, 1, 1]


@pytest.mark.parametrize("flag", ["--output", "--out"])
def test_embeddings_of_a_layer_are_written_to_the_given_file(dorylus_program, run, tmp_path, flag):
    dorylus_program("predict", "run", "--what", "embeddings", "--layer", "0", flag, "e.npy")
    assert run == [("run", "embeddings", 0, {})]
    np.testing.assert_array_equal(np.load(tmp_path / "e.npy"), LOGITS)


def test_another_limit_may_be_given(dorylus_program, run):
    dorylus_program("predict", "run", "--memory", "8GiB", "--scratch-dir", "big")
    assert run == [("run", "classes", -1, {"memory": "8GiB", "scratch_dir": "big"})]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--what", "logit"], "Did you mean 'logits'"),
        (["run", "--output", "x.txt"], "ends in .npy or .parquet"),
        (["run", "--output", "x.npy", "--what", "table"], "ends in .parquet or .csv"),
        (["run", "--output", "no/x.npy"], "the folder no does not exist"),
        (["nowhere"], "the folder nowhere does not exist: give the folder"),
        (["nowhere", "--output", "no/x.npy"], "the folder nowhere does not exist: give the folder"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_computed(dorylus_program, run, arguments, message):
    code, _, err = dorylus_program("predict", *arguments)
    assert code == 2
    assert message in err
    assert run == []


def test_the_error_for_a_run_of_python_objects_explains_how_to_predict_from_python(dorylus_program, tmp_path):
    RunFolder.create(tmp_path / "run", None, RunConfig())
    code, _, err = dorylus_program("predict", "run")
    assert code == 2
    assert "dorylus.predict_from(run_dir, graph=..., model=...)" in err
