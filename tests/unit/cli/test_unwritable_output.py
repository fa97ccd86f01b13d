import os

from dorylus.cli.interrupt import discard_unwritable_output


def test_output_that_a_closed_pipe_does_not_take_is_discarded_so_that_the_exit_code_stays(monkeypatch):
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stdout", stream)
    stream.write("half a line")
    os.close(reading)
    discard_unwritable_output()
    stream.flush()
    stream.close()


def test_output_that_is_taken_is_written(monkeypatch):
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    monkeypatch.setattr("sys.stdout", stream)
    stream.write("a line")
    discard_unwritable_output()
    stream.close()
    assert os.read(reading, 100) == b"a line"
    os.close(reading)
