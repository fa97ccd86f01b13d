"""How one setting of a run is declared and checked: its help text, the values it may take, and the cure for the others.

Packages declare their settings with it, as subclasses of :class:`Settings`; :class:`dorylus.config.RunConfig` composes
them. The command line derives its flags, and ``run.toml`` its ``[training]`` section, from these declarations.
"""

import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import partial
from numbers import Integral, Real
from typing import Any, ClassVar, Self

from dorylus.errors import NOTHING_MEANT, ConfigError, given, short_repr, unknown_name, unknown_value
from dorylus.units import parse_bytes

CheckValue = Callable[[str, object], object]

LISTED_BY = "help(dorylus.train) and dorylus train --help"  # list all settings of a run
MANY = 10**9  # epochs, and all that is counted in them
LARGEST = 1e30  # of what is multiplied with weights: they are float32
MOST_USD = 1e12
YEARS_S = 1e8  # the longest wait: clocks accept little more
MOST_NAME_BYTES, MOST_PATH_BYTES = 255, 4095  # of a path on Linux


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A group of settings, each checked by its own check, then all of them together.

    ``meant``: names that other libraries use, and what to use here, as :func:`~dorylus.errors.unknown_name` has it.
    """

    meant: ClassVar[Mapping[str, str]] = NOTHING_MEANT

    def __post_init__(self) -> None:
        for each in fields(self):
            checked = each.metadata["check"](each.name, getattr(self, each.name))
            object.__setattr__(self, each.name, checked)
        self._check_together()

    def _check_together(self) -> None:
        """Refuses values that do not go together. A group checks its own fields, after ``super()``'s."""

    @classmethod
    def names(cls) -> list[str]:
        """The names of all settings, in order."""
        return [each.name for each in fields(cls)]

    @classmethod
    def of(cls, **settings: Any) -> Self:
        """The settings given, defaults for the others; an unknown name is refused with the nearest known one."""
        known = cls.names()
        for name in settings:
            if name not in known:
                raise ConfigError(unknown_name("setting", name, known, cls.meant, listed_by=LISTED_BY))
        return cls(**settings)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> Self:
        """What :meth:`to_dict` wrote down, checked again."""
        return cls.of(**settings)

    def to_dict(self) -> dict[str, Any]:
        """Every setting as plain JSON data; None stands for "not given" and is left out where a format lacks it."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: dict(value) if isinstance(value, dict) else value for name, value in plain.items()}


class SettingGroup(StrEnum):
    """What a setting is about, in the order in which help lists groups: what is used most comes first."""

    DATA = "Data"
    MODEL = "Model"
    TRAINING = "Training"
    STOPPING = "Stopping"
    EXACTNESS = "Exact or approximate"
    PLACE = "Where it runs"
    FUNCTIONS = "Functions"
    MEMORY = "Memory and savings"
    MONEY = "Money"
    OUTPUT = "Output"


def setting(
    default: Any,
    help: str,
    check: CheckValue,
    *,
    group: SettingGroup,
    choices: Collection[str] = (),
    recut: bool = False,
) -> Any:
    """A dataclass field that carries its help text, its group, its check and, where there are any, its choices.

    ``recut``: it may differ when a run is resumed, as it does not change what the run computes.
    """
    metadata = {"help": help, "group": group, "check": check, "choices": choices, "recut": recut}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=default, metadata=metadata)


def choice(default: str, choices: Collection[str], help: str, *, group: SettingGroup, recut: bool = False) -> Any:
    """A field that takes one of a few names; ``choices`` may grow later."""
    return setting(default, help, one_of(choices), group=group, choices=choices, recut=recut)


def one_of(choices: Collection[str]) -> CheckValue:
    """A check that lets a few names through."""

    def check(name: str, value: object) -> object:
        if value not in tuple(choices):
            raise ConfigError(unknown_value(name, value, choices))
        return value

    return check


def some_of(choices: Collection[str]) -> CheckValue:
    """A check that lets some of a few names through, each once: as a list, or as text with commas between."""

    def check(name: str, value: object) -> object:
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list | tuple) or not all(isinstance(each, str) for each in texts):
            raise ConfigError(f"{given(name, value)}, but {given(name)} takes names: {', '.join(choices)}.")
        names = [each.strip() for text in texts for each in text.split(",") if text]
        return tuple(dict.fromkeys(one_of(choices)(name, each) for each in names))

    return check


def whole(minimum: int, maximum: int = 2**63 - 1) -> CheckValue:
    """A check that accepts whole numbers from ``minimum`` to ``maximum``."""

    def check(name: str, value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, Integral):
            raise ConfigError(
                f"{given(name, value)}, but {given(name)} is a whole number: use {given(name, minimum)} or more."
            )
        number = int(value)
        if number < minimum:
            raise ConfigError(
                f"{given(name, number)}, but {given(name)} is at least {minimum}: use {given(name, minimum)} or more."
            )
        if number > maximum:
            raise ConfigError(
                f"{given(name, number)}, but {given(name)} is at most {maximum}: use {given(name, maximum)} or less."
            )
        return number

    return check


def real(minimum: float, maximum: float, *, above: bool = False, usual: float) -> CheckValue:
    """A check that accepts numbers from ``minimum`` (or strictly ``above`` it) to ``maximum``, both finite.

    ``usual`` is the value that the refusal of another names.
    """
    span = f"{f'above {minimum:g}' if above else f'at least {minimum:g}'} and at most {maximum:g}"

    def check(name: str, value: object) -> object:
        is_number = isinstance(value, Real) and not isinstance(value, bool)
        if not is_number or not minimum <= value <= maximum or (above and value == minimum):  # type: ignore[operator]
            raise ConfigError(
                f"{given(name, value)}, but {given(name)} is a finite number {span}: use {given(name, usual)}, for "
                "instance."
            )
        return float(value)  # type: ignore[arg-type]

    return check


def amount(name: str, value: object) -> object:
    """Accepts an amount of memory, as a number of bytes or as text like 8GiB."""
    parse_bytes(value, name)  # type: ignore[arg-type]
    return str(value)


def optional(check: CheckValue) -> CheckValue:
    """The same check, which also accepts None."""
    return lambda name, value: None if value is None else check(name, value)


def flag(name: str, value: object) -> object:
    """Accepts True and False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{given(name, value)}, but {given(name)} is a switch: use true or false.")
    return value


def text(name: str, value: object) -> object:
    """Accepts non-empty text."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{given(name, value)}, but {given(name)} is a name: give it as text.")
    return value


def folder(name: str, value: object, what: str = "folder") -> object:
    """Accepts a path, and returns it as text."""
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ConfigError(f"{given(name, value)}, but {given(name)} is a {what}: give its path.")
    return check_path(name, os.fsdecode(value))


def check_path(name: str, path: str) -> str:
    """Refuse a path that no file system takes, or that run.toml, which is UTF-8, could not hold."""
    path_given = given(name, path)
    if "\0" in path:
        raise ConfigError(f"{path_given} has a NUL byte, which no path may have: choose another name.")
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{path_given} is no UTF-8, and run files hold text in that form: rename it.") from None
    longest = max(len(part.encode()) for part in path.split("/"))
    if size > MOST_PATH_BYTES or longest > MOST_NAME_BYTES:
        raise ConfigError(
            f"{path_given} has {size:,} bytes, and {longest:,} in one name: a path has at most {MOST_PATH_BYTES:,}, "
            f"and a name in it {MOST_NAME_BYTES}. Choose a shorter one."
        )
    return path


file = partial(folder, what="file")


def options(name: str, value: object) -> object:
    """Accepts a table of plain options, and copies it; tuples become lists, as they come back from a file."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{given(name, value)}, but {given(name)} is a table of option names and values: give one, as "
            f"in {given(name, {'name': 0.5})}."
        )
    return {str(key): _plain(f"{name}[{key!r}]", item) for key, item in value.items()}


def _plain(where: str, value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(where, item) for item in value]
    if isinstance(value, bool | str):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        if not math.isfinite(value):
            raise ConfigError(f"{given(where)} is {value!r}, but an option is a finite number: choose one.")
        return float(value)
    raise ConfigError(
        f"{given(where)} is {short_repr(value)}, but an option is a number, a text, a switch or a list of those, so "
        "that the run can be written down and resumed: leave it out, or pass a callable to dorylus.train."
    )


_decay = real(0, LARGEST, usual=5e-4)


def decay(name: str, value: object) -> object:
    """Accepts one weight decay, or a table from patterns of parameter names to their decay."""
    if isinstance(value, Mapping):
        return {str(pattern): _decay(f"{name}[{pattern!r}]", item) for pattern, item in value.items()}
    return _decay(name, value)
