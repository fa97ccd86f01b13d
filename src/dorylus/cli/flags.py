"""Flags and arguments that several commands have, how help lists them, and how errors spell them.

The flags of settings derive from the fields of :class:`RunConfig`; one that is not given is left out, so that
``run.toml`` or the default decides. Graph and model become the sections ``[graph]`` and ``[model]`` of ``run.toml``. A
place to write to is checked before any work.
"""

import ast
import functools
import inspect
import json
import os
import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from dorylus.config import RunConfig
from dorylus.errors import ConfigError
from dorylus.runs import RunSpec
from dorylus.settings import SettingGroup

if TYPE_CHECKING:
    from dorylus.graph import Graph

_DECLARED_BY_HAND = {"run_dir"}
MODEL_OPTIONS = {  # those without a flag of their own
    "activation", "aggregator", "attention_dropout", "eps", "input_dropout", "layer_norm", "output_heads", "residual",
    "slope", "train_eps",
}  # fmt: skip
_METAVARS = {"memory": "SIZE", "scratch_dir": "FOLDER"}
LONGEST_COLUMN = 23  # of the values of a setting
LONGEST_NAME = 230  # of the 255 that file systems have
_OTHER_FLAGS: Mapping[tuple[str, str | None], str] = {  # of switches whose default in Python is True
    ("undirected", "False"): "--directed",
    ("drop_duplicates", "False"): "--keep-duplicates",
}


def with_settings(command: Callable[..., None], only: Collection[str] | None = None) -> Callable[..., None]:
    """The command with a flag for every setting, or for ``only`` some; it gets those given as ``settings``."""
    own = [each for each in inspect.signature(command).parameters.values() if each.name != "settings"]
    listed = [each for each in fields(RunConfig) if each.name not in _DECLARED_BY_HAND]
    flags = [_flag(each, only is None) for each in listed if only is None or each.name in only]

    @functools.wraps(command)
    def wrapped(**arguments: Any) -> None:
        texts = {flag.name: arguments.pop(flag.name) for flag in flags}
        command(**arguments, settings=settings_of(texts))

    parameters = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *flags)]
    wrapped.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapped.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapped


def settings_of(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that flags gave: tables out of ``KEY=VALUE`` texts, the others as they are."""
    settings = {name: value for name, value in given.items() if value is not None and value != []}
    for name, value in settings.items():
        if isinstance(value, list) and name != "log_to":
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


def spell_flag(name: str, value: str | None) -> str:
    """A setting of an error as the command line has it: ``--memory 8GiB``, ``--no-stream``."""
    if (name, value) in _OTHER_FLAGS:
        return _OTHER_FLAGS[name, value]
    name, _, key = name.partition("[")  # of an entry of a table: weight_decay['*.bias']
    flag = f"--{dashed(name)}"
    if name in MODEL_OPTIONS:
        return f"--model-option {name}" + ("" if value is None else f"={_word(value)}")
    if value == "True":
        return flag
    if value == "False":
        return f"--no-{dashed(name)}"
    words = [_word(each) for each in (key[:-1], value or "") if each]
    return " ".join([flag, "=".join(words)]).rstrip()


def _word(value: str) -> str:
    """A Python value as the shell word that follows a flag."""
    try:
        plain = ast.literal_eval(value)
    except (ValueError, SyntaxError):  # shortened, or of a kind that no flag takes
        return value.lstrip("'")
    if isinstance(plain, dict):
        plain = [f"{key}={each}" for key, each in plain.items()]
    return shlex.quote(",".join(map(str, plain)) if isinstance(plain, list | tuple) else str(plain))


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
        help=setting.metadata["help"] + _choices_text(setting) + (_default_text(setting) if defaults else ""),
        metavar=_metavar(setting, kind, is_table),
        show_default=False,
        rich_help_panel=setting.metadata["group"],
    )
    annotation = list[str] if is_table or setting.name == "log_to" else kind
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
    if 0 < len("|".join(setting.metadata["choices"])) <= LONGEST_COLUMN:
        return "|".join(setting.metadata["choices"])
    return None if kind is bool else _METAVARS.get(setting.name, {int: "N", float: "X", str: "NAME"}[kind])


def _choices_text(setting: Field[Any]) -> str:
    """The values that a setting takes, where there are too many for a column, and its help does not name them."""
    choices, named = setting.metadata["choices"], setting.metadata["help"]
    is_long = len("|".join(choices)) > LONGEST_COLUMN and not all(each in named for each in choices)
    return f" One of {', '.join(choices)}." if is_long else ""


def _default_text(setting: Field[Any]) -> str:
    if setting.default in (MISSING, None, ()):
        return ""
    default = str(setting.default)
    return f" [{default.lower() if isinstance(setting.default, bool) else default}]"


_GRAPH_FLAGS, _MODEL_FLAGS = (
    {"source", "root", "row_normalise", "download"},
    ("hidden", "num_layers", "dropout", "heads"),
)


def train_command(spec: RunSpec, config: RunConfig, run_dir: Path) -> str | None:
    """The command that trains a run again, for a shell; None for a run whose graph and model came from Python.

    Where flags cannot say it, the command reads the run's own run.toml.
    """
    if spec.graph.keys().isdisjoint({"source", "tables"}) or "name" not in spec.model:
        return None
    changed = _changed(config)
    if not _GRAPH_FLAGS.issuperset(spec.graph) or any(value is None for value in changed.values()):
        return shlex.join(["dorylus", "train", "--config", str(Path(os.path.abspath(run_dir)) / "run.toml")])
    words = ["dorylus", "train"]
    words += ["--root", str(spec.graph["root"])] if "root" in spec.graph else []
    words += _switch("row_normalise", spec.graph["row_normalise"]) if "row_normalise" in spec.graph else []
    words += ["--no-download"] if spec.graph.get("download") is False else []
    words += ["--model", str(spec.model["name"])]
    for name, value in spec.model.items():
        if name in _MODEL_FLAGS:
            words += [f"--{dashed(name)}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
        elif name != "name":
            words += ["--model-option", f"{name}={_json(value)}"]
    for name, value in changed.items():
        if isinstance(value, bool):
            words += _switch(name, value)
        elif isinstance(value, dict):
            words += [word for key, each in value.items() for word in (f"--{dashed(name)}", f"{key}={_json(each)}")]
        else:
            words += [f"--{dashed(name)}", str(value)]
    # Behind "--" a name may begin with a dash.
    return shlex.join(
        [*words, *(["--"] if str(spec.graph["source"]).startswith("-") else []), str(spec.graph["source"])]
    )


def python_call(config: RunConfig) -> str:
    """The lines that train a run again whose graph and model are objects of Python."""
    settings = "".join(f"    {name}={value!r},\n" for name, value in _changed(config).items())
    return f"import dorylus\n\nresult = dorylus.train(\n    graph,\n    model,\n{settings})"


def _changed(config: RunConfig) -> dict[str, Any]:
    """The settings that are not the default ones, but the folder."""
    default = RunConfig().to_dict()
    return {name: value for name, value in config.to_dict().items() if value != default[name] and name != "run_dir"}


def _switch(name: str, value: bool) -> list[str]:
    return [f"--{'' if value else 'no-'}{dashed(name)}"]


def _json(value: Any) -> str:
    """A value of a table as :func:`value_of` reads it: a text that would be read as something else is quoted."""
    return value if isinstance(value, str) and value_of(value) == value else json.dumps(value, ensure_ascii=False)


# Help lists flags in groups, those of SettingGroup in its order, and ends with examples.


class HelpfulCommand(TyperCommand):
    """A command with such a help."""

    def get_help_option(self, ctx: Any) -> Any:
        """Help on help, in the last group."""
        option: Any = super().get_help_option(ctx)
        option.rich_help_panel = SettingGroup.OUTPUT
        return option

    def get_params(self, ctx: Any) -> Any:
        """Flags by group; others before them."""
        places: dict[Any, int] = {group: place for place, group in enumerate(SettingGroup)}
        parameters = super().get_params(ctx)
        return sorted(parameters, key=lambda each: places.get(getattr(each, "rich_help_panel", None), -1))

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        with _formatted(self, self.get_params(ctx)):
            super().format_help(ctx, formatter)


class HelpfulGroup(TyperGroup):
    """A command with such a help, that has commands."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help."""
        with _formatted(self, self.get_params(ctx)):
            super().format_help(ctx, formatter)


@contextmanager
def _formatted(command: TyperCommand | TyperGroup, parameters: Iterable[Any]) -> Iterator[None]:
    """While it is open, help is formatted by Rich, and texts are plain: what looks like markup in them is escaped.

    Errors are formatted without Rich.
    """
    texts = [(command, "help"), (command, "epilog"), *((each, "help") for each in parameters)]
    before = [(each, name, text) for each, name in texts if (text := getattr(each, name, None))]
    mode = command.rich_markup_mode
    try:
        for each, name, text in before:
            setattr(each, name, escape(text))
        command.rich_markup_mode = "rich"
        yield
    finally:
        command.rich_markup_mode = mode
        for each, name, text in before:
            setattr(each, name, text)


def examples(*commands: str) -> str:
    """The end of a command's help."""
    return "\n".join(["Examples:", *(f"  {each}" for each in commands)])


GRAPH_HELP = "A data set's name (cora), a file, a store folder, or a generator (communities:num_vertices=10000)."


def _data(help_text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help_text, rich_help_panel=SettingGroup.DATA, **more)


def _model(help_text: str, metavar: str) -> Any:
    return typer.Option(help=help_text, metavar=metavar, rich_help_panel=SettingGroup.MODEL)


Root = Annotated[Path | None, _data("Folder with the data set's files; downloads go there too.")]
OtherGraph = Annotated[
    str | None,
    _data("Another graph with the same features, as train takes it. [the run's]", metavar="GRAPH", show_default=False),
]
RowNormalise = Annotated[
    bool | None,
    _data("Divide each feature row by its sum.", "--row-normalise/--no-row-normalise", show_default=False),
]
ModelName = Annotated[str | None, _model("gcn, gat, sage or gin. [gcn]", "NAME")]
Hidden = Annotated[str | None, _model("Width of hidden layers, or several: 64,32.", "N")]
NumLayers = Annotated[int | None, _model("Layers of the model.", "N")]
Dropout = Annotated[float | None, _model("Share of inputs dropped in training.", "X")]
Heads = Annotated[int | None, _model("gat: attention heads.", "N")]
ModelOption = Annotated[list[str] | None, _model("A further option of the model; may be repeated.", "KEY=VALUE")]
Live = Annotated[
    bool,
    typer.Option(
        "--live", help="Serve a page of the run, on this machine, while it trains.", rich_help_panel=SettingGroup.OUTPUT
    ),
]
Quiet = Annotated[
    bool, typer.Option("--quiet", help="Show the closing table only.", rich_help_panel=SettingGroup.OUTPUT)
]


def graph_section(source: str, root: Path | None, row_normalise: bool | None) -> dict[str, Any]:
    """How to load a graph, leaving out what was not given."""
    return {"source": _absolute(source), **graph_options(root, row_normalise)}


def load_other(source: str, root: Path | None) -> "Graph":
    """The graph that ``--graph`` names."""
    return RunSpec(graph_section(source, root, None)).load_graph()


def graph_options(root: Path | None, row_normalise: bool | None) -> dict[str, Any]:
    """The options of a graph that were given."""
    options: dict[str, Any] = {}
    if root is not None:
        options["root"] = str(root.absolute())
    if row_normalise is not None:
        options["row_normalise"] = row_normalise
    return options


def model_section(name: str | None, options: Sequence[str], **given: Any) -> dict[str, Any]:
    """How to build a model, leaving out what was not given."""
    section = {"name": name, **given} | table("model-option", options)
    return {key: value for key, value in section.items() if value is not None}


def widths(text: str | None) -> Any:
    """One width, or a list where several are given with commas between."""
    if text is None or "," not in text:
        return None if text is None else value_of(text)
    return [value_of(part) for part in text.split(",")]


def short_name(source: str) -> str:
    """A graph's source as part of a folder's name."""
    return Path(source.partition(":")[0]).stem or "graph"


def _absolute(source: str) -> str:
    """A path as an absolute one; a known name is never a path, as ``dorylus.load`` has it."""
    from dorylus.graph import known_names

    path = Path(source).expanduser()
    name = source.partition(":")[0].lower().replace("_", "-")
    is_path = path.exists() and name not in (known.lower() for known in known_names())
    return str(path.absolute()) if is_path else source


def check_new_store(store: Path, *, overwrite: bool) -> None:
    """Refuses a place in a folder that is not there, and a store that is not to be replaced."""
    from dorylus.graph import is_store

    check_parent(store, "store")
    if is_store(store) and not overwrite:
        raise ConfigError(
            f"the store {store} exists already: give --overwrite to replace it, or choose another folder."
        )


def check_parent(target: Path, noun: str) -> None:
    """Refuses a path in a folder that does not exist, which is probably a typing error, and a name that is too long."""
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            target.absolute().stat()  # from Python 3.14 on exists() hides the error
    except OSError as error:
        raise ConfigError(
            f"the {noun} {target} cannot be written: {error.strerror}. Choose another name or folder."
        ) from error
    if (size := len(os.fsencode(target.name))) > LONGEST_NAME:
        raise ConfigError(
            f"the {noun} {target} cannot be written: its name has {size} bytes, and at most {LONGEST_NAME} leave room "
            "for a suffix while it is written. Choose a shorter one."
        )
    if not target.absolute().parent.is_dir():
        raise ConfigError(
            f"the {noun} {target} cannot be written: the folder {target.parent} does not exist. Make it, or choose "
            "another."
        )
