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

A message names a setting by :func:`given`. The face that shows the message chooses the spelling: ``memory='8GiB'`` in
Python, ``--memory 8GiB`` on the command line, ``memory = '8GiB'`` in a run.toml.

``Terminated`` is none of them: like KeyboardInterrupt it comes from a signal. It is a SystemExit, so that a
script that lets it pass ends with the exit code that the signal stands for.
"""

import errno
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import TypeAlias

Speller: TypeAlias = Callable[[str, str | None], str]
"""Spells a setting: its name, and its value as Python writes it; no value where only the name is meant."""

_NAME, _VALUE, _END = "\x02", "\x1f", "\x03"  # around a setting in a message; no text that people write has them
_NO_VALUE = object()


def given(name: str, value: object = _NO_VALUE) -> str:
    """A setting within a message, with the value it has or should have; ``...`` stands for a value of any kind."""
    if value is _NO_VALUE:
        return f"{_NAME}{name}{_END}"
    return f"{_NAME}{name}{_VALUE}{'' if value is ... else short_repr(value)}{_END}"


def keyword(name: str, value: str | None) -> str:
    """A setting as an argument in Python."""
    return name if value is None else f"{name}={value}"


def toml_key(name: str, value: str | None) -> str:
    """A setting as a line of a run.toml."""
    return name if value is None else f"{name} = {value.lower() if value in ('True', 'False') else value}"


def spelled(message: str, spell: Speller = keyword) -> str:
    """A message with its settings spelled for one face."""
    text, *rest = message.split(_NAME)
    for each in rest:
        setting, _, following = each.partition(_END)
        name, has_value, value = setting.partition(_VALUE)
        text += spell(name, value if has_value else None) + following
    return text


@contextmanager
def spelling(spell: Speller) -> Iterator[None]:
    """Spells the settings of an error raised within, unless the code that raised it has chosen a spelling."""
    try:
        yield
    except DorylusError as error:
        error.spell = error.spell or spell
        raise


class DorylusError(Exception):
    """Anything Dorylus refuses or fails to do; ``exit_code`` is what the command line returns.

    ``message`` has the settings as :func:`given` marks them; ``str()`` spells them as arguments in Python.
    """

    exit_code = 2
    spell: Speller | None = None

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message

    @property
    def setting(self) -> str | None:
        """The setting that the error is about, the first that its message names."""
        _, _, marked = self.message.partition(_NAME)
        return marked.partition(_END)[0].partition(_VALUE)[0] or None

    def __str__(self) -> str:
        return spelled(self.message, self.spell or keyword)


class ConfigError(DorylusError):
    """A setting that cannot be honoured."""


class GraphError(DorylusError):
    """A graph that breaks one of the rules of :class:`dorylus.Graph`."""


class DataError(DorylusError):
    """A file, folder or address that cannot be read as what it claims to be."""


class WriteError(DataError):
    """A file that cannot be written because the disk is full or fails: no setting is wrong."""

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


_MOST_CHARACTERS = 200
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the system reports where a disk is full or fails."""


def cannot_write(message: str, error: OSError, refused: type[DorylusError] = DataError) -> DorylusError:
    """The error for a file that cannot be written: a failure of the disk, or a place that must be ``refused``."""
    return WriteError(message) if error.errno in DISK_FAULTS else refused(message)


def short_repr(value: object) -> str:
    """A value as errors print it: shortened where it is long, as a value from a file may be."""
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """The sentence for an unknown name: it lists the known ones and the nearest."""
    names = sorted(known)
    near = get_close_matches(str(name)[:_MOST_CHARACTERS], names, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"unknown {what} {short_repr(name)}: the known ones are {', '.join(names)}.{hint}"
