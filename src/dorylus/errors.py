"""Every error Dorylus raises on purpose.

    DorylusError
    ├── ConfigError        a setting that cannot be honoured
    ├── GraphError         a graph that breaks a rule: bad edge, bad label, bad feature
    ├── DataError          a file or folder that cannot be read: truncated, unknown, unreachable
    │   └── WriteError     a file that cannot be written: the disk is full, or fails
    ├── CheckpointError    a checkpoint that is missing, damaged or of another model
    └── TrainingError      a run that cannot go on: a task failed
        ├── DeadlineError  something was waited for longer than it may take
        └── DivergedError  weights, optimiser state or outputs are not finite any more

A message says what was asked, what was found, the rule and the cure, in one paragraph. The command line
prints it without a traceback: exit code 2 for what the user can mend by asking differently, 1 for a failure.

``Terminated`` is none of them: like KeyboardInterrupt it is what a signal asked for. It is a SystemExit, so that a
script that lets it pass ends with the exit code that the signal stands for.
"""

import errno
import signal
from collections.abc import Iterable
from difflib import get_close_matches


class DorylusError(Exception):
    """Anything Dorylus refuses or fails to do; ``exit_code`` is what the command line returns."""

    exit_code = 2


class ConfigError(DorylusError):
    """A setting that cannot be honoured."""


class GraphError(DorylusError):
    """A graph that breaks one of the rules of :class:`dorylus.Graph`."""


class DataError(DorylusError):
    """A file, folder or address that cannot be read as what it claims to be."""


class WriteError(DataError):
    """A file that cannot be written because the disk is full or fails: nothing was asked wrongly."""

    exit_code = 1


class CheckpointError(DorylusError):
    """A checkpoint that is missing, damaged or belongs to another model."""


class TrainingError(DorylusError):
    """A run that cannot go on."""

    exit_code = 1


class Terminated(SystemExit):
    """SIGTERM or SIGHUP ended a run, which is saved if it had a folder; ``code`` is 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


class DeadlineError(TrainingError):
    """A run that cannot go on because something did not come in time."""


class DivergedError(TrainingError):
    """A run whose loss, weights, optimiser state or outputs have left the range of float32."""


_MOST_SHOWN = 200
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the system reports where a disk is full or fails."""


def cannot_write(message: str, error: OSError, refused: type[DorylusError] = DataError) -> DorylusError:
    """The error for a file that cannot be written: a failure of the disk, or a place that must be ``refused``."""
    return WriteError(message) if error.errno in DISK_FAULTS else refused(message)


def shown(value: object) -> str:
    """A value as an error shows it: cut where it is long, as what comes from a file may be."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """The sentence for a name nobody knows: lists the known ones and the nearest."""
    names = sorted(known)
    near = get_close_matches(str(name)[:_MOST_SHOWN], names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {shown(name)}: the known ones are {', '.join(names)}.{hint}"
