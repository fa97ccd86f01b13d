"""The state of each call: launched, retried, answered or failed. Pure: events and the time in, actions out.

A call is open from its submission until it is answered or fails, which happens once. An open call has at most one
*current* attempt. An overdue attempt is not stopped, but another becomes current; the first answer of any attempt
counts. Later reports of attempts are counted and dropped.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from random import Random

from dorylus.pools.pacing import Circuit, Durations, LaunchQueue, Overdue, Pace, Policy
from dorylus.pools.pool import Exhausted, Lost, Throttled, Unavailable, name_of
from dorylus.saga import Call, Kept, Reply


@dataclass
class RelaunchCounts:
    """Counts since the pool was made.

    ``relaunches``: launches of calls that had been launched before. ``refused``: attempts that the service did not
    accept. ``duplicates``: reports of attempts after their call was answered.
    """

    calls: int = 0
    launches: int = 0
    relaunches: int = 0
    timeouts: int = 0
    losses: int = 0
    throttled: int = 0
    refused: int = 0
    duplicates: int = 0


@dataclass(eq=False)
class Ticket:
    """One submission of a call. The same task may be submitted twice at the same time; each submission has a number."""

    number: int
    call: Call  # as it is launched next
    done: Callable[[Reply], None]
    failed: Callable[[BaseException], None]
    is_open: bool = True
    launches: int = 0
    tries: int = 0  # launches that count against the policy's
    timeouts: int = 0
    losses: int = 0
    refusals: int = 0
    current: "Attempt | None" = None
    attempts: "list[Attempt]" = field(default_factory=list)  # that have not reported
    seen: str = ""  # the last fault
    submitted: Call = field(init=False)

    def __post_init__(self) -> None:
        self.submitted = self.call


@dataclass(eq=False)
class Attempt:
    """One launch of a call.

    ``ticket`` is None once the attempt has reported or the call is closed: an attempt that never reports must not hold
    memory.
    """

    ticket: Ticket | None
    kind: tuple[int, object]
    launched_s: float
    number: int
    accepted: bool = False  # by the pool: its duration is measured from then on
    reported: bool = False
    cancelled: bool = False


@dataclass(frozen=True)
class Launch:
    """Submit the call to the pool; call :meth:`Attempts.accepted` when that has returned."""

    attempt: Attempt
    call: Call


@dataclass(frozen=True)
class Complete:
    """Call ``done``."""

    ticket: Ticket
    reply: Reply


@dataclass(frozen=True)
class Fail:
    """Call ``failed``."""

    ticket: Ticket
    error: BaseException


@dataclass(frozen=True)
class Cancel:
    """Have the pool cancel these calls."""

    calls: list[Call]


Action = Launch | Complete | Fail | Cancel


class Attempts:
    """All open calls and their attempts. Every method returns the actions to carry out now."""

    def __init__(self, policy: Policy, random: Random) -> None:
        self._policy, self._random = policy, random
        self._durations, self._circuit = Durations(policy), Circuit(policy)
        self._pace = Pace(policy)
        self._queue = LaunchQueue(self._pace)
        self._overdue = Overdue(self._durations)
        self._open: dict[int, Ticket] = {}
        self._down: str | None = None
        self._counts = RelaunchCounts()

    @property
    def counts(self) -> RelaunchCounts:
        """A copy of the counts."""
        return replace(self._counts)

    def wake_s(self) -> float:
        """When to call :meth:`wake` unless another event comes first; infinite if no timer is needed."""
        return min(self._overdue.next_s(), self._circuit.opens_s, self._queue.next_s())

    def submit(
        self, call: Call, done: Callable[[Reply], None], failed: Callable[[BaseException], None], now_s: float
    ) -> list[Action]:
        """Take a call."""
        ticket = Ticket(self._counts.calls, call, done, failed)
        self._counts.calls += 1
        if self._down is not None:
            ticket.is_open = False
            return [Fail(ticket, Unavailable(self._down))]
        self._open[ticket.number] = ticket
        self._queue.add(ticket, now_s)
        return self._launch_due([], now_s)

    def accepted(self, attempt: Attempt, now_s: float) -> list[Action]:
        """The pool has accepted an attempt: its time-out counts from now."""
        ticket = attempt.ticket
        if ticket is None:
            return []
        attempt.launched_s, attempt.accepted = now_s, True
        self._overdue.watch(attempt, attempt.kind, ticket.timeouts, now_s)
        return self._launch_due([], now_s)

    def answered(self, attempt: Attempt, reply: Reply, now_s: float) -> list[Action]:
        """An attempt has a result: the first of a call counts."""
        self._circuit.succeeded(now_s)
        self._pace.succeeded()
        if attempt.accepted and not attempt.reported:
            self._durations.observe(attempt.kind, now_s - attempt.launched_s)
        ticket = self._reported(attempt)
        if ticket is None:
            self._counts.duplicates += 1
            return self._launch_due([], now_s)
        self._close(ticket)
        return self._launch_due([Complete(ticket, reply)], now_s)

    def faulted(self, attempt: Attempt, error: BaseException, now_s: float) -> list[Action]:
        """An attempt has failed."""
        ticket = self._reported(attempt)
        if ticket is None:
            self._counts.duplicates += 1
            return self._launch_due([], now_s)
        current = self._end(ticket, attempt)
        if isinstance(error, Throttled | Lost | Unavailable):
            return self._launch_due(self._handle_fault(ticket, attempt, error, current, now_s), now_s)
        self._close(ticket)
        return self._launch_due([Fail(ticket, error)], now_s)

    def wake(self, now_s: float) -> list[Action]:
        """Time has passed."""
        actions: list[Action] = []
        for attempt in self._overdue.take(now_s):
            ticket = attempt.ticket
            assert ticket is not None
            self._counts.timeouts += 1
            ticket.timeouts += 1
            self._end(ticket, attempt)
            ticket.seen = f"no answer within {now_s - attempt.launched_s:.3g} s"
            self._circuit.failed(attempt.launched_s, now_s, TimeoutError(ticket.seen))
            actions += self._retry(ticket, now_s)
        return self._launch_due(actions, now_s)

    def cancel(self, calls: Collection[Call], now_s: float) -> list[Action]:
        """Close these calls: they are not launched again, and reports of their attempts are dropped."""
        ids = {id(call) for call in calls}
        launched: list[Call] = []
        for ticket in [each for each in self._open.values() if id(each.submitted) in ids]:
            if ticket.launches:
                launched += [ticket.submitted] if ticket.call is ticket.submitted else [ticket.submitted, ticket.call]
            for attempt in ticket.attempts:
                attempt.cancelled = True
            self._close(ticket)
        return self._launch_due([Cancel(launched)], now_s)

    def close(self) -> None:
        """Close all calls: later reports are dropped."""
        for ticket in list(self._open.values()):
            self._close(ticket)
        self._queue.clear()

    def _reported(self, attempt: Attempt) -> Ticket | None:
        """The ticket of an attempt that reports; None if its call is closed, or the attempt has reported before."""
        ticket, attempt.ticket, attempt.reported = attempt.ticket, None, True
        self._overdue.forget(attempt)
        if ticket is not None:
            ticket.attempts.remove(attempt)
        return ticket

    def _handle_fault(
        self, ticket: Ticket, attempt: Attempt, fault: Throttled | Lost | Unavailable, current: bool, now_s: float
    ) -> list[Action]:
        """The actions after a fault of the service. A fault of a replaced attempt changes nothing for its call."""
        self._circuit.failed(attempt.launched_s, now_s, fault)
        ticket.seen = f"{type(fault).__name__}: {fault}"
        if isinstance(fault, Throttled):
            self._counts.throttled += 1
            self._pace.throttled(attempt.number, now_s, fault.retry_after_s)
        elif isinstance(fault, Lost):
            self._counts.losses += 1
            ticket.losses += 1
        else:
            self._counts.refused += 1
            ticket.refusals += 1
        if not isinstance(fault, Lost):
            ticket.tries -= 1
        if not current:
            return []
        return self._retry(ticket, now_s + (0.0 if isinstance(fault, Throttled) else self._pause_s(ticket)))

    def _end(self, ticket: Ticket, attempt: Attempt | None) -> bool:
        """Stop waiting for an attempt; returns whether it was the current attempt of its call."""
        if attempt is None or ticket.current is not attempt:
            return False
        ticket.current = None
        self._pace.ended()
        return True

    def _pause_s(self, ticket: Ticket) -> float:
        """A random pause below a limit that doubles each time, so that calls lost together do not retry together."""
        doubled = self._policy.backoff_s * 2.0 ** min(ticket.losses + ticket.refusals - 1, 64)
        return self._random.uniform(0.0, min(doubled, self._policy.backoff_at_most_s))

    def _retry(self, ticket: Ticket, when_s: float) -> list[Action]:
        if ticket.tries < self._policy.attempts:
            self._queue.add(ticket, when_s)
            return []
        self._close(ticket)
        return [Fail(ticket, Exhausted(_tried(ticket)))]

    def _launch_due(self, actions: list[Action], now_s: float) -> list[Action]:
        """The end of every event: fail all calls if the service is down, else launch the calls that are due."""
        if not self._open:
            self._circuit.rest()
        elif self._circuit.opens_s <= now_s:
            return actions + self._fail_all(now_s)
        while (ticket := self._queue.take(now_s)) is not None:
            actions.append(self._launch(ticket, now_s))
        return actions

    def _launch(self, ticket: Ticket, now_s: float) -> Launch:
        if ticket.launches and isinstance(ticket.call.kept, Kept):
            ticket.call = replace(ticket.call, kept=None)  # an autograd graph can be used once: it is recomputed
        step, mode = ticket.call.task.step, ticket.call.mode
        attempt = Attempt(ticket, (step, mode), now_s, self._pace.launched())
        self._counts.launches += 1
        self._counts.relaunches += ticket.launches > 0
        ticket.launches += 1
        ticket.tries += 1
        ticket.current = attempt
        ticket.attempts.append(attempt)
        return Launch(attempt, ticket.call)

    def _fail_all(self, now_s: float) -> list[Action]:
        """The service is down: every open call fails, and so does every later one."""
        self._down = _out_of_service(self._circuit, now_s)
        self._circuit.rest()
        tickets = list(self._open.values())
        for ticket in tickets:
            self._close(ticket)
        self._queue.clear()
        return [Fail(ticket, Unavailable(self._down)) for ticket in tickets]

    def _close(self, ticket: Ticket) -> None:
        """The call is answered or has failed: drop its later reports."""
        del self._open[ticket.number]
        ticket.is_open = False
        self._end(ticket, ticket.current)
        for attempt in ticket.attempts:
            attempt.ticket = None
            self._overdue.forget(attempt)
        ticket.attempts.clear()


def _tried(ticket: Ticket) -> str:
    return (
        f"{name_of(ticket.call)} was tried {ticket.tries} times, the most that the policy allows, without a result: "
        f"{ticket.timeouts} time-outs and {ticket.losses} losses, the last one: {ticket.seen.rstrip('.')}. If other "
        "calls succeed, configure functions with more memory or use more intervals; if none does, check the service. "
        "Then try again."
    )


def _out_of_service(circuit: Circuit, now_s: float) -> str:
    seen, lasted = circuit.last_failure, f"{circuit.trouble_s(now_s):.3g} s"
    if isinstance(seen, Unavailable):  # its message names the fault and the cure, which is not to wait
        return (
            f"dense tasks cannot be run: {str(seen).rstrip('.')}. Nothing has succeeded for {lasted}; continue "
            "when the cause is removed."
        )
    cause = str(seen) if isinstance(seen, TimeoutError) else f"{type(seen).__name__}: {seen}"
    return (
        f"the service that runs dense tasks is down: nothing has succeeded for {lasted}, and "
        f"the last attempt ended with {cause.rstrip('.')}. Continue when the service is available again."
    )
