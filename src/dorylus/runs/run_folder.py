"""The folder of a run: its settings, its log, and everything needed to continue it.

    run.toml       [graph] and [model] (how to make them again) and [training] (every resolved setting)
    log.jsonl      the run log
    graph.json     what its model needs to know of its graph
    lock           which process writes the run, while one does
    used.json      the usage of the run, for the bill: written with every checkpoint
    used.ledger    the same, at most a twentieth of a second old
    checkpoints/   the last checkpoints
    best/          the checkpoint with the best validation score, where one is kept
    metrics.json   the result, written at the end
    loggers.json   the names that loggers have for the run, where it is logged to some

A folder is a run once ``run.toml`` is in it, which is written whole. ``dorylus train --config run.toml`` does the same
run again.
"""

import json
import os
import stat
import time
import tomllib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import tomli_w

from dorylus import files as durable
from dorylus.config import RunConfig, recut
from dorylus.errors import ConfigError, DataError, DorylusError, cannot_write, given, settings_of_file, unknown_name
from dorylus.files import MOST_BYTES, FileTooLargeError, check_is_path, read_small
from dorylus.runs.ledger import is_entry, newest, read_ledger
from dorylus.runs.run_lock import NAME as LOCK
from dorylus.runs.run_log import plain_data
from dorylus.settings import LISTED_BY

if TYPE_CHECKING:
    from dorylus.graph import Graph
    from dorylus.saga import Recipe

FORMAT = 1
LEDGER = "used.ledger"
LOGGER_IDS = "loggers.json"
WRITTEN = (  # beside run.toml
    LOCK, LEDGER, "graph.json", "log.jsonl", "metrics.json", "used.json", LOGGER_IDS, "checkpoints", "best",
)  # fmt: skip
MOST_FACTS_BYTES = 256 << 20  # of graph.json, which has the names of features and classes
_SECTIONS = ("graph", "model", "training")


@dataclass(frozen=True)
class RunSpec:
    """How to make a run's graph and model again; an empty table where they came as Python objects.

    ``graph`` holds ``source``, as ``dorylus.load`` takes it, ``root`` and further options of that source, or
    ``tables``, the arguments of ``Graph.from_tables``; and ``row_normalise``. ``model`` holds ``name`` and the
    builder's options.
    """

    graph: Mapping[str, Any] = field(default_factory=dict)
    model: Mapping[str, Any] = field(default_factory=dict)
    _loading_since_s: list[float] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def source(self) -> str:
        """The graph's source, for people; "tables" where it is made of tables."""
        return str(self.graph.get("source", "tables"))

    def take_loading_since_s(self) -> float | None:
        """When the graph was first loaded from here, by ``time.perf_counter``: the set-up of a run began then.

        Returned once: a second run on the same graph does not include the time of loading it.
        """
        return self._loading_since_s.pop() if self._loading_since_s else None

    def load_graph(self, *, download: bool = True) -> "Graph":
        """The graph, loaded again; without ``download``, a data set whose files are missing is refused."""
        if not self._loading_since_s:
            self._loading_since_s.append(time.perf_counter())
        from dorylus.graph import Graph, load

        options = dict(self.graph)
        normalise = options.get("row_normalise", False)
        if isinstance(options.get("tables"), Mapping):
            graph = Graph.from_tables(**options["tables"])
        else:
            source = _required(options, "graph", "source", "a name, a file or a store folder")
            options.pop("row_normalise", False)
            download = options.pop("download", True) and download
            graph = load(source, download=download, **options)
        return graph.row_normalised() if normalise else graph

    def with_graph(self, section: Mapping[str, Any]) -> Self:
        """The same with the graph in another place; options of its reader stay for a file with the same ending."""
        old, new = (str(each.get("source", "")) for each in (self.graph, section))
        same = Path(old).is_absolute() and Path(old).suffix == Path(new).suffix
        kept = {name: value for name, value in self.graph.items() if name == "row_normalise" or same}
        return replace(self, graph={**kept, **section})

    def build_model(self) -> "Recipe":
        """The model's recipe, built again."""
        from dorylus.saga import build

        options = dict(self.model)
        return build(_required(options, "model", "name", "gcn, for instance"), **options)


@dataclass(frozen=True)
class RunFolder:
    """A folder that holds a run: its paths, how graph and model are made, and its settings.

    ``in_file`` names the settings and options that came from its run.toml, for errors.
    """

    path: Path
    spec: RunSpec
    config: RunConfig
    in_file: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    @classmethod
    def create(
        cls,
        path: str | PathLike[str],
        spec: RunSpec | None,
        config: RunConfig,
        graph_facts: Mapping[str, Any] | None = None,
    ) -> Self:
        """A new run's folder with its ``run.toml``; one that holds a run already is refused."""
        check_free(path)
        run = cls(Path(path), spec or RunSpec(), replace(config, run_dir=str(path)))
        run.write(graph_facts)
        return run

    def spelling(self) -> AbstractContextManager[None]:
        """Errors raised within spell what came from the run.toml as its lines."""
        return settings_of_file(self.path / "run.toml", self.in_file)

    def with_config(self, config: RunConfig) -> Self:
        """The same folder with other settings, not written yet."""
        return replace(self, config=replace(config, run_dir=str(self.path)))

    def write(self, graph_facts: Mapping[str, Any] | None = None) -> None:
        """Writes ``run.toml``, whole or not at all, after the facts of the graph if they are given."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            if graph_facts is not None:
                _write_json(self.graph_facts, graph_facts)
            durable.write_file(self.path / "run.toml", _toml(self.spec, self.config))
        except OSError as error:
            raise _cannot_make(self.path, error) from error

    @classmethod
    def open(cls, path: str | PathLike[str], changes: Mapping[str, Any] | None = None) -> Self:
        """The folder of a run that exists, with some settings changed as :func:`dorylus.config.recut` allows."""
        check_is_path("run_dir", path, "runs/mine")
        if not (Path(path) / "run.toml").is_file():
            what = "holds no run (it has no run.toml)" if Path(path).is_dir() else "does not exist"
            raise ConfigError(f"the folder {path} {what}: give the folder of a run that was started before.")
        _check_entries(Path(path))
        file = Path(path) / "run.toml"
        spec, settings = read_run_toml(file)
        in_file = frozenset((spec.graph.keys() | spec.model.keys() | settings.keys()) - (changes or {}).keys())
        with settings_of_file(file, in_file):
            return cls(Path(path), spec, recut({**settings, "run_dir": str(path)}, changes or {}), in_file)

    def load_graph(self) -> "Graph":
        """The graph that the run was trained on, loaded again; nothing is downloaded."""
        for source in map(Path, _files_of(self.spec.graph)):
            if source.is_absolute() and not source.exists() and set("*?[").isdisjoint(str(source)):
                raise DataError(
                    f"the run {self.path} was trained on {source}, which is not there. Put it back, give "
                    f"{given('graph', ...)} (dorylus resume keeps its new place), or write where it is now into the "
                    f"section [graph] of {self.path / 'run.toml'}."
                )
        return self.spec.load_graph(download=False)

    @property
    def log(self) -> Path:
        """The run log."""
        return self.path / "log.jsonl"

    @property
    def graph_facts(self) -> Path:
        """The file of what the model needs to know of its graph."""
        return self.path / "graph.json"

    @property
    def checkpoints(self) -> Path:
        """The folder of the last checkpoints."""
        return self.path / "checkpoints"

    @property
    def best(self) -> Path:
        """The folder of the best checkpoint."""
        return self.path / "best"

    @property
    def metrics(self) -> Path:
        """The file of the result, which exists once the run has ended."""
        return self.path / "metrics.json"

    @property
    def used(self) -> Path:
        """The file of the run's usage at its last checkpoint, for the bill."""
        return self.path / "used.json"

    @property
    def ledger(self) -> Path:
        """The ledger of the run's usage, also since its last checkpoint."""
        return self.path / LEDGER

    def sweep(self) -> None:
        """Remove files that a crash left half-written. For the process that holds the folder's lock."""
        try:
            for folder in (self.path, self.checkpoints, self.best):
                durable.sweep(folder)
        except OSError as error:
            raise DataError(
                f"what a crash left in the run folder {self.path} cannot be removed: {error.strerror or error}. Give "
                "this user the right to write there, and try again."
            ) from error

    def read_graph_facts(self) -> dict[str, Any] | None:
        """What the model needs to know of its graph; None for a run of an earlier version."""
        return _read_json(self.graph_facts, MOST_FACTS_BYTES)

    def write_metrics(self, metrics: Mapping[str, Any]) -> None:
        """Writes the result, whole or not at all."""
        _write_json(self.metrics, metrics)

    def read_metrics(self) -> dict[str, Any] | None:
        """The result, or None when the run has not ended yet."""
        return _read_json(self.metrics)

    def write_used(self, used: Mapping[str, Any]) -> None:
        """Writes the run's usage, whole or not at all."""
        _write_json(self.used, used)

    def read_used(self) -> dict[str, Any] | None:
        """The run's usage, also since its last checkpoint; None when nothing was written yet."""
        saved = _read_json(self.used)
        if saved is not None and not is_entry(saved):
            raise DataError(f"{self.used} is damaged (it is no use of machines): remove it, and resume again.")
        return newest(used for used in (saved, read_ledger(self.ledger)) if used is not None)

    def write_logger_ids(self, ids: Mapping[str, str]) -> None:
        """Writes the names that loggers have for the run."""
        _write_json(self.path / LOGGER_IDS, ids)

    def read_logger_ids(self) -> dict[str, str]:
        """The names that loggers have for the run."""
        return {name: str(run_id) for name, run_id in (_read_json(self.path / LOGGER_IDS) or {}).items()}

    def discard(self) -> None:
        """Remove the files of a run that never began; its ledger stays, and so do files of other programs."""
        written = (
            self.log,
            self.used,
            self.graph_facts,
            self.path / LOGGER_IDS,
            self.path / "run.toml",
            self.path / LOCK,
        )
        for path in written:
            path.unlink(missing_ok=True)


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    text = json.dumps(plain_data(content), indent=2, allow_nan=False, ensure_ascii=False)
    try:
        durable.write_file(path, text.encode() + b"\n")
    except OSError as error:
        raise cannot_write(
            f"cannot write {path}: {error.strerror or error}. Make room there, then resume the run.", error
        ) from error


def _read_json(path: Path, most_bytes: int = MOST_BYTES) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        content = json.loads(read_small(path, most_bytes))
        if not isinstance(content, dict):
            raise ValueError("it does not hold an object")
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged ({error}): remove it, and continue from the last checkpoint.") from error
    return content


def check_free(path: str | PathLike[str]) -> None:
    """Refuses a path that a new run cannot have: it is empty, holds another run, or is no folder."""
    if not str(path):
        raise ConfigError(
            f"{given('run_dir')} is empty, which would be this very folder: name one, or leave {given('run_dir')} out."
        )
    if (Path(path) / "run.toml").exists():
        raise ConfigError(
            f"the folder {path} already holds a run: continue it by `dorylus resume {path}`, or choose another "
            f"{given('run_dir')}."
        )
    if Path(path).exists() and not Path(path).is_dir():
        raise ConfigError(
            f"{given('run_dir', str(path))} is a file, but a run is a folder: choose another {given('run_dir')}."
        )
    for name in WRITTEN:  # other files in the folder are not ours
        _check_entry(Path(path, name))


def _check_entries(folder: Path) -> None:
    """Refuse a run folder that holds anything but files and folders: a link would be followed, a pipe would block."""
    for parent, folders, names in os.walk(folder):
        for name in (*folders, *names):
            _check_entry(Path(parent, name))


def _check_entry(entry: Path) -> None:
    try:
        mode = entry.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):  # another process has removed it
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ConfigError(
            f"{entry} is a link or no regular file, and a run folder holds files of its own: put a copy of it in its "
            "place, or remove it."
        )


def make_folder(path: str | PathLike[str]) -> list[Path]:
    """Makes the folder of a new run, if that is allowed; returns the folders that were made, the innermost first."""
    check_free(path)
    folder = Path(path)
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot_make(path, error) from error
    return missing


def _cannot_make(path: str | PathLike[str], error: OSError) -> DorylusError:
    return cannot_write(
        f"the run folder {path} cannot be made: {error.strerror or error}. Choose a {given('run_dir')} that can be "
        "written.",
        error,
        refused=ConfigError,
    )


def read_run_toml(path: str | PathLike[str]) -> tuple[RunSpec, dict[str, Any]]:
    """The content of a ``run.toml``: graph and model, and the settings, whose values are not checked yet."""
    try:
        content = tomllib.loads(read_small(path).decode())
    except (OSError, FileTooLargeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise DataError(f"cannot read {path}: {why}. Give the path of a run.toml.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not TOML: {error}. Mend that line.") from error
    version = content.pop("format", FORMAT)
    if version != FORMAT:
        raise DataError(
            f"{path} has format {version}, and this version of Dorylus reads {FORMAT}: use a newer version."
        )
    for name, section in content.items():
        if name not in _SECTIONS:
            raise ConfigError(f"{path}: " + unknown_name("section", name, _SECTIONS))
        if not isinstance(section, dict):
            raise ConfigError(f"{path}: {name} is a section: write its settings under a line [{name}].")
    graph, model, training = (content.get(name, {}) for name in _SECTIONS)
    for name in training:
        if name not in RunConfig.names():
            raise ConfigError(f"{path}: " + unknown_name("setting", name, RunConfig.names(), listed_by=LISTED_BY))
    return RunSpec(graph, model), training


def _toml(spec: RunSpec, config: RunConfig) -> bytes:
    # The path of the folder is not written into it: a run may be moved.
    training = {name: value for name, value in config.to_dict().items() if name != "run_dir"}
    sections = {"graph": spec.graph, "model": spec.model, "training": training}
    given = {name: without_none(plain_data(section)) for name, section in sections.items() if section}
    return tomli_w.dumps({"format": FORMAT, **given}).encode()


def without_none(table: Mapping[str, Any]) -> dict[str, Any]:
    """The same table without values that are None, which TOML cannot hold."""
    return {name: value for name, value in table.items() if value is not None}


def _files_of(graph: Mapping[str, Any]) -> list[str]:
    """The source of a graph, or the files of its tables."""
    tables = graph.get("tables")
    if not isinstance(tables, Mapping):
        return [str(graph.get("source", ""))]
    named = [tables.get("edges", ""), tables.get("vertices", "")]
    return [str(path) for paths in named for path in (paths if isinstance(paths, list) else [paths])]


def _required(options: dict[str, Any], section: str, name: str, example: str) -> str:
    if not options:
        first = f"give {given(section, ...)}, or " if section == "graph" else ""  # no flag takes a model
        raise ConfigError(
            f"the run was started from Python with a {section} of its own, and does not say how to make it again: "
            f"{first}continue in Python by dorylus.resume(run_dir, graph, model), or predict by dorylus.predict_from("
            f"run_dir, graph=..., model=...); or write {name} ({example}) into the section [{section}] of its run.toml."
        )
    if name not in options:
        raise ConfigError(
            f"the run does not say which {section} it is about: give {section}=..., or write {name} ({example}) into "
            f"the section [{section}]."
        )
    return str(options.pop(name))
