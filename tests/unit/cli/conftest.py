import pytest

from dorylus.cli import main


@pytest.fixture
def dorylus_program(capsys, monkeypatch, tmp_path):
    """Runs the program in an empty folder; returns its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return end.value.code, out, err

    return run
