"""What can go wrong with whatever runs dense tasks, as opposed to with the tasks.

    PoolFault(TrainingError)
    ├── Throttled      the service takes no more calls for now: the same call, later and more slowly
    ├── Lost           a call got no result (crash, time-out, broken connection): it may be tried again
    ├── Unavailable    the service is down or refuses us (credentials, no such function)
    └── Exhausted      a call was tried as often as it may be: the run cannot go on

A pool hands the first three to ``failed``; :class:`Relaunching` acts on them, and gives up with
``Unavailable`` or ``Exhausted``. Any other error is the body's own, and never tried again.
"""

from dorylus.errors import TrainingError


class PoolFault(TrainingError):  # noqa: N818 (faults are what services have; errors are what bodies raise)
    """A fault of whatever runs dense tasks."""


class Throttled(PoolFault):
    """The service takes no more calls for now; ``retry_after_s`` is how long it asks to be left alone, if it says."""

    def __init__(
        self, retry_after_s: float | None = None, message: str = "the service takes no more calls for now."
    ) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Lost(PoolFault):
    """A call got no result, and nobody knows whether it ran: it may be tried again."""


class Unavailable(PoolFault):
    """The service is down or refuses us."""


class Exhausted(PoolFault):
    """A call was tried as often as it may be."""
