import pytest

from dorylus.errors import ConfigError
from dorylus.pipeline import Kind, Need, Reads, Scope, Step, TaskTable
from dorylus.pipeline.dependents import Dependents

TABLE = TaskTable(
    (
        Step(Kind.SCATTER, 0),
        Step(Kind.GATHER, 1, (Need(0, Scope.OWN), Need(0, Scope.SOURCES))),
        Step(Kind.GRAD_SCATTER, 1, (Need(1, Scope.OWN),)),
        Step(Kind.GRAD_GATHER, 2, (Need(2, Scope.OWN), Need(2, Scope.READERS))),
    )
)


def complete(servers, width, server=0):
    """The reads of one server where every interval reads from every interval."""
    every_interval = frozenset(range(servers * width))
    return Reads(range(server * width, (server + 1) * width), (every_interval,) * width, (every_interval,) * width)


@pytest.mark.parametrize("width", [4, 64])
def test_a_dense_relation_costs_one_entry_a_server_and_task(width):
    dependents = Dependents(TABLE, complete(3, width), 0, [0, width, 2 * width, 3 * width])
    assert dependents.unmet[width : 2 * width] == [3] * width
    assert sum(dependents.unmet) == width * (1 + 3 + 1 + 3)


def test_only_scatters_of_peers_are_awaited():
    dependents = Dependents(TABLE, complete(2, 2, server=1), 1, [0, 2, 4])
    assert dependents.arrivals == {(0, 0), (0, 1), (2, 0), (2, 1)}


def test_only_steps_that_are_needed_of_every_interval_are_announced():
    table = TaskTable((Step(Kind.SCATTER, 0), Step(Kind.GATHER, 0), Step(Kind.GATHER, 1, (Need(1, Scope.EVERY),))))
    assert Dependents(table, complete(1, 2), 0, [0, 2]).announced == {1}


@pytest.mark.parametrize(
    ("kind", "scope"),
    [
        (Kind.APPLY_VERTEX, Scope.SOURCES),
        (Kind.GRAD_SCATTER, Scope.SOURCES),
        (Kind.SCATTER, Scope.READERS),
        (Kind.GRAD_GATHER, Scope.READERS),
    ],
)
def test_waiting_for_a_step_that_sends_no_rows_to_the_server_is_refused(kind, scope):
    table = TaskTable((Step(kind, 0), Step(Kind.GATHER, 1, (Need(0, scope),))))
    with pytest.raises(ConfigError, match=r"sends its rows to .* on other servers"):
        Dependents(table, complete(2, 2), 0, [0, 2, 4])
    assert sum(Dependents(table, complete(1, 2), 0, [0, 2]).unmet) == 6  # a server alone knows what it has finished
