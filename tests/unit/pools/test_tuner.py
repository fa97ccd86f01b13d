import random
from itertools import pairwise

import pytest

from dorylus.errors import ConfigError
from dorylus.pools.autotune import Tuner
from dorylus.pools.limited import Completion


class World:
    """Epochs of ``calls`` calls, ``demand`` of them open at a time; ``speed(n)``: calls per second with n under way."""

    def __init__(self, tuner, speed, *, calls=60, demand=50, noise=0.0, seed=0):
        self.tuner, self.speed, self.calls, self.demand = tuner, speed, calls, demand
        self.noise, self.random = noise, random.Random(seed)
        self.decisions = []

    def run(self, epochs, **options):
        for _ in range(epochs):
            luck = self.random.lognormvariate(0.0, self.noise)
            for interval in range(self.calls):
                self._complete(interval, luck, **options)
        return self.tuner.limit

    def settle(self):
        """Run until nothing has changed for a while."""
        quiet = 0
        for _ in range(100):
            before = len(self.decisions)
            self.run(1)
            quiet = quiet + 1 if len(self.decisions) == before else 0
            if quiet == 5:
                return self.tuner.limit
        raise AssertionError("it never settles")

    def _complete(self, interval, luck, kind="AV"):
        limit = self.tuner.limit
        under_way, waiting = min(limit, self.demand), max(self.demand - limit, 0)
        busy_s = luck / self.speed(under_way)
        decision = self.tuner.completed(
            Completion(
                kind,
                interval,
                launched_s=0.0,
                ended_s=under_way * busy_s,
                waited=waiting > 0,
                busy_s=busy_s,
                waiting_s=waiting * busy_s,
                peak=under_way,
            )
        )
        if decision is not None:
            self.decisions.append(decision)


def flat_from(knee):
    return lambda n: float(min(n, knee))


def best_at(peak):
    return lambda n: n if n <= peak else peak * (peak / n) ** 0.7


@pytest.mark.parametrize("start", [1, 7, 50, 100])
@pytest.mark.parametrize("knee", [1, 3, 8, 20, 45])
def test_the_limit_ends_at_the_fewest_calls_that_are_as_fast_as_any(start, knee):
    limit = World(Tuner(start), flat_from(knee)).settle()
    assert 0.9 * knee <= limit <= 1.25 * knee + 1


@pytest.mark.parametrize("start", [1, 100])
@pytest.mark.parametrize("peak", [1, 4, 12, 40])
def test_the_limit_ends_near_the_best_where_more_calls_are_slower(start, peak):
    speed = best_at(peak)
    limit = World(Tuner(start), speed).settle()
    assert speed(limit) >= 0.85 * speed(peak)


@pytest.mark.parametrize("start", [1, 100])
@pytest.mark.parametrize("seed", range(5))
def test_epochs_that_differ_by_chance_hardly_move_the_limit(start, seed):
    speed = best_at(10)
    world = World(Tuner(start), speed, noise=0.05, seed=seed)
    assert speed(world.settle()) >= 0.85 * speed(10)


def test_a_limit_that_is_never_reached_is_lowered_to_the_number_that_is():
    world = World(Tuner(100), lambda n: float(n), demand=9)
    assert world.settle() == 9


def test_a_higher_limit_is_tried_only_when_calls_wait():
    world = World(Tuner(9), lambda n: float(n), demand=9)
    world.run(30)
    assert max(decision.new for decision in world.decisions) <= 9


def test_in_the_first_epoch_the_limit_doubles_while_as_many_wait_as_are_under_way():
    world = World(Tuner(1), flat_from(100), calls=400, demand=60)
    world.run(1)
    assert [decision.new for decision in world.decisions] == [2, 4, 8, 16, 32]
    assert {decision.reason for decision in world.decisions} == {"as many calls wait as are under way"}


def test_each_limit_is_tried_for_a_whole_epoch():
    world = World(Tuner(50), flat_from(10), demand=50)
    world.run(1)
    limits = [world.run(1) for _ in range(7)]
    assert limits == [25, 12, 6, 17, 8, 15, 10]


def test_small_epochs_are_measured_several_at_a_time():
    world = World(Tuner(4), flat_from(2), calls=5, demand=4)
    changes = []
    for epoch in range(30):
        world.run(1)
        changes += [epoch] * (len(world.decisions) - len(changes))
    assert min(later - earlier for earlier, later in pairwise(changes)) >= 5


def test_a_settled_limit_is_left_alone_for_longer_and_longer():
    world = World(Tuner(16), flat_from(16))
    quiet, longest = 0, []
    for _ in range(200):
        before = len(world.decisions)
        world.run(1)
        if len(world.decisions) == before:
            quiet += 1
        elif quiet > 3:
            longest.append(quiet)
            quiet = 0
        else:
            quiet = 0
    assert longest == sorted(longest)
    assert longest[0] < 20 < longest[-1]


def test_a_service_that_changes_is_tuned_again():
    world = World(Tuner(8), flat_from(8))
    assert world.settle() == 8
    world.speed = lambda n: 2.0 * min(n, 30)
    world.run(3)
    assert 28 <= world.settle() <= 33
    world.speed = flat_from(3)
    world.run(3)
    assert world.settle() == 3


def test_a_limit_that_measured_well_by_chance_gives_way_to_a_better_one():
    tuner = Tuner(20)
    world = World(tuner, lambda n: 20.0)
    world.run(2)
    world.speed = lambda n: 20.0  # half as many seem as fast...
    world.run(1)
    world.speed = lambda n: float(n)  # ... but they are not
    assert world.settle() >= 19


def test_occasional_evaluations_do_not_disturb_the_tuner():
    world = World(Tuner(50), flat_from(10))
    for _ in range(12):
        world.run(2)
        speed, world.speed = world.speed, lambda n: 0.1  # slow, and of no interest
        world.run(1, kind="evaluation")
        world.speed = speed
    assert 10 <= world.tuner.limit <= 12


def test_a_decision_holds_what_was_measured_and_the_reason():
    world = World(Tuner(1), flat_from(10), demand=30)
    world.run(1)
    first = world.decisions[0]
    assert (first.old, first.new, first.reason) == (1, 2, "as many calls wait as are under way")
    assert first.throughput == pytest.approx(1.0)
    assert first.queue == pytest.approx(29.0)
    assert [each.new for each in world.decisions[:-1]] == [each.old for each in world.decisions[1:]]


def test_the_limit_stays_within_its_bounds():
    world = World(Tuner(10, at_most=12), lambda n: float(n))
    world.run(40)
    assert all(1 <= decision.new <= 12 for decision in world.decisions)


@pytest.mark.parametrize(("start", "at_most"), [(0, 10), (11, 10)])
def test_a_start_out_of_bounds_is_refused(start, at_most):
    with pytest.raises(ConfigError, match=f"start={start}: begin with at least 1 call under way, and at most 10"):
        Tuner(start, at_most=at_most)
