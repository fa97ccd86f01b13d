import subprocess
import sys
import warnings

import pytest

from dorylus.cli import main
from dorylus.errors import ConfigError, TrainingError
from dorylus.runs import LoggerWarning


def test_help_lists_every_command(dorylus_program):
    code, out, _ = dorylus_program("--help")
    assert code == 0
    assert all(name in out for name in ("train", "resume", "predict", "info", "convert", "doctor"))


def test_no_arguments_print_the_help(dorylus_program):
    code, out, err = dorylus_program()
    assert code == 2
    assert "Usage: dorylus [OPTIONS] COMMAND" in out + err
    assert "doctor" in out + err


def test_the_version_is_printed(dorylus_program):
    code, out, _ = dorylus_program("--version")
    assert code == 0
    assert out.strip()[0].isdigit()


def test_an_unknown_command_is_a_usage_error(dorylus_program):
    code, _, err = dorylus_program("trian")
    assert code == 2
    assert "trian" in err


@pytest.mark.parametrize(("error", "code"), [(ConfigError, 2), (TrainingError, 1)])
def test_an_error_is_one_paragraph_on_stderr_with_its_exit_code(dorylus_program, monkeypatch, error, code):
    def fail(**_):
        raise error("epochs=0: use 1 or more.")

    monkeypatch.setattr("dorylus.cli.app.app", fail)
    assert dorylus_program("train") == (code, "", "error: epochs=0: use 1 or more.\n")


def test_ctrl_c_ends_without_a_traceback(dorylus_program, monkeypatch):
    def interrupted(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr("dorylus.cli.app.app", interrupted)
    assert dorylus_program("train") == (130, "", "interrupted\n")


def test_help_needs_no_torch():
    program = "import sys, dorylus.cli.app; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.filterwarnings("default")
def test_a_warning_of_ours_is_a_line_and_others_name_their_place(monkeypatch, capsys):
    def warn(**_):
        warnings.warn("the logger wandb has failed.", LoggerWarning, stacklevel=1)
        warnings.warn("an array is read-only.", stacklevel=1)

    monkeypatch.setattr("dorylus.cli.app.app", warn)
    seen = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *_, **__: seen.append(str(message)))
    main(["train"])
    assert capsys.readouterr().err == "warning: the logger wandb has failed.\n"
    assert seen == ["an array is read-only."]
