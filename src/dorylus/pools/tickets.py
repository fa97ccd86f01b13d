"""The records :class:`Attempts` keeps: calls, their attempts, what to do next, and counts."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dorylus.saga import Call, Reply


@dataclass
class RelaunchCounts:
    """What happened so far.

    ``relaunches``: launches of calls that had been launched before. ``refused``: attempts that the service would not
    take. ``duplicates``: what attempts reported when nobody needed it any more.
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
    """One submission of a call. The same task may be submitted twice at a time: its number tells them apart."""

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
    seen: str = ""  # the last thing that went wrong
    submitted: Call = field(init=False)

    def __post_init__(self) -> None:
        self.submitted = self.call


@dataclass(eq=False)
class Attempt:
    """One launch of a call.

    ``ticket`` goes when the attempt reports or the call is closed: one that never reports must not keep it alive.
    """

    ticket: Ticket | None
    kind: tuple[int, object]
    launched_s: float
    number: int
    taken: bool = False  # by the pool: only from then on it is known how long it takes
    reported: bool = False
    cancelled: bool = False


@dataclass(frozen=True)
class Launch:
    """Hand the call to the pool; tell :meth:`Attempts.taken` when that has returned."""

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
    """Have the pool let go of these calls."""

    calls: list[Call]


Action = Launch | Complete | Fail | Cancel


def name_of(call: Call) -> str:
    """A call in the user's words."""
    return f"{call.task.kind} of interval {call.task.interval} in epoch {call.task.epoch + 1}"
