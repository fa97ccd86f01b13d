import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dorylus.errors import ConfigError, TrainingError
from dorylus.pipeline import Arrived, Kind, Need, Reads, Scheduler, Scope, Step, TaskTable, bounded, no_pipe, pipe
from dorylus.runtime.engine import Engine, EnginePass

TABLE = TaskTable(
    (
        Step(Kind.SCATTER, 0),
        Step(Kind.GATHER, 1, (Need(0, Scope.OWN), Need(0, Scope.SOURCES))),
        Step(Kind.WEIGHT_UPDATE, 1, (Need(1, Scope.OWN),)),
    )
)
SCATTER, GATHER, UPDATE = 0, 1, 2
INTERVALS = 5
ALL = [(step, interval) for step in range(3) for interval in range(INTERVALS)]


@pytest.fixture
def engine():
    """Makes engines and closes them."""
    made = []

    def make(threads=2, deadline_s=30.0):
        made.append(Engine(threads, deadline_s))
        return made[-1]

    yield make
    for each in made:
        each.close()


def at_once(task, done, failed):
    done()


def one_server(execute=at_once, schedule=pipe, intervals=INTERVALS):
    """A pass of one server, whose intervals all read from each other."""
    reads, bounds = Reads.complete(intervals), (0, intervals)
    scheduler = Scheduler(schedule(TABLE), reads, server=0, bounds=bounds)
    return EnginePass({0: scheduler}, lambda server, task, done, failed: execute(task, done, failed))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_epoch_runs_every_task_once_and_reports_its_times(engine, threads):
    seen, lock = [], threading.Lock()

    def execute(task, done, failed):
        with lock:
            seen.append((task.step, task.interval))
        done()

    runner, work = engine(threads), one_server(execute)
    for epoch in range(3):
        seen.clear()
        spans = runner.run(work, epoch)
        assert work.epoch == epoch
        assert sorted(seen) == ALL
        assert sorted((span.task.step, span.task.interval) for span in spans) == ALL
        assert {(span.task.epoch, span.server) for span in spans} == {(epoch, 0)}
        assert all(span.start_s <= span.end_s and 0 <= span.thread < threads for span in spans)


def test_one_thread_is_the_callers(engine):
    identities = set()

    def execute(task, done, failed):
        identities.add(threading.get_ident())
        done()

    engine(threads=1).run(one_server(execute), 0)
    assert identities == {threading.get_ident()}


def test_tasks_of_one_step_run_side_by_side(engine):
    both = threading.Barrier(2, timeout=30)

    def execute(task, done, failed):
        if task.step == SCATTER and task.interval < 2:
            both.wait()  # passes only when two threads are here at once
        done()

    assert len(engine(threads=2).run(one_server(execute), 0)) == len(ALL)


def test_tasks_may_be_answered_later_from_another_thread(engine):
    with ThreadPoolExecutor(3) as other_threads:
        work = one_server(lambda task, done, failed: other_threads.submit(done))
        spans = engine(threads=2).run(work, 0)
    assert len(spans) == len(ALL)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", ["raises", "reports"])
def test_a_task_that_fails_ends_the_epoch_with_an_error_that_names_it(engine, threads, how):
    def execute(task, done, failed):
        if (task.step, task.interval) != (GATHER, 2):
            done()
        elif how == "raises":
            raise ValueError("not today")
        else:
            failed(ValueError("not today"))

    with pytest.raises(TrainingError, match=r"^GA of interval 2 in epoch 1 failed: ValueError: not today$") as caught:
        engine(threads).run(one_server(execute), 0)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_with_a_cure_is_reported_unchanged(engine):
    def execute(task, done, failed):
        failed(ConfigError("use less."))

    with pytest.raises(ConfigError, match=r"^use less\.$"):
        engine().run(one_server(execute), 0)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_task_that_is_never_answered_misses_the_deadline_and_is_named(engine, threads):
    def execute(task, done, failed):
        if task.interval != 3:
            done()

    with pytest.raises(TrainingError, match=r"SC of interval 3 in epoch 1 failed: .*no answer within deadline_s=0\.2"):
        engine(threads, deadline_s=0.2).run(one_server(execute), 0)


def test_an_answer_after_the_end_is_ignored(engine):
    late = []

    def execute(task, done, failed):
        if task.interval == 3:
            late.append((done, failed))
        elif task.interval == 4:
            failed(ValueError("not today"))
        else:
            done()

    runner, work = engine(threads=1), one_server(execute)
    with pytest.raises(TrainingError, match="interval 4"):
        runner.run(work, 0)
    for done, failed in late:
        done()
        failed(ValueError("too late"))
    with pytest.raises(TrainingError, match="interval 4"):
        runner.run(work, 0)
    assert runner.run(one_server(), 0)


def test_a_failure_of_one_pass_leaves_the_others_as_they_were(engine):
    runner, good = engine(threads=3), one_server()
    bad = one_server(lambda task, done, failed: failed(ValueError("not today")))
    assert len(runner.run(good, 0)) == len(ALL)
    for _ in range(2):  # a pass that failed stays failed: half an epoch cannot be continued
        with pytest.raises(TrainingError, match="not today"):
            runner.run(bad, 0)
    assert len(runner.run(good, 1)) == len(ALL)


def test_an_epoch_without_a_permit_ends_in_an_error_and_not_in_waiting(engine):
    runner, work = engine(threads=1, deadline_s=0.1), one_server()
    runner.run(work, 0)
    with pytest.raises(TrainingError, match="epoch 2 has no task to start"):
        runner.run(work, 1, permit=0)


def test_an_epoch_that_is_over_is_over_at_once(engine):
    runner, work = engine(threads=1), one_server()
    runner.run(work, 0)
    assert runner.run(work, 0) == []


@pytest.mark.parametrize("fails", [False, True])
def test_torchs_own_threads_are_given_back(engine, fails):
    before = torch.get_num_threads()
    inside = []

    def execute(task, done, failed):
        inside.append(torch.get_num_threads())
        if fails:
            raise ValueError
        done()

    try:
        torch.set_num_threads(2)
        runner = engine(threads=2)
        if fails:
            with pytest.raises(TrainingError):
                runner.run(one_server(execute), 0)
        else:
            runner.run(one_server(execute), 0)
        assert set(inside) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_closing_ends_the_threads():
    runner = Engine(4, 30.0)
    names = {thread.name for thread in threading.enumerate()}
    assert {"dorylus-1", "dorylus-2", "dorylus-3"} <= names
    runner.close()
    runner.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("dorylus-")]


class Cluster:
    """Servers whose intervals all read from each other; records in order which task begins and ends."""

    def __init__(self, engine, schedule=pipe, bounds=(0, 2, 4), hold=lambda task: False):
        self.engine, self.bounds, self.hold = engine, bounds, hold
        self.history = []
        self.held = []  # messages that have not arrived yet
        everyone = frozenset(range(bounds[-1]))
        schedulers = {}
        for server in range(len(bounds) - 1):
            mine = range(bounds[server], bounds[server + 1])
            reads = Reads(mine, *(((everyone,) * len(mine)),) * 2)
            schedulers[server] = Scheduler(schedule(TABLE), reads, server=server, bounds=bounds)
        self.work = EnginePass(schedulers, self.execute)

    def execute(self, server, task, done, failed):
        self.history.append(("begin", task))
        if task.step == SCATTER:
            self.post(server, task)
        self.history.append(("end", task))
        done()

    def post(self, server, task):
        for peer in range(len(self.bounds) - 1):
            if peer != server:
                message = (peer, Arrived(task))
                self.held.append(message) if self.hold(task) else self.arrive(*message)

    def arrive(self, peer, event):
        self.history.append(("arrived", peer))
        self.engine.handle(self.work, peer, event)

    def begins(self, **fields):
        """Where in the history tasks of this description begin."""
        return self._where("begin", fields)

    def ends(self, **fields):
        return self._where("end", fields)

    def _where(self, what, fields):
        return [
            at
            for at, (event, task) in enumerate(self.history)
            if event == what and all(getattr(task, name) == value for name, value in fields.items())
        ]


@pytest.mark.parametrize("threads", [1, 3])
def test_an_epoch_is_over_when_every_server_has_finished_it(engine, threads):
    runner = engine(threads)
    cluster = Cluster(runner)
    for epoch in range(3):
        spans = runner.run(cluster.work, epoch)
        tasks = sorted((span.server, span.task.step, span.task.interval) for span in spans)
        assert tasks == sorted((interval // 2, step, interval) for step in range(3) for interval in range(4))
        assert cluster.work.epoch == epoch


def test_a_gather_waits_until_the_rows_of_every_source_have_arrived(engine):
    runner = engine(threads=1)
    cluster = Cluster(runner, hold=lambda task: task.interval == 0)
    plain = cluster.work.execute

    def execute(server, task, done, failed):
        plain(server, task, done, failed)
        if server == 0 and task.step == UPDATE and task.interval == 1:  # the last that server 0 can do without server 1
            for message in cluster.held:
                cluster.arrive(*message)

    cluster.work.execute = execute
    runner.run(cluster.work, 0)
    held_back = [at for at, (what, peer) in enumerate(cluster.history) if (what, peer) == ("arrived", 1)][-1]
    for interval in (0, 1):
        assert max(cluster.begins(step=GATHER, interval=interval)) < held_back
    for interval in (2, 3):
        assert min(cluster.begins(step=GATHER, interval=interval)) > held_back


@pytest.mark.parametrize("threads", [1, 3])
def test_a_step_that_a_peer_has_not_finished_holds_the_next_one_without_piping(engine, threads):
    runner = engine(threads)
    cluster = Cluster(runner, no_pipe)
    for epoch in range(2):
        runner.run(cluster.work, epoch)
        for step in (GATHER, UPDATE):
            assert max(cluster.ends(epoch=epoch, step=step - 1)) < min(cluster.begins(epoch=epoch, step=step))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_no_interval_is_further_ahead_of_a_peers_than_the_bound(engine, threads, staleness):
    runner = engine(threads)
    cluster = Cluster(runner, bounded(staleness))
    last = 6
    for epoch in range(last + 1):
        runner.run(cluster.work, epoch, permit=min(epoch + staleness, last))
    assert cluster.work.epoch == last
    for epoch in range(1, last + 1):
        over = epoch - 1 - (staleness if epoch > 1 else 0)  # the first epoch is exact
        if over >= 0:
            assert max(cluster.ends(epoch=over)) < min(cluster.begins(epoch=epoch))
    begun = Counter(task for what, task in cluster.history if what == "begin")
    assert set(begun.values()) == {1}
    assert len(begun) == (last + 1) * 3 * 4


def test_a_message_that_never_arrives_misses_the_deadline(engine):
    runner = engine(threads=2, deadline_s=0.2)
    cluster = Cluster(runner, hold=lambda task: task.interval == 0)
    with pytest.raises(TrainingError, match=r"nothing arrived within deadline_s=0\.2 that epoch 1 waits for"):
        runner.run(cluster.work, 0)


def test_intervals_that_stand_at_the_bound_are_counted(engine):
    work = one_server(intervals=3)
    engine(threads=1).run(work, 0, permit=1)
    assert work.waits == 2  # the last interval to finish opens the next epoch, the two before it could have begun it


class Ahead:
    """An asynchronous pass: epoch 1 is over, and interval 0 has a task of epoch 2 under way that is not answered."""

    def __init__(self, runner):
        self.ran = []
        self.work = one_server(self.execute, bounded(1), intervals=2)
        runner.run(self.work, 0)
        runner.run(self.work, 1, permit=2)
        assert self.work.epoch == 1
        assert list(self.work.running) == [self.pending]

    def execute(self, task, done, failed):
        self.ran.append((task.epoch, task.interval, task.step))
        if self.ran[-1] == (1, 1, SCATTER):
            self.catch_up = done  # interval 1 is slow,
        elif self.ran[-1] == (2, 0, SCATTER):
            self.pending, self.done, self.failed = task, done, failed
            self.catch_up()  # until interval 0 is an epoch ahead of it
        else:
            done()


def pass_that_calls(do):
    """A pass of five intervals in whose first task something else happens."""

    def execute(task, done, failed):
        if (task.step, task.interval) == (SCATTER, 0):
            do()
        done()

    return one_server(execute)


def test_tasks_of_a_pass_wait_while_another_pass_runs_and_continue_afterwards(engine):
    runner = engine(threads=1)
    ahead = Ahead(runner)
    before = list(ahead.ran)
    spans = runner.run(pass_that_calls(ahead.done), 0)
    assert sorted((span.task.step, span.task.interval) for span in spans) == ALL
    assert ahead.ran == before  # the answer made a task ready, which no thread took
    assert ahead.work.ready
    late = runner.run(ahead.work, 2)
    everything = [(epoch, interval, step) for epoch in range(3) for interval in range(2) for step in range(3)]
    assert sorted(ahead.ran) == everything
    assert ahead.pending in [span.task for span in late]  # what was answered meanwhile is reported now


def test_a_thread_that_ends_a_task_of_another_pass_joins_the_running_pass(engine):
    runner, main, ran = engine(threads=2), threading.get_ident(), []
    both, ahead, go = threading.Barrier(2, timeout=30), threading.Event(), threading.Event()

    def execute(task, done, failed):
        ran.append(task)
        if task.epoch == 1 and task.step == SCATTER:
            both.wait()  # each thread has an interval now,
            if threading.get_ident() == main:
                ahead.wait(30)  # and the caller's waits until the other's is an epoch ahead of it
        elif task.epoch == 2:
            ahead.set()
            go.wait(30)
        done()

    work = one_server(execute, bounded(1), intervals=2)
    runner.run(work, 0)
    runner.run(work, 1, permit=2)
    before = list(ran)

    def other(task, done, failed):
        go.set()
        if task.step == SCATTER and task.interval < 2:
            both.wait()  # passes only when the other thread has come over
        done()

    assert len(runner.run(one_server(other), 0)) == len(ALL)
    assert ran == before
    runner.run(work, 2)
    assert len(ran) == len(set(ran)) == 3 * 3 * 2


def test_a_failure_of_a_task_of_a_waiting_pass_is_raised_when_that_pass_runs_again(engine):
    runner = engine(threads=1)
    ahead = Ahead(runner)
    assert len(runner.run(pass_that_calls(lambda: ahead.failed(ValueError("not today"))), 0)) == len(ALL)
    with pytest.raises(TrainingError, match=r"^SC of interval 0 in epoch 3 failed: ValueError: not today$"):
        runner.run(ahead.work, 2)


def test_a_task_that_is_never_answered_misses_the_deadline_of_a_resumed_pass(engine):
    runner = engine(threads=1, deadline_s=0.2)
    ahead = Ahead(runner)
    runner.run(one_server(), 0)
    with pytest.raises(TrainingError, match=r"SC of interval 0 in epoch 3 failed: .*no answer within deadline_s=0\.2"):
        runner.run(ahead.work, 2)
