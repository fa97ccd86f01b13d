"""The state machines catch each deliberately broken wrapper, for the named reason."""

import broken_wrappers as broken
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from wrapper_machines import limited_machine, relaunching_machine

QUICK = settings(
    max_examples=500,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # no shrinking: the smallest example is not used
    suppress_health_check=list(HealthCheck),
)

# Those that need many orders of events run in the soak only.
CAUGHT = [
    (relaunching_machine, broken.DuplicatesAreNotDropped, "answered twice|answered again|do not add up"),
    (relaunching_machine, broken.LateAnswersAreDropped, "was not passed on at once"),
    (relaunching_machine, broken.TheCapIsOffByOne, "tried too often"),
    (relaunching_machine, broken.ThrottlingCountsAgainstTheCap, "given up too soon"),
    pytest.param(
        relaunching_machine,
        broken.ARelaunchIsForgotten,
        "nothing will ever happen|calls were lost",
        marks=pytest.mark.soak,
    ),
    (relaunching_machine, broken.TimeOutsAreNotWatched, "nothing will ever happen|calls were lost"),
    (
        relaunching_machine,
        broken.EveryTaskHasOneTicket,
        "calls were lost|passed on at once|will ever happen|other calls",
    ),
    (relaunching_machine, broken.TheServiceIsDownTooSoon, "called down too soon"),
    (relaunching_machine, broken.TheWindowNeverOpensAgain, "nothing will ever happen|calls were lost"),
    (relaunching_machine, broken.LaunchesAreNotCounted, "do not add up"),
    (relaunching_machine, broken.CancelledCallsAreTriedAgain, "was cancelled was launched|do not add up"),
    (limited_machine, broken.TheLimitIsOffByOne, "more are under way than may be"),
    pytest.param(
        limited_machine,
        broken.NoCallStartsAfterAFailure,
        "though there is room|calls were lost",
        marks=pytest.mark.soak,
    ),
    (limited_machine, broken.AnAnswerTwiceMakesRoomTwice, "more are under way|false load|not passed on"),
    (limited_machine, broken.FirstComeFirstServed, "overtook"),
    (limited_machine, broken.AnswersComeAfterClose, "after close|answered again"),
    pytest.param(
        limited_machine, broken.CancelledCallsKeepTheirPlaces, "a false load|calls were lost", marks=pytest.mark.soak
    ),
]


@pytest.mark.parametrize(("machine", "wrapper", "message"), CAUGHT, ids=lambda each: getattr(each, "__name__", ""))
def test_a_deliberately_broken_wrapper_is_caught(machine, wrapper, message):
    with pytest.raises(AssertionError, match=message):
        run_state_machine_as_test(machine(wrapper), settings=QUICK)
