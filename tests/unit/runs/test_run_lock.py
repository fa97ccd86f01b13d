import fcntl
import json
import os
import socket
import subprocess
import sys

import pytest

from dorylus.errors import ConfigError, TrainingError
from dorylus.report.terminal import notice
from dorylus.runs import read_log, run_lock
from dorylus.runs.run_folder import RunFolder
from dorylus.runs.run_lock import RunLock, is_locked

OWNER = f"process {os.getpid()} on {socket.gethostname()}"
HOLD = "import os,sys,time; from pathlib import Path; from dorylus.runs.run_lock import RunLock; "


def in_child(code, *arguments):
    """The output of a process that runs a line of Python with arguments."""
    done = subprocess.run([sys.executable, "-c", HOLD + code, *map(str, arguments)], capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


@pytest.fixture
def held(tmp_path):
    lock = RunLock(tmp_path)
    yield lock
    lock.release()


def test_another_process_is_refused_with_the_owners_host_and_number_and_time(held, tmp_path):
    output = in_child("RunLock(Path(sys.argv[1]))", tmp_path)
    assert output.startswith("dorylus.errors.ConfigError: the run folder")
    assert f"is in use: {OWNER} has held it since 2" in output


def test_the_same_process_is_refused_with_the_cure_to_close_the_first(held, tmp_path):
    with pytest.raises(ConfigError, match="is open in this process already: close the Trainer"):
        RunLock(tmp_path)


def test_a_folder_that_was_released_is_free_and_has_nothing_in_it(tmp_path):
    RunLock(tmp_path).release()
    assert not list(tmp_path.iterdir())
    RunLock(tmp_path).release()


def test_a_killed_process_releases_its_folder(tmp_path):
    code = "lock = RunLock(Path(sys.argv[1])); print('held', flush=True); os.kill(os.getpid(), 9)"
    assert in_child(code, tmp_path) == "held"
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
    RunLock(tmp_path).release()
    assert not list(tmp_path.iterdir())


def test_neither_a_child_that_is_started_nor_one_that_is_forked_keeps_the_lock_of_a_parent_that_died(tmp_path):
    code = """
import subprocess
lock = RunLock(Path(sys.argv[1]))
none = subprocess.DEVNULL
subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], stdout=none, stderr=none)
forked = os.fork()
if forked == 0:
    os.close(1), os.close(2), time.sleep(60), os._exit(0)
print('held', flush=True)
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD + code, tmp_path], stdout=subprocess.PIPE, process_group=0
    ) as owner:
        assert owner.stdout.read() == b"held\n"
    try:
        RunLock(tmp_path).release()
    finally:
        os.killpg(owner.pid, 9)


def test_a_forked_child_that_closes_its_copy_does_not_release_the_lock_of_its_parent(held, tmp_path):
    child = os.fork()
    if child == 0:
        held.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "lock").exists()
    assert "is in use" in in_child("RunLock(Path(sys.argv[1]))", tmp_path)


def test_a_lock_file_that_its_holder_removes_meanwhile_is_opened_again(tmp_path, monkeypatch):
    """Two processes that open the file before and after it is removed must not both hold one."""
    first, taken = RunLock(tmp_path), []
    flock = fcntl.flock

    def between(descriptor, how):
        if not taken:
            taken.append(descriptor)
            first.release()  # after the second has opened the file, before it locks it
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", between)
    second = RunLock(tmp_path)
    with pytest.raises(ConfigError, match="in this process"):
        RunLock(tmp_path)
    second.release()


@pytest.fixture
def without_locks(monkeypatch):
    """A file system that has no locks, as a Lustre that is mounted without."""

    def refused(descriptor, how):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refused)


def test_without_locks_a_process_of_this_machine_that_is_alive_is_refused(tmp_path, without_locks):
    (tmp_path / "lock").write_text(json.dumps({**run_lock._this_process(), "pid": 1, "ticks": run_lock._ticks(1)}))
    with pytest.raises(ConfigError, match=r"is in use: process 1 on "):
        RunLock(tmp_path)


@pytest.mark.parametrize("other", [{"ticks": -1}, {"host": "another"}, {"pid": 2**22 + 1}], ids=str)
def test_without_locks_a_dead_or_remote_process_does_not_block_the_folder(tmp_path, without_locks, other):
    (tmp_path / "lock").write_text(json.dumps({**run_lock._this_process(), "pid": 1, **other}))
    lock = RunLock(tmp_path)
    assert not lock.by_kernel
    lock.release()
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot be locked: No such file.*Choose a run_dir"):
        RunLock(tmp_path / "nowhere")


@pytest.mark.parametrize("text", ["", "{", "[1]", "\0\0"])
def test_an_empty_lock_file_names_no_owner(held, tmp_path, text):
    (tmp_path / "lock").write_text(text)
    assert "is in use: another process holds it" in in_child("RunLock(Path(sys.argv[1]))", tmp_path)


def test_a_run_on_a_file_system_without_locks_reports_it(trainer, tmp_path, without_locks):
    run = trainer(run_dir=tmp_path / "run")
    run.close()
    (record,) = [each for each in read_log(tmp_path / "run" / "log.jsonl") if each["kind"] == "unlocked"]
    assert notice(record).startswith(f"the file system of {tmp_path / 'run'} has no locks")


def test_a_trainer_that_cannot_be_created_releases_the_folder(trainer, resumed, graph, tmp_path):
    trainer(run_dir=tmp_path / "run").run(1).close()
    before = RunFolder.open(tmp_path / "run").read_used()
    with pytest.raises(ConfigError, match="spent"):
        resumed(tmp_path / "run", budget_usd=1e-9)
    assert not (tmp_path / "run" / "lock").exists()
    assert RunFolder.open(tmp_path / "run").read_used() == before  # what is refused costs nothing
    assert resumed(tmp_path / "run", budget_usd=10.0).run(1).epoch == 1


def test_a_run_that_could_not_begin_leaves_neither_folder_nor_lock(trainer, tmp_path):
    with pytest.raises(ConfigError, match="spent"):
        trainer(run_dir=tmp_path / "run", budget_usd=1e-12).run()
    assert not list(tmp_path.iterdir())


def test_a_lock_whose_file_was_removed_is_taken_again_with_the_next_epoch(trainer, tmp_path):
    run = trainer(run_dir=tmp_path / "run").run(1)
    (tmp_path / "run" / "lock").unlink()
    run.run(1)
    assert "is in use" in in_child("RunLock(Path(sys.argv[1]))", tmp_path / "run")


def test_a_run_ends_where_its_lock_was_removed_and_another_has_taken_it(trainer, tmp_path):
    run = trainer(run_dir=tmp_path / "run").run(1)
    (tmp_path / "run" / "lock").unlink()
    other = RunLock(tmp_path / "run")
    with pytest.raises(TrainingError, match=r"lock was removed under this run, and the run folder .* is "):
        run.run(1)
    other.release()
    assert run.epoch == 1
    assert (tmp_path / "run" / "run.toml").exists()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_does_not_train_the_run_of_its_parent_nor_add_to_its_bill(trainer, tmp_path):
    run = trainer(run_dir=tmp_path / "run", servers=1, threads=1).run(1)
    log, ledger = (tmp_path / "run" / name for name in ("log.jsonl", "used.ledger"))
    before = log.read_bytes()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run.run(1)
        except TrainingError as error:
            code = 0 if "a parent that was forked" in str(error) else 2
            run._ledger.write()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert log.read_bytes() == before
    run.close()
    assert ledger.exists()


def test_a_reader_sees_whether_a_run_is_written_and_changes_nothing(tmp_path):
    assert not is_locked(tmp_path)
    lock = RunLock(tmp_path)
    assert is_locked(tmp_path)
    assert in_child("from dorylus.runs import is_locked; print(is_locked(Path(sys.argv[1])))", tmp_path) == "True"
    lock.keep()
    lock.release()
    assert not is_locked(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_lock_file_that_a_killed_process_left_is_not_held(tmp_path):
    in_child("lock = RunLock(Path(sys.argv[1])); print('held', flush=True); os.kill(os.getpid(), 9)", tmp_path)
    assert (tmp_path / "lock").exists()
    assert not is_locked(tmp_path)


def test_a_lock_of_another_machine_is_known_by_the_lock_itself(held, tmp_path):
    owner = json.loads((tmp_path / "lock").read_text())
    (tmp_path / "lock").write_text(json.dumps(owner | {"host": "elsewhere"}))
    assert is_locked(tmp_path)
    held.release()
    (tmp_path / "lock").write_text(json.dumps(owner | {"host": "elsewhere"}))
    assert not is_locked(tmp_path)


def test_a_killed_process_whose_parent_has_not_noticed_holds_nothing(tmp_path):
    code = HOLD + "lock = RunLock(Path(sys.argv[1])); print('held', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        assert is_locked(tmp_path)
        holder.kill()
        assert holder.stdout.read() == ""  # it has ended, and is a zombie
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
        assert not is_locked(tmp_path)
