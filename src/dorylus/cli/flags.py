"""Flags of the command line, derived from the settings' dataclass: a setting added there is a flag here.

A flag that is not given is left out, so that ``run.toml`` or the default decides.
"""

import functools
import inspect
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Annotated, Any, get_args

import typer

from dorylus.errors import ConfigError
from dorylus.training.config import RunConfig

_DECLARED_BY_HAND = {"run_dir"}
_METAVARS = {"memory": "SIZE", "scratch_dir": "FOLDER"}


def with_settings(command: Callable[..., None], only: Collection[str] | None = None) -> Callable[..., None]:
    """The command with a flag for every setting, or for some; those that were given are its argument ``settings``."""
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "settings"]
    wanted = [each for each in fields(RunConfig) if each.name not in _DECLARED_BY_HAND]
    flags = [_flag(each, only is None) for each in wanted if only is None or each.name in only]

    @functools.wraps(command)
    def wrapped(**given: Any) -> None:
        texts = {flag.name: given.pop(flag.name) for flag in flags}
        command(**given, settings=settings_of(texts))

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *flags)]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapped


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that flags gave: tables out of ``KEY=VALUE`` texts, the others as they are."""
    settings = {name: value for name, value in given.items() if value is not None and value != []}
    for name, value in settings.items():
        if isinstance(value, list):
            settings[name] = _decay(value) if name == "weight_decay" else table(name, value)
    return settings


def table(name: str, texts: Sequence[str]) -> dict[str, Any]:
    """A table out of ``KEY=VALUE`` texts."""
    pairs = [text.partition("=") for text in texts]
    for text, (key, equals, _) in zip(texts, pairs, strict=True):
        if not key or not equals:
            raise ConfigError(f"--{dashed(name)} {text}: give it as KEY=VALUE, once for each option.")
    return {key: value_of(value) for key, _, value in pairs}


def value_of(text: str) -> Any:
    """A number, a switch or a list where the text is one in JSON; the text itself otherwise."""
    try:
        return json.loads(text.lower() if text.lower() in ("true", "false") else text)
    except ValueError:
        return text


def dashed(name: str) -> str:
    """A setting's name as its flag has it."""
    return name.replace("_", "-")


def _decay(texts: Sequence[str]) -> float | dict[str, Any]:
    if len(texts) == 1 and "=" not in texts[0]:
        try:
            return float(texts[0])
        except ValueError:
            raise ConfigError(f"--weight-decay {texts[0]}: give a number, or PATTERN=DECAY.") from None
    return table("weight_decay", texts)


def _flag(setting: Field[Any], defaults: bool) -> inspect.Parameter:
    kind = next((each for each in (bool, int, str) if each in _kinds(setting)), float)
    is_table = any(_is_table(each) for each in _kinds(setting))
    name = dashed(setting.name)
    option = typer.Option(
        f"--{name}/--no-{name}" if kind is bool and not is_table else f"--{name}",
        help=setting.metadata["help"] + (_default_text(setting) if defaults else ""),
        metavar=_metavar(setting, kind, is_table),
        show_default=False,
    )
    annotation = list[str] if is_table else kind
    return inspect.Parameter(
        setting.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[annotation | None, option]
    )


def _kinds(setting: Field[Any]) -> tuple[Any, ...]:
    return get_args(setting.type) if not _is_table(setting.type) and get_args(setting.type) else (setting.type,)


def _is_table(kind: Any) -> bool:
    return getattr(kind, "__origin__", None) is dict


def _metavar(setting: Field[Any], kind: type, is_table: bool) -> str | None:
    if is_table:
        return "DECAY" if setting.name == "weight_decay" else "KEY=VALUE"
    if setting.metadata["choices"]:
        return "|".join(setting.metadata["choices"])
    return None if kind is bool else _METAVARS.get(setting.name, {int: "N", float: "X", str: "NAME"}[kind])


def _default_text(setting: Field[Any]) -> str:
    if setting.default is MISSING or setting.default is None:
        return ""
    default = str(setting.default)
    return f" [{default.lower() if isinstance(setting.default, bool) else default}]"
