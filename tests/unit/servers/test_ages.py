from collections import Counter

import pytest
from small_shards import small_shards, task_of

from dorylus.pipeline import Kind, Need, Scope, Step, TaskTable
from dorylus.servers.graph.ages import Ages

TABLE = TaskTable(
    (
        Step(Kind.SCATTER, 0),
        Step(Kind.GATHER, 1, (Need(0, Scope.OWN), Need(0, Scope.SOURCES))),
        Step(Kind.GRAD_SCATTER, 1, (Need(1, Scope.OWN),)),
        Step(Kind.GRAD_GATHER, 2, (Need(2, Scope.OWN), Need(2, Scope.READERS))),
    )
)
SCATTER, GATHER, GRAD_SCATTER, GRAD_GATHER = range(4)
LEVELS = {GATHER: 1, GRAD_GATHER: 2}


@pytest.fixture
def shard():
    """The middle one of three servers, of a directed graph; many rows are needed at no level."""
    return small_shards(seed=20)[1]


def read_by(shard, own, level, *, out=False):
    """{other interval: values read of it}: a value an edge that ends in a row needed at the level, edge by edge."""
    interval, deepest, found = shard.partition_plan.interval, shard.partition_plan.deepest, Counter()
    for source, destination in zip(*shard.graph.edge_list(), strict=True):
        reader, writer = (source, destination) if out else (destination, source)
        if deepest[destination] >= level and interval[reader] == own != interval[writer]:
            found[int(interval[writer])] += 1
    return found


def all_read(shard, level, **how):
    return sum(read_by(shard, own, level, **how).total() for own in shard.mine)


def write(ages, step, epoch, intervals=range(6)):
    for interval in intervals:
        ages.written(task_of(TABLE.steps[step].kind, interval, step, epoch))


def read(ages, step, epoch, interval):
    ages.read(task_of(TABLE.steps[step].kind, interval, step, epoch))


def test_values_of_the_readers_own_epoch_have_age_zero(shard):
    ages = Ages(TABLE, shard, LEVELS)
    write(ages, SCATTER, epoch=4)
    for interval in shard.mine:
        read(ages, GATHER, 4, interval)
    assert ages.take() == {0: all_read(shard, LEVELS[GATHER])}


def test_a_value_is_as_old_as_the_epochs_since_it_was_written(shard):
    ages, own = Ages(TABLE, shard, LEVELS), shard.mine.start
    values = read_by(shard, own, LEVELS[GATHER])
    written = {other: 5 + number % 3 for number, other in enumerate(sorted(values))}  # epochs 5, 6 and 7
    assert len(set(written.values())) == 3
    for interval, epoch in written.items():
        write(ages, SCATTER, epoch, [interval])
    read(ages, GATHER, 6, own)
    expected = Counter()
    for interval, epoch in written.items():
        expected[6 - epoch] += values[interval]
    assert ages.take() == expected


@pytest.mark.parametrize(("step", "writes"), [(GATHER, SCATTER), (GRAD_GATHER, GRAD_SCATTER)])
def test_reads_of_an_intervals_own_rows_are_not_counted(shard, step, writes):
    own, out = shard.mine.start, step == GRAD_GATHER
    source, destination = (shard.partition_plan.interval[ends] == own for ends in shard.graph.edge_list())
    assert (source & destination).any()
    for level in range(-1, 3):
        ages = Ages(TABLE, shard, {GATHER: level, GRAD_GATHER: level})
        write(ages, writes, epoch=3, intervals=[each for each in range(6) if each != own])
        write(ages, writes, epoch=1, intervals=[own])  # these would be of another age
        read(ages, step, 3, own)
        assert ages.take() == {0: read_by(shard, own, level, out=out).total()}


@pytest.mark.parametrize(("step", "writes"), [(GATHER, SCATTER), (GRAD_GATHER, GRAD_SCATTER)])
def test_only_edges_into_rows_needed_at_the_level_count(shard, step, writes):
    found = []
    for level in range(-1, 3):
        ages = Ages(TABLE, shard, {GATHER: level, GRAD_GATHER: level})
        write(ages, writes, epoch=0)
        for interval in shard.mine:
            read(ages, step, 0, interval)
        found.append(ages.take()[0])
        assert found[-1] == all_read(shard, level, out=step == GRAD_GATHER)
    assert found[0] > found[2] > found[3] > 0  # pruning leaves edges out


def test_a_reader_counts_by_the_newest_write(shard):
    ages = Ages(TABLE, shard, LEVELS)
    write(ages, SCATTER, epoch=1)
    write(ages, SCATTER, epoch=2)
    read(ages, GATHER, 3, shard.mine.start)
    assert set(ages.take()) == {1}


def test_gradients_are_read_over_out_edges(shard):
    ages = Ages(TABLE, shard, LEVELS)
    write(ages, GRAD_SCATTER, epoch=0)
    for interval in shard.mine:
        read(ages, GRAD_GATHER, 0, interval)
    over_out_edges = all_read(shard, LEVELS[GRAD_GATHER], out=True)
    assert ages.take() == {0: over_out_edges}
    assert over_out_edges != all_read(shard, LEVELS[GRAD_GATHER])


@pytest.mark.parametrize("step", [SCATTER, GRAD_SCATTER])
def test_reads_of_an_interval_from_itself_alone_have_no_age(shard, step):
    ages = Ages(TABLE, shard, LEVELS)
    read(ages, step, 3, shard.mine.start)
    assert ages.take() == {}


def test_ages_are_taken_once(shard):
    ages = Ages(TABLE, shard, LEVELS)
    write(ages, SCATTER, epoch=0)
    read(ages, GATHER, 0, shard.mine.start)
    first = ages.take()
    assert ages.take() == {}
    read(ages, GATHER, 0, shard.mine.start)
    assert ages.take() == first


def test_reads_of_several_tasks_are_added_up(shard):
    ages = Ages(TABLE, shard, LEVELS)
    write(ages, SCATTER, epoch=0)
    read(ages, GATHER, 0, shard.mine.start)
    once = ages.take()[0]
    for _ in range(3):
        read(ages, GATHER, 0, shard.mine.start)
    assert ages.take() == {0: 3 * once}


def test_ages_are_plain_numbers(shard):
    ages = Ages(TABLE, shard, LEVELS)
    write(ages, SCATTER, epoch=0)
    read(ages, GATHER, 1, shard.mine.start)
    assert {type(number) for pair in ages.take().items() for number in pair} == {int}
