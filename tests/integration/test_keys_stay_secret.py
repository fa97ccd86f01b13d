"""No key or credential reaches a log, a run folder or the terminal, whether all goes well or not."""

import logging
import socket

import pytest
from function_runs import graph, model

import dorylus
from dorylus.errors import TrainingError
from dorylus.functions.invocation import TOKEN_VARIABLE
from dorylus.wire import sockets

TOKEN = "token-9f8e7d6c5b4a"
AWS = {"AWS_ACCESS_KEY_ID": "AKIANOTAREALKEY00000", "AWS_SECRET_ACCESS_KEY": "not+a/real+secret+0123456789"}
SETTINGS = {"epochs": 3, "servers": 2, "intervals": 2, "eval_every": 1, "checkpoint_every": 1, "deadline_s": 60}
SETTINGS["rematerialize"] = True  # as other tests do, which have exported the same programs


@pytest.fixture
def secrets(monkeypatch):
    """Every key that is made during the test, and the credentials of the environment."""
    made = [TOKEN, *AWS.values()]
    new = sockets.new_key_pair

    def noted():
        pair = new()
        made.extend(pair)
        return pair

    monkeypatch.setattr(sockets, "new_key_pair", noted)
    for name, value in {TOKEN_VARIABLE: TOKEN, **AWS}.items():
        monkeypatch.setenv(name, value)
    return made


def found_in(texts, secrets):
    """The secrets that a text contains, as they are or as bytes are printed."""
    return [secret for secret in secrets for text in texts if secret in text or secret.encode().hex() in text]


def everything_written(folder, capfd, caplog, error=""):
    out, err = capfd.readouterr()
    files = [path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 3  # settings, log, checkpoints: else the search proves nothing
    return [out, err, caplog.text, error, *files]


@pytest.mark.parametrize("path", ["direct", pytest.param("inline", marks=pytest.mark.soak)])
def test_a_run_on_functions_writes_no_key_anywhere(secrets, tmp_path, capfd, caplog, path):
    caplog.set_level(logging.DEBUG)
    from dorylus.report.terminal import TerminalProgress

    result = dorylus.train(
        graph(), model("gcn"), pool="lambda-local", data_path=path, run_dir=tmp_path / "run",
        sinks=[TerminalProgress()], **SETTINGS,
    )  # fmt: skip
    made = len(secrets) - 3
    assert made >= 4 if path == "direct" else made == 0  # the ports' pair and a client's
    written = [*everything_written(tmp_path, capfd, caplog), repr(result), str(result.summary())]
    assert found_in(written, secrets) == []


def test_a_run_that_fails_prints_no_credential(secrets, tmp_path, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"http://127.0.0.1:{port}/"  # where no server listens any more
    with pytest.raises(TrainingError) as failed:
        dorylus.train(
            graph(),
            model("gcn"),
            pool="http",
            function_url=url,
            data_path="direct",
            run_dir=tmp_path / "run",
            **SETTINGS,
        )
    chain, error = [], failed.value
    while error is not None:
        chain.append(f"{error!r} {error}")
        error = error.__cause__ or error.__context__
    assert found_in(everything_written(tmp_path, capfd, caplog, "\n".join(chain)), secrets) == []


def test_the_search_would_find_a_key_that_is_there(secrets, tmp_path):
    assert found_in([f"so {TOKEN} slipped out"], secrets) == [TOKEN]
