"""Wrappers with one deliberate bug each."""

from dorylus.pools.attempts import Attempts, Cancel, Complete
from dorylus.pools.limited import LimitedPool


class DuplicatesAreNotDropped(Attempts):
    """Every answer is passed on, not the first one only."""

    def __init__(self, *args):
        super().__init__(*args)
        self._tickets = {}

    def _launch(self, ticket, now_s):
        launch = super()._launch(ticket, now_s)
        self._tickets[launch.attempt] = ticket
        return launch

    def answered(self, attempt, reply, now_s):
        actions = super().answered(attempt, reply, now_s)
        return actions or [Complete(self._tickets[attempt], reply)]


class LateAnswersAreDropped(Attempts):
    """The answer of an overdue attempt is dropped although its call is open."""

    def answered(self, attempt, reply, now_s):
        if attempt.ticket is not None and attempt.ticket.current is not attempt:
            self._counts.duplicates += 1
            return []
        return super().answered(attempt, reply, now_s)


class TheCapIsOffByOne(Attempts):
    """A call gets one attempt more than the policy allows."""

    def _retry(self, ticket, when_s):
        ticket.tries -= 1
        actions = super()._retry(ticket, when_s)
        ticket.tries += 1
        return actions


class ThrottlingCountsAgainstTheCap(Attempts):
    """A call that is throttled often is given up."""

    def _launch(self, ticket, now_s):
        ticket.tries = ticket.launches
        return super()._launch(ticket, now_s)


class ARelaunchIsForgotten(Attempts):
    """The second relaunch of a call never happens."""

    def _retry(self, ticket, when_s):
        if ticket.launches == 2:
            return []
        return super()._retry(ticket, when_s)


class TimeOutsAreNotWatched(Attempts):
    """A call that hangs is never launched again."""

    def accepted(self, attempt, now_s):
        return []


class EveryTaskHasOneTicket(Attempts):
    """Two submissions of one task share one ticket."""

    def submit(self, call, done, failed, now_s):
        actions = super().submit(call, done, failed, now_s)
        for number, ticket in list(self._open.items()):
            if ticket.call is not call and ticket.call.task == call.task:
                self._close(self._open[number])
        return actions


class TheServiceIsNeverDown(Attempts):
    """Failures never open the circuit."""

    def __init__(self, *args):
        super().__init__(*args)
        self._circuit.failed = lambda *args: None


class TheServiceIsDownTooSoon(Attempts):
    """A single failure opens the circuit."""

    def __init__(self, *args):
        super().__init__(*args)
        failed = self._circuit.failed
        self._circuit.failed = lambda launched_s, now_s, failure: failed(-1000.0, now_s, failure)


class TheWindowNeverOpensAgain(Attempts):
    """After throttling, attempts that end do not make room for others."""

    def __init__(self, *args):
        super().__init__(*args)
        self._pace.ended = lambda: None


class LaunchesAreNotCounted(Attempts):
    """A relaunch does not count as a launch."""

    def _launch(self, ticket, now_s):
        launch = super()._launch(ticket, now_s)
        self._counts.launches -= ticket.launches > 1
        return launch


class TheLimitIsOffByOne(LimitedPool):
    """One call more is under way than the limit allows."""

    def _launch_ready(self):
        self._queue.limit += 1
        super()._launch_ready()
        self._queue.limit -= 1


class NoCallStartsAfterAFailure(LimitedPool):
    """A call that fails does not make room for the next."""

    def _failed(self, place, error):
        with self._lock:
            known = self._queue.remove(place, self._clock.now())
        if known:
            self._callbacks.run([lambda: place.failed(error)])


class AnAnswerTwiceMakesRoomTwice(LimitedPool):
    """A duplicate answer of the pool inside starts a second call."""

    def _done(self, place, reply):
        super()._done(place, reply)
        with self._lock:
            others = [each for each in self._queue._under_way if place not in self._queue._under_way]
            self._queue._under_way -= set(others[:1]) if getattr(place, "over", False) else set()
            place.over = True
        self._launch_ready()


class FirstComeFirstServed(LimitedPool):
    """Waiting calls start in arrival order, not in task order."""

    def __init__(self, inner, limit, *args):
        super().__init__(inner, limit, *args)
        add = self._queue.add

        def in_order(call, done, failed, now_s):
            add(call, done, failed, now_s)
            self._queue._waiting[:] = sorted(self._queue._waiting, key=lambda each: each[1])

        self._queue.add = in_order


class AnswersComeAfterClose(LimitedPool):
    """Calls that are under way at close are still answered."""

    def close(self):
        self._closed = True
        self._inner.close()


class CancelledCallsAreTriedAgain(Attempts):
    """A cancelled call is not answered, but its attempts go on."""

    def cancel(self, calls, now_s):
        tickets = [each for each in self._open.values() if any(each.submitted is call for call in calls)]
        for ticket in tickets:
            ticket.done = ticket.failed = lambda answer: None
        return [Cancel([ticket.submitted for ticket in tickets if ticket.launches])]


class CancelledCallsKeepTheirPlaces(LimitedPool):
    """A cancelled call makes no room for the next."""

    def cancel(self, calls):
        with self._lock:
            under_way = [place.call for place in self._queue._under_way if any(place.call is call for call in calls)]
            kept = set(self._queue._under_way)
            self._queue.drop(calls, self._clock.now())
            self._queue._under_way |= kept
        self._inner.cancel(under_way)
