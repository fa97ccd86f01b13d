import os

from dorylus.cli.console import discard_unwritable_output


def test_output_into_a_closed_pipe_is_discarded_and_the_exit_code_stays(monkeypatch):
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stdout", stream)
    stream.write("half a line")
    os.close(reading)
    discard_unwritable_output()
    stream.flush()
    stream.close()


def test_output_into_an_open_pipe_is_written(monkeypatch):
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stdout", stream)
    stream.write("a line")
    discard_unwritable_output()
    stream.close()
    assert os.read(reading, 100) == b"a line"
    os.close(reading)
