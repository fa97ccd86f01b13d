import sys

import numpy as np
import pytest

from dorylus.errors import ConfigError, DataError
from dorylus.training.prediction_file import check_target, write

LOGITS = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_an_npy_file_holds_the_array(tmp_path):
    write(LOGITS, tmp_path / "x.npy", "logits")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), LOGITS)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("array", [LOGITS, LOGITS.T, LOGITS[:, 0].astype(np.int64)])
def test_a_parquet_file_has_one_row_a_vertex(tmp_path, array):
    parquet = pytest.importorskip("pyarrow.parquet")
    write(array, tmp_path / "x.parquet", "prediction")
    table = parquet.read_table(tmp_path / "x.parquet").to_pydict()
    assert table["vertex"] == list(range(len(array)))
    assert table["prediction"] == array.tolist()


def test_a_file_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"ends in \.npy or \.parquet"):
        check_target(tmp_path / "x.csv")


def test_parquet_without_pyarrow_is_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r'pip install "dorylus\[parquet\]"'):
        check_target(tmp_path / "x.parquet")


def test_a_failed_write_leaves_the_file_there_was(tmp_path, monkeypatch):
    write(LOGITS, tmp_path / "x.npy", "logits")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match=r"No space left.*name another file"):
        write(LOGITS + 1, tmp_path / "x.npy", "logits")
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), LOGITS)
    assert len(list(tmp_path.iterdir())) == 1
