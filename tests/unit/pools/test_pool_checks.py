"""The settings of a pool are checked before anything is started or written."""

import pytest

import dorylus
from dorylus.config import recut
from dorylus.errors import ConfigError


@pytest.fixture
def graph():
    return dorylus.communities(200, num_classes=2, num_features=4, seed=0)


@pytest.fixture(autouse=True)
def no_aws(monkeypatch, tmp_path):
    """A user without any AWS configuration."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"pool": "http"}, "give function_url"),
        ({"pool": "http", "function_url": "localhost:9000"}, "function_url|http://"),
        ({"pool": "lambda"}, "region"),
        ({"functions": 4}, "name the pool"),
        ({"function_url": "http://127.0.0.1:1"}, "name the pool"),
    ],
    ids=str,
)
def test_a_pool_that_cannot_be_made_is_refused_before_anything_is_written(graph, tmp_path, settings, why):
    with pytest.raises(ConfigError, match=why):
        dorylus.train(graph, dorylus.gcn(), run_dir=tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_a_run_that_goes_on_without_functions_needs_none_of_their_settings():
    written = {"pool": "http", "function_url": "http://127.0.0.1:1", "functions": 3}
    assert recut(written, {"pool": "threads"}).functions is None
