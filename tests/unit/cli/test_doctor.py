import re
import signal
import subprocess
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from dorylus.cli import doctor
from dorylus.cli.doctor import SAFER, Check, report, try_bf16


def test_a_fit_machine_ends_with_exit_code_0(capsys):
    assert report([lambda: Check("python", "ok", "3.11")]) == 0
    out = capsys.readouterr().out
    assert out.splitlines() == ["ok    python     3.11", "fit to train"]


def test_a_warning_names_the_cure_and_is_no_failure(capsys):
    assert report([lambda: Check("memory", "warn", "1 MiB", "buy some")]) == 0
    assert "warn  memory     1 MiB – buy some" in capsys.readouterr().out


def test_one_failure_is_exit_code_1(capsys):
    assert report([lambda: Check("a", "ok", ""), lambda: Check("kernels", "fail", "gone", "reinstall")]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 failed"


def test_a_check_that_breaks_off_is_a_failure_of_its_own(capsys):
    def check_moon():
        raise RuntimeError("[no] moon")

    assert report([check_moon]) == 1
    assert "fail  moon       RuntimeError: [no] moon" in capsys.readouterr().out


@pytest.mark.parametrize("check", [doctor.check_python, doctor.check_cores, doctor.check_native, doctor.check_optional])
def test_the_machine_of_the_tests_passes(check):
    assert check().status in ("ok", "warn")


def test_little_memory_is_a_warning():
    meminfo = "MemTotal:       1000000 kB\nMemAvailable:     2048 kB\nHugePages_Total:       0\n"
    found = doctor.check_memory(meminfo)
    assert (found.status, found.found) == ("warn", "976.6 MiB, 2.0 MiB available")
    assert doctor.check_memory(meminfo.replace("2048", "2048000")).status == "ok"


def test_kernels_agree_with_their_definition_here():
    assert doctor.check_agreement().status == "ok"


@pytest.mark.parametrize("wrong", [1.0, np.nan])
def test_kernels_with_other_results_fail(wrong):
    from dorylus.backends import reference

    def wrong_spmm(indptr, indices, x, out, begin, end, **options):
        reference.spmm(indptr, indices, x, out, begin, end, **options)
        out[3, 18] += wrong

    native = SimpleNamespace(spmm=wrong_spmm, dropout=reference.dropout, attention=reference.attention)
    found = doctor.check_agreement(native)
    assert found.status == "fail"
    assert "build the package again" in found.cure


def test_kernels_without_vector_instructions_are_a_warning(monkeypatch):
    monkeypatch.setattr("dorylus.backends.native.isa", lambda: "baseline")
    assert doctor.check_native().status == "warn"


SIGILL = -signal.SIGILL


@pytest.mark.parametrize(
    ("plain", "safer", "outcome"),
    [
        (0, None, ("ok", "works")),
        (SIGILL, 0, ("warn", "dies of SIGILL, works with ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16")),
        (SIGILL, SIGILL, ("warn", "dies of SIGILL")),
        (3, 3, ("warn", "gives a wrong product")),
        (1, 1, ("warn", "fails with exit code 1")),
        (None, None, ("warn", "does not end within 120 s")),
    ],
)
def test_bf16_is_tried_as_it_is_and_then_without_the_newest_instructions(plain, safer, outcome):
    assert try_bf16(lambda extra: safer if extra == SAFER else plain) == outcome


def test_bf16_that_kills_is_a_warning_with_the_cure():
    found = doctor.check_bf16(lambda extra: 0 if extra else SIGILL)
    assert found.status == "warn"
    assert "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 before torch is loaded" in found.cure


def test_the_probe_runs_in_a_child_that_may_die_or_hang(monkeypatch):
    monkeypatch.setattr(doctor, "PROGRAM", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert doctor.run_child({}) == SIGILL
    monkeypatch.setattr(doctor, "PROGRAM", "import os; raise SystemExit(os.environ['ONEDNN_MAX_CPU_ISA'] != 'x')")
    assert doctor.run_child({"ONEDNN_MAX_CPU_ISA": "x"}) == 0

    def hang(*_, timeout, **__):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(subprocess, "run", hang)
    assert doctor.run_child({}) is None


def test_the_command_ends_with_the_reports_exit_code(dorylus_program, monkeypatch):
    monkeypatch.setattr(doctor, "CHECKS", (lambda: Check("kernels", "fail", "gone"),))
    code, out, _ = dorylus_program("doctor")
    assert code == 1
    assert "gone" in out


def test_the_extras_to_add_are_quoted_for_the_shell(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda package: package == "networkx" or None)
    found = doctor.check_optional()
    assert found.found.startswith(
        "networkx; missing: parquet (for Parquet and Arrow files), tables (for the same files), pyg (for "
    )
    assert found.cure == (
        'pip install "dorylus[parquet,tables,pyg,ogb,metis,functions,lambda,local-functions,http,ray,'
        'tensorboard,mlflow,wandb]"'
    )


def test_an_extra_is_there_when_all_of_its_packages_are(monkeypatch):
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda package: package != "boto3" or None)
    found = doctor.check_optional()
    assert found.found.endswith(
        "functions, http, ray, tensorboard, mlflow, wandb; missing: lambda (for pool=lambda), "
        "local-functions (for pool=lambda-local)"
    )
    assert found.cure == 'pip install "dorylus[lambda,local-functions]"'


def test_the_extras_are_those_a_user_can_install():
    extras = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert set(doctor.EXTRAS) == set(doctor.PURPOSES) == set(extras) - {"all", "test", "docs", "dev"}
    (all_of_them,) = extras["all"]
    named = set(all_of_them.removeprefix("dorylus[").removesuffix("]").split(","))
    assert named == set(doctor.EXTRAS) - {"functions"}  # which http and lambda bring
    assert "dorylus[functions]" in extras["http"]


def test_the_packages_that_must_load_are_those_an_install_brings():
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    brought = {re.split(r"[^\w-]", each)[0].replace("-", "_") for each in project["dependencies"]}
    assert set(doctor.CORE) == brought


def test_after_a_package_that_does_not_load_no_check_that_needs_it_is_made(monkeypatch, capsys):
    monkeypatch.setattr(doctor, "broken_package", lambda: ("scipy does not load: ImportError: x", "install it"))
    assert report([doctor.check_python, doctor.check_packages, doctor.check_torch]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:] == ["fail  packages   scipy does not load: ImportError: x – install it", "1 failed"]


def test_every_model_trains_before_a_machine_is_fit():
    assert doctor.check_training in doctor.CHECKS
    found = doctor.check_training()
    assert (found.status, found.found.split(":")[0]) == ("ok", "ingest, gcn, gat, sage, gin, resume and predict")


def test_a_run_that_cannot_begin_is_a_failure(monkeypatch, capsys):
    def train(*_, **__):
        raise ModuleNotFoundError("No module named 'zmq'")

    monkeypatch.setattr("dorylus.training.trainer.train", train)
    assert report([doctor.check_training]) == 1
    assert "fail  training   ModuleNotFoundError: No module named 'zmq'" in capsys.readouterr().out


def test_a_loss_that_is_no_number_is_a_failure(monkeypatch):
    monkeypatch.setattr("dorylus.training.trainer.train", lambda *_, **__: SimpleNamespace(losses=[float("nan")]))
    assert doctor.check_training().found.startswith("not finite after an epoch: gcn (loss nan), gat")
