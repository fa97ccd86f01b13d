"""The set-up is on the bill: loading the graph too, and also that of processes that were killed during it."""

import os

import pytest

import dorylus
from dorylus.errors import ConfigError, Terminated
from dorylus.runs import ledger as ledgers
from dorylus.runs.ledger import UsageLedger, read_ledger
from dorylus.runs.run_folder import RunFolder, RunSpec
from dorylus.training import accounts as accounts_module
from dorylus.training import run_records
from dorylus.training import trainer as trainers
from dorylus.training.accounts import Accounts

HOUR_NS = 3600 * 10**9
SPEC = (
    {"source": "communities:num_vertices=60,num_classes=3,num_features=4,average_degree=4"},
    {"name": "gcn", "hidden": 4},
)


class Killed(BaseException):
    """Stands for SIGKILL: only the last state of the ledger is left."""


class Machine:
    """A clock that the test moves, and a ledger that is written only on request, and not by a kill."""

    def __init__(self, monkeypatch):
        self.now_s, self.ledgers = 0.0, []
        machine = self

        class Kept(UsageLedger):
            def __init__(self, *arguments):
                super().__init__(*arguments)
                machine.ledgers.append(self)
                self.killed = False

            def close(self):
                if not self.killed:
                    super().close()
                else:
                    self._stopped.set()
                    self._thread.join()
                    os.close(self._file)

        def accounts(config, since_s=None):
            return Accounts(config, lambda: self.now_s, None if since_s is None else self.now_s)

        monkeypatch.setattr(ledgers, "EVERY_S", 3600.0)  # it adds half of it in advance: that is the resolution here
        monkeypatch.setattr(accounts_module, "UsageLedger", Kept)
        monkeypatch.setattr(run_records, "Accounts", accounts)

    def hours_pass(self, hours):
        self.now_s += 3600.0 * hours

    def kill(self):
        """Leaves the last entry of the ledger's thread, without the part that it adds in advance."""
        kept = self.ledgers[-1]
        for _ in range(2):
            kept._write(0.0)
        kept.killed = True
        raise Killed


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch)


@pytest.fixture
def begun(tmp_path, machine):
    """A run that was started from a description of its graph, and has trained no epoch."""
    spec = RunSpec(*SPEC)
    settings = {"run_dir": tmp_path / "run", "spec": spec, "instance": "c5.large", "threads": 1, "epochs": 2}
    with dorylus.Trainer(spec.load_graph(), spec.build_model(), **settings, budget_usd=1.0):
        pass
    return tmp_path / "run"


def hours_of_set_up(run_dir):
    return RunFolder.open(run_dir).read_used()["server_ns"]["graph"]["setup"] / HOUR_NS


def loading(monkeypatch, work):
    """Calls a function when a resumed run loads its graph, before the graph is loaded."""
    load = RunFolder.load_graph

    def slowly(folder):
        work()
        return load(folder)

    monkeypatch.setattr(RunFolder, "load_graph", slowly)


def test_loading_the_graph_of_a_resumed_run_is_set_up(begun, machine, monkeypatch):
    loading(monkeypatch, lambda: machine.hours_pass(3))
    with dorylus.Trainer.resume(begun):
        pass
    assert hours_of_set_up(begun) == pytest.approx(3)


def test_the_ledger_begins_before_the_graph_is_loaded(begun, machine, monkeypatch):
    before, seen = RunFolder.open(begun).read_used(), []
    loading(monkeypatch, lambda: seen.append((RunFolder.open(begun).read_used(), (begun / "lock").exists())))
    with dorylus.Trainer.resume(begun):
        pass
    ((used, is_locked),) = seen
    assert is_locked
    assert used != before


def test_a_budget_is_not_passed_by_processes_that_are_killed_again_and_again_while_the_graph_loads(
    begun, machine, monkeypatch
):
    def killed_after_three_hours():
        machine.hours_pass(3)
        machine.kill()

    with monkeypatch.context() as patch:
        loading(patch, killed_after_three_hours)
        for times in range(1, 6):
            with pytest.raises(Killed):
                dorylus.Trainer.resume(begun)
            assert hours_of_set_up(begun) == pytest.approx(3 * times)
    with pytest.raises(ConfigError, match=r"budget_usd = 1.0: \$1\.2\d* of \$\S+ spent"):
        dorylus.Trainer.resume(begun)
    assert hours_of_set_up(begun) == pytest.approx(15)


def test_a_run_refused_for_its_budget_is_not_charged_for_loading_the_graph(begun, machine, monkeypatch):
    machine.hours_pass(1)
    loading(monkeypatch, lambda: machine.hours_pass(20))
    before = RunFolder.open(begun).read_used()
    for _ in range(2):
        with pytest.raises(ConfigError, match="larger budget_usd"):
            dorylus.Trainer.resume(begun)
    assert RunFolder.open(begun).read_used() == before


def test_a_run_refused_for_its_budget_leaves_no_new_ledger(begun, machine, monkeypatch):
    loading(monkeypatch, lambda: machine.hours_pass(20))
    (begun / "used.ledger").unlink()
    with pytest.raises(ConfigError, match="larger budget_usd"):
        dorylus.Trainer.resume(begun)
    assert not (begun / "used.ledger").exists()


def test_a_run_that_the_command_line_starts_pays_for_loading_its_graph_once(tmp_path):
    spec = RunSpec(*SPEC)
    graph = spec.load_graph()
    spec._loading_since_s[0] -= 3600.0  # as if it had taken an hour
    for name, hours in (("first", 1), ("second", 0)):
        with dorylus.Trainer(graph, spec.build_model(), run_dir=tmp_path / name, spec=spec, threads=1):
            pass
        assert hours <= hours_of_set_up(tmp_path / name) < hours + 1


@pytest.fixture
def cutting(monkeypatch):
    """Calls a function when a graph is partitioned, which is most of the set-up of a new run."""

    whole = trainers.assemble

    def have(work):
        def assemble(*arguments):
            work()
            return whole(*arguments)

        monkeypatch.setattr(trainers, "assemble", assemble)

    return have


def begin(graph, run_dir, **settings):
    settings = {"instance": "c5.large", "threads": 1, "epochs": 1} | settings
    return dorylus.Trainer(graph, dorylus.gcn(hidden=4), run_dir=run_dir, **settings)


def test_a_new_run_is_billed_for_a_killed_set_up_in_the_same_folder(graph, tmp_path, machine, cutting):
    def killed_after_two_hours():
        machine.hours_pass(2)
        machine.kill()

    cutting(killed_after_two_hours)
    for _ in range(2):
        with pytest.raises(Killed):
            begin(graph, tmp_path / "run")
    cutting(lambda: machine.hours_pass(1))
    with begin(graph, tmp_path / "run"):
        pass
    assert hours_of_set_up(tmp_path / "run") == pytest.approx(5)


def test_a_budget_that_was_spent_in_set_ups_that_were_killed_stays_spent(graph, tmp_path, machine, cutting):
    def killed_after_a_day():
        machine.hours_pass(24)
        machine.kill()

    cutting(killed_after_a_day)
    with pytest.raises(Killed):
        begin(graph, tmp_path / "run", budget_usd=1.0)
    cutting(lambda: machine.hours_pass(1))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"\$2\.1\d* of \$\S+ spent"):
            begin(graph, tmp_path / "run", budget_usd=1.0).run()
        assert [each.name for each in (tmp_path / "run").iterdir()] == ["used.ledger"]
        assert read_ledger(tmp_path / "run" / "used.ledger")["server_ns"]["graph"]["setup"] == 24 * HOUR_NS


def test_a_new_run_that_is_terminated_in_its_set_up_leaves_its_usage_and_no_lock(graph, tmp_path, machine, cutting):
    def stopped():
        machine.hours_pass(2)
        raise Terminated(15)

    cutting(stopped)
    with pytest.raises(Terminated):
        begin(graph, tmp_path / "run")
    assert [each.name for each in (tmp_path / "run").iterdir()] == ["used.ledger"]
    assert read_ledger(tmp_path / "run" / "used.ledger")["server_ns"]["graph"]["setup"] == 2 * HOUR_NS


@pytest.mark.parametrize("error", [ConfigError("no"), KeyboardInterrupt(), ZeroDivisionError()], ids=repr)
def test_a_new_run_that_is_refused_leaves_nothing_not_even_parent_folders(graph, tmp_path, machine, cutting, error):
    def refuse():
        raise error

    cutting(refuse)
    with pytest.raises(type(error)):
        begin(graph, tmp_path / "runs" / "of today" / "run")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_before_a_run_was_refused_is_there_afterwards(graph, tmp_path, machine, cutting):
    def refuse():
        raise ConfigError("no")

    (tmp_path / "run").mkdir()
    cutting(refuse)
    with pytest.raises(ConfigError):
        begin(graph, tmp_path / "run")
    assert [list(each.iterdir()) for each in tmp_path.iterdir()] == [[]]


def test_a_run_that_was_made_by_another_process_just_before_the_folder_was_locked_is_not_charged(
    graph, tmp_path, machine, monkeypatch
):
    lock = run_records.RunLock

    def locked(folder):
        monkeypatch.setattr(run_records, "RunLock", lock)
        begin(graph, folder).close()
        return lock(folder)

    monkeypatch.setattr(run_records, "RunLock", locked)
    with pytest.raises(ConfigError, match="already holds a run"):
        begin(graph, tmp_path / "run")
    assert hours_of_set_up(tmp_path / "run") == 0
    assert not (tmp_path / "run" / "lock").exists()
