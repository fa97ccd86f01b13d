import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from dorylus.cluster.engine import Engine
from dorylus.errors import ConfigError, TrainingError
from dorylus.pipeline import Kind, Need, Reads, Scheduler, Scope, Step, TaskTable

TABLE = TaskTable(
    (
        Step(Kind.APPLY_VERTEX, 0),
        Step(Kind.GATHER, 1, (Need(0, Scope.SOURCES),)),
        Step(Kind.WEIGHT_UPDATE, 2, (Need(1, Scope.EVERY),), once=True),
    )
)
INTERVALS = 5


def scheduler(table=TABLE):
    return Scheduler(table, Reads.complete(INTERVALS))


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


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_an_epoch_runs_every_task_once_and_tells_when(engine, threads):
    seen, lock = [], threading.Lock()

    def execute(task, done, failed):
        with lock:
            seen.append((task.step, task.interval))
        done()

    runner, plan = engine(threads), scheduler()
    for epoch in range(3):
        seen.clear()
        spans = runner.run(plan, epoch, execute)
        assert sorted(seen) == sorted([(s, i) for s in (0, 1) for i in range(INTERVALS)] + [(2, 0)])
        assert sorted((span.task.step, span.task.interval) for span in spans) == sorted(seen)
        assert {span.task.epoch for span in spans} == {epoch}
        assert all(span.start_s <= span.end_s and 0 <= span.thread < threads for span in spans)


def test_one_thread_is_the_callers(engine):
    identities = set()

    def execute(task, done, failed):
        identities.add(threading.get_ident())
        done()

    engine(threads=1).run(scheduler(), 0, execute)
    assert identities == {threading.get_ident()}


def test_tasks_of_one_step_run_side_by_side(engine):
    both = threading.Barrier(2, timeout=30)

    def execute(task, done, failed):
        if task.step == 0 and task.interval < 2:
            both.wait()  # passes only when two threads are here at once
        done()

    engine(threads=2).run(scheduler(), 0, execute)


def test_tasks_may_be_answered_later_from_elsewhere(engine):
    with ThreadPoolExecutor(3) as elsewhere:
        spans = engine(threads=2).run(scheduler(), 0, lambda task, done, failed: elsewhere.submit(done))
    assert len(spans) == 2 * INTERVALS + 1


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("how", ["raises", "reports"])
def test_a_task_that_fails_ends_the_epoch_with_an_error_that_names_it(engine, threads, how):
    def execute(task, done, failed):
        if (task.step, task.interval) != (1, 2):
            done()
        elif how == "raises":
            raise ValueError("not today")
        else:
            failed(ValueError("not today"))

    with pytest.raises(TrainingError, match=r"^GA of interval 2 in epoch 1 failed: ValueError: not today$") as caught:
        engine(threads).run(scheduler(), 0, execute)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_error_with_a_cure_is_told_as_it_is(engine):
    def execute(task, done, failed):
        failed(ConfigError("use less."))

    with pytest.raises(ConfigError, match=r"^use less\.$"):
        engine().run(scheduler(), 0, execute)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_task_that_is_never_answered_misses_the_deadline_and_is_named(engine, threads):
    def execute(task, done, failed):
        if task.interval != 3:
            done()

    with pytest.raises(TrainingError, match=r"AV of interval 3 in epoch 1 failed: .*no answer within deadline_s=0\.2"):
        engine(threads, deadline_s=0.2).run(scheduler(), 0, execute)


def test_an_answer_after_the_end_is_ignored(engine):
    late = []

    def execute(task, done, failed):
        if task.interval == 3:
            late.append((done, failed))
        elif task.interval == 4:
            failed(ValueError("not today"))
        else:
            done()

    runner = engine(threads=1)
    with pytest.raises(TrainingError):
        runner.run(scheduler(), 0, execute)
    for done, failed in late:
        done()
        failed(ValueError("too late"))
    assert runner.run(scheduler(), 0, at_once)


def test_an_engine_goes_on_after_a_failure(engine):
    runner = engine(threads=3)

    def execute(task, done, failed):
        failed(ValueError("not today"))

    with pytest.raises(TrainingError):
        runner.run(scheduler(), 0, execute)
    assert len(runner.run(scheduler(), 0, at_once)) == 2 * INTERVALS + 1


def test_an_epoch_with_nothing_to_do_ends_in_an_error_and_not_in_waiting(engine):
    runner, plan = engine(threads=1, deadline_s=0.1), scheduler()
    runner.run(plan, 0, at_once)
    outcome = []

    def again():
        try:
            outcome.append(runner.run(plan, 0, at_once))  # this epoch is over: the scheduler starts nothing
        except TrainingError as error:
            outcome.append(error)

    waiting = threading.Thread(target=again, daemon=True)
    waiting.start()
    waiting.join(timeout=3)
    hung = waiting.is_alive()
    runner.close()
    waiting.join(timeout=3)
    assert not hung
    assert isinstance(outcome[0], TrainingError)


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
                runner.run(scheduler(), 0, execute)
        else:
            runner.run(scheduler(), 0, execute)
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
