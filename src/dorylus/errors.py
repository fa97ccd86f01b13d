"""Every error Dorylus raises on purpose.

    DorylusError
    ├── ConfigError        a setting that cannot be honoured
    ├── GraphError         a graph that breaks a rule: bad edge, bad label, bad feature
    ├── DataError          a file or folder that cannot be read: truncated, unknown, unreachable
    │   └── WriteError     a file that cannot be written: the disk is full, or fails
    ├── CheckpointError    a checkpoint that is missing, damaged or of another model
    └── TrainingError      a run that cannot continue: a task failed
        ├── DeadlineError  a wait exceeded its deadline
        └── DivergedError  weights, optimiser state or outputs are not finite

A message states the request, what was found, the rule and the cure, in one paragraph. The command line
prints it without a traceback: exit code 2 where the user can cure it by another setting or input, 1 for a failure.

A message names a setting by :func:`given`, and shows it as it was given: ``memory = '8GiB'`` if it came from a run.toml
(:func:`settings_of_file`), else ``memory='8GiB'`` in Python and ``--memory 8GiB`` on the command line.

``Terminated`` is none of them: like KeyboardInterrupt it comes from a signal. It is a SystemExit, so that a
script that lets it pass ends with the exit code that the signal stands for.
"""

import ast
import errno
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from os import PathLike
from typing import TypeAlias

Speller: TypeAlias = Callable[[str, str | None], str | None]
"""Spells a setting: its name, and its value as Python writes it; no value where only the name is meant.

None where another speller is to spell it.
"""

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
    if value is None:
        return name
    if value.startswith("{"):
        with suppress(ValueError, SyntaxError):  # shortened, or of a kind that TOML has not
            pairs = ast.literal_eval(value).items()
            return f"{name} = {{{', '.join(f'{key!r} = {each!r}' for key, each in pairs)}}}"
    return f"{name} = {value.lower() if value in ('True', 'False') else value}"


def spelled(message: str, spell: Speller = keyword) -> str:
    """A message with its settings spelled for one face; those that ``spell`` leaves to another stay marked."""
    text, *rest = message.split(_NAME)
    for each in rest:
        setting, _, following = each.partition(_END)
        name, has_value, value = setting.partition(_VALUE)
        own = spell(name, value if has_value else None)
        text += (f"{_NAME}{setting}{_END}" if own is None else own) + following
    return text


@contextmanager
def settings_of_file(file: str | PathLike[str], names: Collection[str]) -> Iterator[None]:
    """In an error raised within, the settings of these names are spelled as lines of the TOML file that has them.

    The message begins with the file if the error is about one of them.
    """
    found = []

    def in_file(name: str, value: str | None) -> str | None:
        if name.partition("[")[0] not in names:  # of a table: weight_decay['*.bias']
            return None
        found.append(name)
        return toml_key(name, value)

    try:
        yield
    except DorylusError as error:
        error.message = spelled(error.message, in_file)
        if error.setting in found:
            error.message = f"{file}: {error.message}"
        raise


class DorylusError(Exception):
    """The base of all errors of Dorylus; ``exit_code`` is what the command line returns.

    ``message`` has the settings as :func:`given` marks them; ``str()`` spells them as arguments in Python.
    ``setting`` is the one that the error is about, the first that its message names.
    """

    exit_code = 2

    def __init__(self, message: str = "") -> None:
        super().__init__(message)
        self.message = message
        _, _, marked = message.partition(_NAME)
        self.setting: str | None = marked.partition(_END)[0].partition(_VALUE)[0] or None

    def __str__(self) -> str:
        return spelled(self.message)


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
    """A run that cannot continue."""

    exit_code = 1


class Terminated(SystemExit):
    """SIGTERM or SIGHUP ended a run, which is saved if it had a folder; ``code`` is 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number)


class DeadlineError(TrainingError):
    """A run that cannot continue because a wait exceeded its deadline."""


class DivergedError(TrainingError):
    """A run whose loss, weights, optimiser state or outputs have left the range of float32."""


_MOST_CHARACTERS = 200
NOTHING_MEANT: Mapping[str, str] = {}
DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""The errors that the system reports where a disk is full or fails."""


def cannot_write(message: str, error: OSError, refused: type[DorylusError] = DataError) -> DorylusError:
    """The error for a file that cannot be written: a failure of the disk, or a place that must be ``refused``."""
    return WriteError(message) if error.errno in DISK_FAULTS else refused(message)


def short_repr(value: object) -> str:
    """A value as errors print it: shortened where it is long, as a value from a file may be."""
    text = repr(value)
    if "\n" in text:
        text = " ".join(text.split())
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."


_PLAIN_KINDS = {"ndarray": "an array", "str": "text", "PosixPath": "a path", "Recipe": "a model without widths"}


def kind_of(value: object) -> str:
    """What a value of the wrong kind is: None, a list, the class GCN, the function gcn."""
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    name = type(value).__name__
    return _PLAIN_KINDS.get(name, f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}")


def unknown_name(
    what: str, name: object, known: Collection[str], meant: Mapping[str, str] = NOTHING_MEANT, listed_by: str = ""
) -> str:
    """The sentence for an unknown name: it lists the known ones and the nearest.

    ``listed_by``: what lists all known ones, where they are too many for a sentence.
    ``meant``: for names of other libraries, the known name, or a clause behind the name: why there is none, what to do.
    """
    other = meant.get(str(name), "")
    if other in known:
        return f"unknown {what} {short_repr(name)}: it is called {given(other)} here, so use that name."
    if " " in other:
        return f"{name} {other}"
    if listed_by:
        near = " or ".join(map(repr, _near(name, known)))
        return f"unknown {what} {short_repr(name)}{f': did you mean {near}?' if near else '.'} {listed_by} list all."
    return f"unknown {what} {short_repr(name)}: {_known_names(name, known)}"


def unknown_value(setting: str, value: object, known: Iterable[str]) -> str:
    """The sentence for a setting whose value is an unknown name."""
    return f"{given(setting, value)} is unknown: {_known_names(value, known)}"


def _known_names(name: object, known: Iterable[str]) -> str:
    near = _near(name, known)
    return f"the known ones are {', '.join(sorted(known))}.{f' Did you mean {near[0]!r}?' if near else ''}"


def _near(name: object, known: Iterable[str]) -> list[str]:
    """Up to three known names that are like this one, the nearest first."""
    return get_close_matches(str(name)[:_MOST_CHARACTERS], sorted(known), n=3)
