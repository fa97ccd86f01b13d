"""The page scheduler over real tables: a driver runs every step for every interval, and looks at what is in memory."""

import numpy as np
import pytest
from small_shards import Messages

import dorylus
from dorylus.backends.host import NativeBackend
from dorylus.paging import Pager, ReadOnlyFile
from dorylus.pipeline import Kind
from dorylus.saga import Savings, lower
from dorylus.saga.columns import in_blocks
from dorylus.saga.stages import Gather, Scatter, Slot
from dorylus.saga.table import steps_of
from dorylus.servers.graph.access_sets import access_sets
from dorylus.servers.graph.paged import PagedMatrices, PageScheduler
from dorylus.servers.graph.pass_context import Extra, Grad, Published

INTERVALS, ROWS = 3, 600
BOUNDS = np.arange(0, INTERVALS * ROWS + 1, ROWS, dtype=np.int64)
RECIPES = {
    "gcn": dorylus.gcn(hidden=[40, 36], dropout=0.5),
    "sage max": dorylus.sage(hidden=40, aggregator="max", dropout=0.5),
    "gin": dorylus.gin(hidden=40, dropout=0.5),
}


@pytest.fixture
def pager(tmp_path):
    pager = Pager(tmp_path, deadline_s=10)
    yield pager
    pager.close()


def columns_of(name):
    return name.columns if isinstance(name, Slot) else name.slot.columns


class Driver:
    """Runs the steps of a pass; every matrix holds a number that encodes which step wrote it in which interval."""

    def __init__(self, name, pager, *, blocks=1):
        plan = lower(RECIPES[name].build(40, 24), sparse_features=False, training=True, savings=Savings())
        self.steps = steps_of(in_blocks(plan, blocks), backward=True)
        self.access_sets_of_steps = access_sets(self.steps)
        self.matrices = PagedMatrices(NativeBackend(), pager, BOUNDS, lambda name: True)
        self.page_scheduler = PageScheduler(self.steps, INTERVALS, self.matrices, {}, [])
        self.written = {}
        self.checked = 0

    def rows(self, interval):
        return slice(BOUNDS[interval], BOUNDS[interval + 1])

    def get(self, name):
        return self.matrices.get(name, int(BOUNDS[-1]), columns_of(name))

    def made(self, names):
        """The matrices that some step writes; extras and publications of other kinds of gathers do not exist."""
        real = ("ties", "share", "out", "cotangent")
        return [n for n in names if not isinstance(n, Extra | Published) or n.what in real]

    def task(self, step, interval, epoch):
        """Run one task: check what it reads, write what it writes."""
        touch = self.access_sets_of_steps[step]
        self.page_scheduler.before(step, interval)
        for name in touch.reads:
            self.check(name, interval)
        for name in touch.wholes:
            for each in range(INTERVALS):
                self.check(name, each)
        for name in self.made(touch.writes):
            value = self.written[name, interval] = (epoch + 1) * 1000 + step * 10 + interval
            self.get(name)[self.rows(interval)] = value
        self.page_scheduler.after(step, interval)

    def check(self, name, interval):
        if (name, interval) in self.written:
            rows = self.get(name)[self.rows(interval)]
            assert (rows == self.written[name, interval]).all(), f"{name} of interval {interval}"
            self.checked += 1

    def epoch(self, epoch=0):
        """Step by step, all intervals of one before the next step; then everything is given back."""
        for step in range(len(self.steps.stages)):
            for interval in range(INTERVALS):
                self.task(step, interval, epoch)

    def at_hand(self, name, interval):
        """Whether an interval's rows are in memory; pages that are shared with others do not count."""
        return bool(self.matrices.paged[name].array[self.rows(interval)][60:-60].any())


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("name", RECIPES)
def test_every_task_reads_what_was_written_before_it(name, blocks, pager):
    driver = Driver(name, pager, blocks=blocks)
    for epoch in range(3):
        driver.written.clear()
        driver.epoch(epoch)
    assert driver.checked > 3 * len(driver.steps.stages)


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_stays_in_memory_after_an_epoch(name, pager):
    driver = Driver(name, pager)
    driver.epoch()
    pager.close()
    assert driver.matrices.paged
    for matrix in driver.matrices.paged:
        assert not any(driver.at_hand(matrix, interval) for interval in range(INTERVALS)), matrix


def test_kept_matrices_can_be_read_after_the_epoch(pager):
    driver = Driver("sage max", pager)
    kept = next(stage.output for stage in driver.steps.stages if isinstance(stage, Gather))
    driver.page_scheduler = PageScheduler(driver.steps, INTERVALS, driver.matrices, {}, [kept])
    driver.epoch()
    array = driver.matrices.paged[kept]
    array.acquire_all()
    for interval in range(INTERVALS):
        assert (array.array[driver.rows(interval)] == driver.written[kept, interval]).all()
    array.release_all()


def listening(driver):
    """Runs all steps before the first one that reads rows again; returns that step, and the set of spans read ahead."""
    kinds = [step.kind for step in driver.steps.table.steps]
    back = kinds.index(Kind.GRAD_APPLY_VERTEX)
    for step in range(back):
        for interval in range(INTERVALS):
            driver.task(step, interval, 0)
    read_ahead = set()
    for name in driver.access_sets_of_steps[back].reads:
        if name in driver.matrices.paged:
            array = driver.matrices.paged[name]
            array.ahead = lambda number, ahead=array.ahead: (read_ahead.add(number), ahead(number))
    return back, read_ahead


def test_rows_are_read_ahead_of_the_running_interval(pager):
    driver = Driver("gcn", pager)
    back, read_ahead = listening(driver)
    driver.page_scheduler.before(back, 0)
    assert read_ahead == {1, 2}
    driver.page_scheduler.after(back, 0)


def test_rows_of_an_interval_that_overtook_others_are_not_read_again(pager):
    driver = Driver("gcn", pager)
    back, read_ahead = listening(driver)
    driver.task(back, 1, 0)
    read_ahead.clear()
    driver.page_scheduler.before(back, 0)
    assert read_ahead == {2}
    driver.page_scheduler.after(back, 0)
    driver.task(back, 2, 0)
    read_ahead.clear()
    driver.page_scheduler.before(back, 0)  # of the next epoch
    assert read_ahead == {1, 2}
    driver.page_scheduler.after(back, 0)


def test_a_gathered_matrix_is_complete_until_the_last_interval_is_done(pager):
    driver = Driver("gcn", pager)
    pairs = list(zip(driver.steps.table.steps, driver.steps.stages, strict=True))
    gather = next(k for k, (step, _) in enumerate(pairs) if step.kind is Kind.GATHER)
    for step in range(gather):
        for interval in range(INTERVALS):
            driver.task(step, interval, 0)
    (whole,) = driver.access_sets_of_steps[gather].wholes
    for interval in range(INTERVALS):
        driver.page_scheduler.before(gather, interval)
        assert all(driver.at_hand(whole, each) for each in range(INTERVALS))
    for interval in range(INTERVALS):
        assert all(driver.at_hand(whole, each) for each in range(INTERVALS))
        driver.page_scheduler.after(gather, interval)
    pager.close()
    assert not any(driver.at_hand(whole, each) for each in range(INTERVALS))


def test_rows_needed_in_a_later_phase_go_to_their_file(pager):
    driver = Driver("gcn", pager)
    scatter = next(k for k, stage in enumerate(driver.steps.stages) if isinstance(stage, Scatter))
    for step in range(scatter + 1):
        driver.task(step, 0, 0)
    pager.io_threads.close()
    (slot,) = driver.steps.stages[scatter].slots
    assert not driver.at_hand(slot, 0)
    assert pager.io_threads.moved.written > 0


def test_rows_that_an_interval_reads_again_in_a_later_phase_go_to_their_file_too(pager):
    driver = Driver("gcn", pager)
    phases = [step.phase for step in driver.steps.table.steps]
    name, last, again = next(
        (name, k, later)
        for k, touch in enumerate(driver.access_sets_of_steps)
        for name in driver.made(touch.writes)
        for later in range(k + 1, len(phases))
        if name in driver.access_sets_of_steps[later].reads and phases[later] > phases[k]
    )
    last = max(
        k for k, touch in enumerate(driver.access_sets_of_steps) if name in touch.rows and phases[k] == phases[last]
    )
    assert again > last
    for step in range(last + 1):
        driver.task(step, 0, 0)
        if step < last and (name, 0) in driver.written:
            assert driver.at_hand(name, 0)  # soon needed again
    pager.io_threads.close()
    assert not driver.at_hand(name, 0)
    driver.matrices.paged[name].acquire(0)
    assert driver.at_hand(name, 0)


def test_paged_edges_are_in_memory_while_their_step_runs(pager, tmp_path):
    content = np.arange(1, int(BOUNDS[-1]) * 10 + 1, dtype=np.int32)
    content.tofile(tmp_path / "edges.bin")
    edges = pager.stored(ReadOnlyFile(tmp_path / "edges.bin"), content, BOUNDS * 10)
    driver = Driver("gcn", pager)
    gather = next(k for k, step in enumerate(driver.steps.table.steps) if step.kind is Kind.GATHER)
    page_scheduler = PageScheduler(driver.steps, INTERVALS, driver.matrices, {gather: (edges,)}, [])
    part = slice(int(BOUNDS[1]) * 10, int(BOUNDS[2]) * 10)
    page_scheduler.before(gather, 1)
    np.testing.assert_array_equal(edges.array[part], content[part])
    page_scheduler.after(gather, 1)
    pager.close()
    assert not edges.array[part][2000:-2000].any()
    edges.file.close()


def test_a_cotangent_without_further_readers_is_forgotten(pager):
    driver = Driver("gcn", pager)
    driver.epoch()
    pager.close()
    spent = [name for name in driver.matrices.paged if isinstance(name, Grad)]
    assert spent
    reads = pager.io_threads.moved.read
    for name in spent:
        driver.matrices.paged[name].acquire(0)  # reads nothing: there is nothing stored
    assert pager.io_threads.moved.read == reads


def test_a_matrix_that_one_step_needs_completely_is_not_dropped_after_another_step(pager):
    """The last layer's ∇AE of one interval may run while another interval is still at its AE: both read the same."""
    program = dorylus.Program([Messages(40, 36), Messages(36, 24)])
    steps = steps_of(lower(program, sparse_features=False, training=True, savings=Savings()), backward=True)
    matrices = PagedMatrices(NativeBackend(), pager, BOUNDS, lambda name: True)
    page_scheduler = PageScheduler(steps, INTERVALS, matrices, {}, [])
    kinds = [step.kind for step in steps.table.steps]
    forward = len(kinds) - 1 - kinds[::-1].index(Kind.APPLY_EDGE)
    backward = kinds.index(Kind.GRAD_APPLY_EDGE)
    slot = steps.stages[forward].source
    assert steps.stages[backward] is steps.stages[forward]
    array = matrices.get(slot, int(BOUNDS[-1]), slot.columns)
    array[:] = 1
    for interval in range(INTERVALS):
        matrices.paged[slot].wrote(interval)
        page_scheduler.before(forward, interval)
    page_scheduler.after(forward, 0)
    page_scheduler.before(backward, 0)
    for interval in range(1, INTERVALS):
        page_scheduler.after(forward, interval)
    pager.close()
    assert array.all(), "dropped while interval 0 is at work on its ∇AE"
