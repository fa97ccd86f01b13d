"""What the options of a builder may be: they come from Python, a file or a command line."""

from collections.abc import Callable, Mapping
from numbers import Integral, Real
from typing import Any

from dorylus.errors import ConfigError


def _is_whole(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_widths(value: object) -> bool:
    return _is_whole(value) or (isinstance(value, list | tuple) and all(map(_is_whole, value)))


MOST_LAYERS = 100  # how deep a row is needed is kept in a byte
MOST_COLUMNS = 1 << 24  # of a row, in a hidden layer
MOST_HEADS = 1 << 12
_MOST: Mapping[str, int] = {
    "hidden": MOST_COLUMNS, "num_layers": MOST_LAYERS, "heads": MOST_HEADS, "output_heads": MOST_HEADS,
}  # fmt: skip

Kind = tuple[str, Callable[[Any], bool]]
WHOLE: Kind = ("a whole number", _is_whole)
LARGEST = 1e30  # of any number that is no count: more cannot be reckoned with in float32
_NUMBER: Kind = ("a number", _is_number)
_OPTIONAL: Kind = ("a number, or left out", lambda value: value is None or _is_number(value))
_SWITCH: Kind = ("true or false", lambda value: isinstance(value, bool))
_NAME: Kind = ("a name", lambda value: isinstance(value, str))
_KINDS: Mapping[str, Kind] = {
    "hidden": ("a whole number, or a list of them", _is_widths),
    "num_layers": ("a whole number, or left out", lambda value: value is None or _is_whole(value)),
    "heads": WHOLE, "output_heads": WHOLE,
    "dropout": _NUMBER, "input_dropout": _OPTIONAL, "attention_dropout": _OPTIONAL, "slope": _NUMBER, "eps": _NUMBER,
    "residual": _SWITCH, "layer_norm": _SWITCH, "train_eps": _SWITCH,
    "activation": _NAME, "aggregator": _NAME,
}  # fmt: skip


def checked(options: dict[str, Any], **kinds: Kind) -> dict[str, Any]:
    """The options, each of the kind it must be: they may come from a file or a command line."""
    for name, value in options.items():
        kind, fits = kinds.get(name, _KINDS[name])
        if not fits(value):
            raise ConfigError(f"{name}={value!r}, but {name} is {kind}: give it as that.")
        if name in _MOST:
            _check_size(name, value, _MOST[name])
        elif _is_number(value) and not abs(value) <= LARGEST:
            raise ConfigError(
                f"{name}={value!r}, but {name} is a finite number of at most {LARGEST:g}: choose another."
            )
    return options


def _check_size(name: str, value: Any, most: int) -> None:
    for each in value if isinstance(value, list | tuple) else (value,):
        if each is not None and each > most:
            raise ConfigError(f"{name}={each}, but {name} is at most {most:,}: use a smaller one.")
