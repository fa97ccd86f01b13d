from dataclasses import replace
from random import Random

import pytest
from pool_doubles import POLICY, Setting, a_call

from dorylus.errors import TrainingError
from dorylus.pools.pool import Exhausted, Lost, Throttled, Unavailable
from dorylus.saga.dense import Kept, Mode


@pytest.fixture
def setting():
    return Setting()


def lose(launched):
    launched.failed(Lost("gone"))


def test_a_call_that_is_answered_is_launched_once(setting):
    call = setting.submit()
    reply = setting.inner.last.answer()
    setting.clock.advance(100)
    assert setting.caller.answers == [(call, reply)]
    assert [each.call for each in setting.inner.launched] == [call]
    assert vars(setting.pool.counts) == {
        "calls": 1, "launches": 1, "relaunches": 0, "timeouts": 0, "losses": 0, "throttled": 0, "refused": 0,
        "duplicates": 0,
    }  # fmt: skip


def test_a_call_that_hangs_is_launched_again_when_the_first_time_out_is_over(setting):
    setting.submit()
    setting.clock.advance(POLICY.first_s - 0.01)
    assert len(setting.inner.launched) == 1
    setting.clock.advance(0.01)
    assert len(setting.inner.launched) == 2
    assert (setting.pool.counts.timeouts, setting.pool.counts.relaunches) == (1, 1)


def test_the_second_time_out_of_a_call_is_twice_as_long(setting):
    setting.submit()
    setting.clock.advance(POLICY.first_s + 2 * POLICY.first_s - 0.01)
    assert len(setting.inner.launched) == 2
    setting.clock.advance(0.01)
    assert len(setting.inner.launched) == 3


@pytest.mark.parametrize("winner", [0, 1])
def test_whichever_attempt_answers_first_wins_and_the_other_is_a_duplicate(setting, winner):
    call = setting.submit()
    setting.clock.advance(POLICY.first_s)
    reply = setting.inner.launched[winner].answer(loss=1.0)
    setting.inner.launched[1 - winner].answer(loss=2.0)
    assert setting.caller.answers == [(call, reply)]
    assert setting.pool.counts.duplicates == 1


def test_an_attempt_that_fails_after_another_has_answered_is_a_duplicate_too(setting):
    call = setting.submit()
    setting.clock.advance(POLICY.first_s)
    reply = setting.inner.launched[1].answer()
    lose(setting.inner.launched[0])
    setting.clock.advance(100)
    assert setting.caller.answers == [(call, reply)]
    assert setting.pool.counts.duplicates == 1
    assert setting.pool.counts.losses == 0


def test_an_attempt_that_answers_twice_counts_once(setting):
    call = setting.submit()
    reply = setting.inner.last.answer()
    setting.inner.last.answer()
    assert setting.caller.answers == [(call, reply)]
    assert setting.pool.counts.duplicates == 1


def test_a_kept_graph_travels_with_the_first_attempt_only(setting):
    call = replace(a_call(), kept=Kept((), ()))
    setting.caller.submit(call)
    lose(setting.inner.last)
    setting.clock.advance(POLICY.backoff_s)
    first, second = setting.inner.launched
    assert first.call is call
    assert second.call == replace(call, kept=None)


def test_the_same_task_may_be_under_way_twice(setting):
    first, second = setting.submit(3), setting.submit(3)
    reply = setting.inner.launched[1].answer(loss=2.0)
    assert setting.caller.answers == [(second, reply)]
    other = setting.inner.launched[0].answer(loss=1.0)
    assert setting.caller.answers_to(first) == [other]
    assert setting.pool.counts.duplicates == 0


def test_a_lost_call_comes_back_after_a_pause_drawn_at_random():
    pauses = []
    for seed in range(20):
        setting = Setting(random=Random(seed))
        setting.submit()
        lose(setting.inner.last)
        assert len(setting.inner.launched) == 1
        pauses.append(setting.clock.next_s())
        setting.clock.advance(POLICY.backoff_s)
        assert len(setting.inner.launched) == 2
    assert min(pauses) < 0.2 * POLICY.backoff_s
    assert max(pauses) > 0.8 * POLICY.backoff_s
    assert len(set(pauses)) == 20


def test_each_further_loss_doubles_the_longest_pause():
    longest = 0.0
    for seed in range(40):
        setting = Setting(random=Random(seed))
        setting.submit()
        lose(setting.inner.last)
        setting.clock.step()
        before = setting.clock.now()
        lose(setting.inner.last)
        while len(setting.inner.launched) < 3:
            setting.clock.step()
        longest = max(longest, setting.clock.now() - before)
    assert POLICY.backoff_s < longest <= 2 * POLICY.backoff_s


def test_a_call_is_tried_as_often_as_the_policy_allows_and_not_once_more(setting):
    call = setting.submit(7)
    for _ in range(POLICY.attempts):
        lose(setting.inner.last)
        setting.clock.advance(POLICY.backoff_at_most_s)
    assert len(setting.inner.launched) == POLICY.attempts
    (error,) = setting.caller.answers_to(call)
    assert isinstance(error, Exhausted)
    assert str(error).startswith(
        "AV of interval 7 in epoch 1 was tried 3 times, the most that the policy allows, without a result: "
        "0 time-outs and 3 losses, the last one: Lost: gone. If other calls succeed"
    )
    assert "Then try again" in str(error)


def test_time_outs_count_as_tries_and_the_error_reports_them(setting):
    call = setting.submit()
    setting.clock.advance(1)
    setting.submit(interval=1)  # so that something succeeds, and the service does not count as down
    for _ in range(200):
        setting.clock.advance(1)
        for each in setting.inner.launched:
            if each.call.task.interval:
                each.answer()
        if setting.caller.answers_to(call):
            break
        if setting.clock.now() % 5 == 0:
            setting.submit(interval=1)
    (error,) = setting.caller.answers_to(call)
    assert isinstance(error, Exhausted)
    assert "3 time-outs and 0 losses, the last one: no answer within" in str(error)


def test_a_late_answer_counts_even_when_the_next_attempt_is_already_lost(setting):
    call = setting.submit()
    setting.clock.advance(POLICY.first_s)
    lose(setting.inner.launched[1])
    reply = setting.inner.launched[0].answer()
    setting.clock.advance(100)
    assert setting.caller.answers_to(call) == [reply]
    assert len(setting.inner.launched) == 2


def test_a_loss_of_an_attempt_that_was_replaced_launches_nothing(setting):
    setting.submit()
    setting.clock.advance(POLICY.first_s)
    lose(setting.inner.launched[0])
    setting.clock.advance(POLICY.backoff_s)
    assert len(setting.inner.launched) == 2
    assert setting.pool.counts.losses == 1


@pytest.mark.parametrize("error", [ArithmeticError("bad rows"), TrainingError("ours"), KeyError("x")])
def test_the_bodys_own_error_fails_the_call_at_once(setting, error):
    call = setting.submit()
    setting.inner.last.failed(error)
    setting.clock.advance(100)
    assert setting.caller.answers == [(call, error)]
    assert setting.caller.answers[0][1] is error
    assert len(setting.inner.launched) == 1


def test_what_the_pool_inside_raises_is_the_calls_error(setting):
    def refuse(launched):
        raise ArithmeticError("cannot be packed")

    setting.inner.at_once = [refuse]
    setting.submit()
    assert [str(error) for error in setting.caller.errors] == ["cannot be packed"]


def test_an_answer_inside_submit_counts(setting):
    setting.inner.at_once = [lose, lambda launched: launched.answer()]
    call = setting.submit()
    assert setting.caller.answers == []
    setting.clock.advance(POLICY.backoff_s)
    assert len(setting.caller.answers_to(call)) == 1
    assert setting.clock.next_s() is None


def test_throttled_calls_do_not_count_as_tries():
    setting = Setting()
    call = setting.submit()
    for _ in range(3 * POLICY.attempts):
        setting.inner.last.failed(Throttled())
        while setting.inner.last.call is call and setting.clock.now() < 30 and setting.clock.step():
            if len(setting.inner.launched) > setting.pool.counts.throttled:
                break
    setting.inner.last.answer()
    assert len(setting.caller.answers_to(call)) == 1
    assert not setting.caller.errors
    assert setting.pool.counts.throttled == 3 * POLICY.attempts


def test_a_throttled_call_waits_for_the_services_retry_delay(setting):
    setting.submit()
    setting.inner.last.failed(Throttled(retry_after_s=7.5))
    setting.clock.advance(7.4)
    assert len(setting.inner.launched) == 1
    setting.clock.advance(0.1)
    assert len(setting.inner.launched) == 2


def test_after_throttling_no_more_are_launched_than_the_service_took(setting):
    for interval in range(10):
        setting.submit(interval)
    for each in setting.inner.launched[4:]:
        each.failed(Throttled())
    setting.inner.launched[0].answer()
    assert len(setting.inner.launched) == 10  # 85 % of the 4 it took are still under way
    setting.inner.launched[1].answer()
    assert [each.call.task.interval for each in setting.inner.launched[10:]] == [4]


def test_calls_that_wait_for_their_launch_are_launched_in_task_order(setting):
    for interval in range(6):
        setting.submit(interval)
    for each in reversed(setting.inner.launched[1:]):
        each.failed(Throttled())
    setting.submit(2, epoch=1)
    assert len(setting.inner.launched) == 6
    order = []
    for _ in range(6):
        setting.inner.last.answer() if order else setting.inner.launched[0].answer()
        order += [each.call.task for each in setting.inner.launched[6 + len(order) :]]
    assert order == sorted(order)
    assert len(order) == 6


def test_with_the_service_down_from_the_first_call_on_every_call_fails_in_time(setting):
    calls = [setting.submit(interval) for interval in range(4)]
    setting.clock.advance(POLICY.down_after_s - 0.01)
    assert setting.caller.answers == []
    setting.clock.advance(0.01)
    assert all(isinstance(error, Unavailable) for error in setting.caller.errors)
    assert sorted(call.task for call, _ in setting.caller.answers) == [call.task for call in calls]
    assert str(setting.caller.errors[0]) == (
        "the service that runs dense tasks is down: nothing has succeeded for 40 s, and the last attempt ended with no "
        "answer within 20 s. Continue when the service is available again."
    )


def test_once_the_service_is_down_later_calls_fail_at_once_and_nothing_is_launched(setting):
    setting.submit()
    setting.clock.advance(POLICY.down_after_s)
    launches = len(setting.inner.launched)
    call = setting.submit(5)
    assert [type(error) for error in setting.caller.answers_to(call)] == [Unavailable]
    setting.inner.launched[0].answer()
    assert len(setting.caller.answers) == 2
    assert len(setting.inner.launched) == launches
    assert setting.clock.next_s() is None


def test_a_service_that_was_never_there_is_given_up_sooner(setting):
    setting.submit()
    setting.inner.last.failed(Unavailable("no function named dorylus-abc"))
    setting.inner.at_once = [lambda launched: launched.failed(Unavailable("no function named dorylus-abc"))] * 100
    setting.clock.advance(POLICY.refused_after_s)
    (error,) = setting.caller.errors
    assert isinstance(error, Unavailable)
    assert str(error).startswith("dense tasks cannot be run: no function named dorylus-abc. Nothing has succeeded for ")


def test_a_service_that_has_worked_before_is_given_time_to_come_back(setting):
    setting.submit()
    setting.inner.last.answer()
    setting.clock.advance(1000)  # no call is submitted meanwhile: this does not count against the service
    call = setting.submit(1)
    refuse = lambda launched: launched.failed(Unavailable("connection refused"))  # noqa: E731
    setting.inner.at_once = [refuse] * 1000
    refuse(setting.inner.last)
    setting.clock.advance(POLICY.down_after_s - 10)
    assert setting.caller.errors == []
    setting.inner.at_once = []
    setting.clock.advance(POLICY.backoff_at_most_s)
    reply = setting.inner.last.answer()
    assert setting.caller.answers_to(call) == [reply]
    assert setting.pool.counts.refused > POLICY.attempts


def test_time_outs_come_from_how_long_such_calls_take(setting):
    for interval in range(12):
        setting.submit(interval, mode=Mode.GRADIENT)
        setting.clock.advance(0.3)
        setting.inner.last.answer()
    setting.submit(50, mode=Mode.GRADIENT)
    setting.clock.advance(1.5)
    assert setting.pool.counts.timeouts == 1
    setting.submit(51, mode=Mode.LOSS)  # another kind: nothing is known
    setting.clock.advance(POLICY.first_s - 0.01)
    assert len([each for each in setting.inner.launched if each.call.mode is Mode.LOSS]) == 1


def test_one_of_a_hundred_that_hangs_is_overdue_once_the_others_have_answered(setting):
    for interval in range(100):
        setting.submit(interval)
    setting.clock.advance(0.2)
    for each in setting.inner.launched[1:]:
        each.answer()
    setting.clock.advance(POLICY.at_least_s)
    assert [each.call.task.interval for each in setting.inner.launched[100:]] == [0]


def test_nothing_is_answered_after_close(setting):
    setting.submit()
    setting.submit(1)
    lose(setting.inner.launched[1])
    setting.pool.close()
    setting.inner.launched[0].answer()
    setting.clock.advance(1000)
    assert setting.caller.answers == []
    assert len(setting.inner.launched) == 2
    assert setting.inner.times_closed == 1


def test_a_call_that_comes_after_close_is_refused(setting):
    setting.pool.close()
    with pytest.raises(TrainingError, match="AV of interval 0 in epoch 1 was submitted to a pool that is closed"):
        setting.submit()


def test_a_pool_may_be_closed_by_an_answer(setting):
    setting.pool.submit(a_call(), lambda reply: setting.pool.close(), pytest.fail)
    setting.submit(1)
    setting.inner.launched[0].answer()
    setting.inner.launched[1].answer()
    assert setting.caller.answers == []


def test_an_error_of_the_reply_callback_is_not_the_calls_error(setting):
    def refuse(reply):
        raise ArithmeticError("not mine")

    setting.pool.submit(a_call(), refuse, pytest.fail)
    with pytest.raises(ArithmeticError):
        setting.inner.last.answer()
    setting.clock.advance(100)
    assert len(setting.inner.launched) == 1


def test_a_call_that_is_over_is_not_kept_alive_by_an_attempt_that_hangs(setting):
    import gc
    import weakref

    class Rows:
        pass

    rows = Rows()
    call = a_call()
    object.__setattr__(call, "inputs", (rows,))
    setting.pool.submit(call, lambda reply: None, pytest.fail)
    setting.clock.advance(POLICY.first_s)
    setting.inner.last.answer()
    gone = weakref.ref(rows)
    for each in setting.inner.launched:
        each.call = None
    del call, rows
    gc.collect()
    assert gone() is None


def test_a_cancelled_call_is_not_tried_again_and_is_cancelled_at_the_pool_inside(setting):
    call = setting.submit()
    setting.pool.cancel([call])
    setting.clock.advance(1000)
    assert len(setting.inner.launched) == 1
    assert setting.inner.cancelled == [call]
    setting.inner.last.answer()
    assert setting.caller.answers == []
    assert setting.pool.counts.duplicates == 1
    assert setting.clock.next_s() is None


def test_a_call_that_is_cancelled_while_it_pauses_after_a_loss_is_not_launched(setting):
    call = setting.submit()
    lose(setting.inner.last)
    setting.pool.cancel([call])
    setting.clock.advance(1000)
    assert len(setting.inner.launched) == 1
    assert setting.caller.answers == []


def test_a_call_that_is_cancelled_makes_room_in_the_window(setting):
    """The service takes two calls at a time and has throttled the third."""
    calls = [setting.submit(interval) for interval in range(3)]
    setting.inner.last.failed(Throttled())
    assert len(setting.inner.launched) == 3
    setting.pool.cancel(calls[:2])
    assert [each.call for each in setting.inner.launched[3:]] == calls[2:]


def test_both_forms_of_a_call_that_was_tried_without_its_graph_are_cancelled(setting):
    call = setting.caller.submit(replace(a_call(mode=Mode.GRADIENT), kept=Kept((), ())))
    setting.clock.advance(POLICY.first_s)
    assert [each.call.kept is None for each in setting.inner.launched] == [False, True]
    setting.pool.cancel([call])
    assert [id(each) for each in setting.inner.cancelled] == [id(each.call) for each in setting.inner.launched]
