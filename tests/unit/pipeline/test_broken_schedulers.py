"""The properties can fail: each scheduler and stash that is wrong on purpose is caught, by the property named."""

import broken_schedulers as broken
import pipeline_properties as properties
import pytest
from clusters import EXACT_AFTER_RELAXED, LATE_ROWS, cases
from hypothesis import Phase, example, given, settings

from dorylus.pipeline import Scheduler
from dorylus.servers.parameter.stash import Stash

CAUGHT = [
    (broken.BoundIsOneEpochTooWide, properties.no_interval_passes_the_bound),
    (broken.BoundIsOneEpochTooWide, properties.exact_epochs_read_values_of_their_own),
    (broken.BoundIsOneTooWideInRelaxedEpochs, properties.no_interval_passes_the_bound),
    (broken.BoundIsOneTooWideInRelaxedEpochs, properties.relaxed_epochs_read_recent_values),
    (broken.BoundIsTooNarrow, properties.what_is_due_happens_at_once),
    (broken.BoundForgetsPeers, properties.no_interval_passes_the_bound),
    (broken.BoundForgetsRows, properties.relaxed_epochs_read_recent_values),
    (broken.NoBarrierBeforeAnExactEpoch, properties.no_interval_passes_the_bound),
    (broken.ExactEpochsAreRelaxed, properties.exact_epochs_read_values_of_their_own),
    (broken.SynchroniseIsIgnored, properties.exact_epochs_read_values_of_their_own),
    (broken.ATaskIsStartedTwice, properties.every_task_runs_exactly_once),
    (broken.ATaskIsForgotten, properties.nothing_hangs),
    (broken.EarlyReportsAreLost, properties.nothing_hangs),
    (broken.StepsAreNotReported, properties.nothing_hangs),
    (broken.PeersStepsAreTakenForTheirEpochs, properties.no_interval_passes_the_bound),
    (broken.PermitsAreIgnored, properties.what_is_due_happens_at_once),
    (broken.WaitingIsNotReported, properties.waiting_is_reported_when_only_the_bound_holds),
    (broken.WaitingIsReportedAgain, properties.waiting_is_reported_when_only_the_bound_holds),
    (broken.ActionsComeInAnyOrder, properties.the_same_events_give_the_same_actions),
    (broken.IntervalsTakeTurns, properties.in_lock_step_async_reads_as_pipe_does),
    (broken.StashIsNotPinned, properties.backward_uses_the_weights_of_its_forward),
    (broken.ReleaseFreesForEveryone, properties.backward_uses_the_weights_of_its_forward),
    (broken.ReleaseIsForgotten, properties.the_stash_ends_empty_and_stays_within_its_bound),
    (broken.VersionsAreNotFreed, properties.the_stash_ends_empty_and_stays_within_its_bound),
]


def test_every_property_catches_something():
    assert {holds for _, holds in CAUGHT} == set(properties.PROPERTIES)


@pytest.mark.parametrize(("wrong", "holds"), CAUGHT, ids=lambda part: part.__name__)
def test_is_caught_by(wrong, holds):
    classes = (wrong, Stash) if issubclass(wrong, Scheduler) else (Scheduler, wrong)

    # The same examples every time, and no search for the smallest: the result must not depend on chance.
    @settings(
        max_examples=400,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
    )
    @example(case=LATE_ROWS)
    @example(case=EXACT_AFTER_RELAXED)
    @given(case=cases())
    def property_holds(case):
        holds(case, *classes)

    with pytest.raises(AssertionError):
        property_holds()
