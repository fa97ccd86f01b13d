"""Checkpoints: everything a run needs to continue bit for bit, written whole or not at all, without pickle.

A checkpoint is a folder ``epoch-000120`` that holds

    weights.safetensors     the model's state
    optimizer.safetensors   tensors of the optimiser's (and the schedule's) state
    state.json              epoch, progress, scalar state, the model's fingerprint, a BLAKE2 checksum of each file

and appears by a rename after all of it is on disk, so one that exists is complete. A new one of the same epoch is
exchanged for the old in one step; where the file system cannot do that, the old one stays as ``epoch-000120.old`` until
the new one is in place, and is read until then. The best model of a run is kept the same way, in a folder
of its own.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Self

import safetensors.torch
import torch
from safetensors import SafetensorError

from dorylus import files as durable
from dorylus.errors import CheckpointError, given, short_repr
from dorylus.files import read_small
from dorylus.runs.run_folder import RunFolder

FORMAT = 3  # since 3 the model is described by all its settings
STATE = "state.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
MOST_STATE_BYTES = 256 << 20  # of state.json, which has the loss and the seconds of up to millions of epochs
_NAME = re.compile(r"epoch-(\d{6,})(" + re.escape(durable.OLD) + ")?")


@dataclass(frozen=True)
class Fingerprint:
    """A model's description and, for each parameter, its name, shape and type."""

    spec: str
    parameters: tuple[tuple[str, tuple[int, ...], str], ...]

    @property
    def names(self) -> list[str]:
        """The parameters' names, in the model's order."""
        return [name for name, _, _ in self.parameters]

    def to_dict(self) -> dict[str, Any]:
        """JSON data."""
        return {"spec": self.spec, "parameters": [[name, list(shape), kind] for name, shape, kind in self.parameters]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The fingerprint in the data of :meth:`to_dict`."""
        return cls(data["spec"], tuple((name, tuple(shape), kind) for name, shape, kind in data["parameters"]))

    def difference(self, expected: "Fingerprint") -> str:
        """The first difference of this model from the ``expected`` one, as a sentence; empty when they are equal."""
        saved_by_name = {name: f"{kind} {list(shape)}" for name, shape, kind in self.parameters}
        expected_by_name = {name: f"{kind} {list(shape)}" for name, shape, kind in expected.parameters}
        for name, saved in saved_by_name.items():
            if name not in expected_by_name:
                return f"it has the parameter {name} ({saved}), which this model has not"
            if expected_by_name[name] != saved:
                return f"its parameter {name} is {saved}, and this model's is {expected_by_name[name]}"
        for name, its in expected_by_name.items():
            if name not in saved_by_name:
                return f"it lacks the parameter {name} ({its}) of this model"
        if self.names != expected.names:
            return "its parameters are the same in another order"
        for layer, described in enumerate(zip(self.spec.split(" > "), expected.spec.split(" > "), strict=False)):
            for saved, its in zip_longest(*(each.split(", ") for each in described), fillvalue="nothing more"):
                if saved != its:
                    return f"its layer {layer} has {saved}, and this model's has {its}"
        return "" if self.spec == expected.spec else "it has another number of layers"


def fingerprint(weights: Mapping[str, torch.Tensor], spec: str) -> Fingerprint:
    """The fingerprint of the model that has this state and description."""
    parts = [(name, tuple(w.shape), str(w.dtype).removeprefix("torch.")) for name, w in weights.items()]
    return Fingerprint(spec, tuple(parts))


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run after ``epoch`` epochs.

    ``optimizer`` is ``{"state": {name: ...}, "groups": {name: ...}}``, by the parameters' names, so that a run may
    continue with another number of parameter servers; ``lr_schedule`` is the schedule's ``state_dict()``;
    ``progress`` is the trainer's own JSON data (losses, seconds, best score, patience); ``spec`` is the caller's
    description of the model.
    """

    epoch: int
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    lr_schedule: dict[str, Any] | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    spec: str = ""

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint of the model."""
        return fingerprint(self.weights, self.spec)


def save(folder: Path, state: Checkpoint) -> Path:
    """Writes ``state`` into ``folder`` and returns its path; files that a crash left half-written are removed."""
    tensors: dict[str, torch.Tensor] = {}
    content = {
        "epoch": state.epoch,
        "fingerprint": state.fingerprint.to_dict(),
        "optimizer": encode(state.optimizer, "optimizer", tensors),
        "lr_schedule": encode(state.lr_schedule, "lr_schedule", tensors),
        "progress": encode(state.progress, "progress", tensors),
    }
    files = {WEIGHTS: packed(state.weights), OPTIMIZER: packed(tensors)}
    content["checksums"] = {name: _checksum(data) for name, data in files.items()}
    path = folder / f"epoch-{state.epoch:06d}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        durable.write_folder(path, files | {STATE: _state_file(content)})
    except OSError as error:
        raise _failure(
            f"cannot write the checkpoint {path}: {error.strerror or error}. Make room or choose another "
            f"{given('run_dir')}, then resume from the checkpoint before."
        ) from error
    return path


def sweep(folder: Path) -> None:
    """Removes files that a crash left in ``folder``, whose only writer is the caller."""
    durable.sweep(folder)
    kept = set(_all(folder))
    for path in folder.glob(f"epoch-*{durable.OLD}"):
        if path not in kept:
            shutil.rmtree(path)


def load(path: Path, expect: Fingerprint | None = None) -> Checkpoint:
    """The checkpoint at ``path``, or the latest in that folder, if it is whole and of the model ``expect``."""
    path = _checkpoint_at(path)
    with _refusing_damage(path):
        content, weights, tensors = _read(path)
        stored = Fingerprint.from_dict(content["fingerprint"])
        if difference := fingerprint({name: weights[name] for name in stored.names}, stored.spec).difference(stored):
            raise ValueError(f"{WEIGHTS} is not what {STATE} says of it: {difference}")
        state = Checkpoint(
            epoch=content["epoch"],
            weights={name: weights[name] for name in stored.names},
            optimizer=decode(content["optimizer"], tensors),
            lr_schedule=decode(content["lr_schedule"], tensors),
            progress=decode(content["progress"], tensors),
            spec=stored.spec,
        )
    if expect is not None:
        _refuse_other(path, stored, expect)
    return state


def check(folder: Path, expect: Fingerprint) -> None:
    """Refuse a model that the latest checkpoint in a folder, if there is one, is not of; its tensors are not read."""
    path = latest(folder)
    if path is not None:
        with _refusing_damage(path):
            stored = Fingerprint.from_dict(_read_state(path)["fingerprint"])
        _refuse_other(path, stored, expect)


@contextmanager
def _refusing_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged: {_describe(error)}. {_cure(path)}") from error


def _refuse_other(path: Path, stored: Fingerprint, expect: Fingerprint) -> None:
    if difference := stored.difference(expect):
        raise CheckpointError(
            f"the checkpoint {path} is of another model: {difference}. Build the model the checkpoint was made with, "
            f"or train this one into another {given('run_dir')}."
        )


def latest(folder: Path) -> Path | None:
    """The checkpoint of the highest epoch in ``folder``, or None."""
    return max(_all(folder), key=epoch_of, default=None)


def oldest(folder: Path) -> Path | None:
    """The checkpoint of the lowest epoch in ``folder``, or None."""
    return min(_all(folder), key=epoch_of, default=None)


def at_epoch(folder: Path, epoch: int) -> Path:
    """The path of the checkpoint of an epoch in ``folder``, whether or not it exists."""
    path = folder / f"epoch-{epoch:06d}"
    return next((each for each in _all(folder) if epoch_of(each) == epoch), path)


def epoch_of(path: Path) -> int:
    """The epoch that a checkpoint is named for."""
    return int(path.name.removeprefix("epoch-").removesuffix(durable.OLD))


def prune(folder: Path, keep: int = 2) -> None:
    """Removes all but the last ``keep`` checkpoints of ``folder``."""
    for path in sorted(_all(folder), key=epoch_of)[:-keep]:
        remove(path)


def prune_before(folder: Path, epoch: int) -> None:
    """Removes all before the last checkpoint up to ``epoch``: no run that continues from ``epoch`` or later reads them.

    For best models: one may be removed only when every checkpoint left has a later best.
    """
    up_to = sorted((path for path in _all(folder) if epoch_of(path) <= epoch), key=epoch_of)
    for path in up_to[:-1]:
        remove(path)


def remove(path: Path) -> None:
    """Removes a checkpoint, in one step."""
    try:
        durable.remove_folder(path)
    except OSError as error:
        raise _failure(
            f"cannot remove the checkpoint {path}, which is no longer needed: {error.strerror or error}. Mend the "
            "disk, or copy the run to another, then resume."
        ) from error


class CheckpointStore:
    """The checkpoints in a run folder: the last two, and the best model as long as one of them names it."""

    def __init__(self, folder: RunFolder) -> None:
        self._last, self._best = folder.checkpoints, folder.best

    def latest(self, expect: Fingerprint) -> Checkpoint | None:
        """The last checkpoint, refused if it is of another model; None where there is none yet."""
        return None if latest(self._last) is None else load(self._last, expect)

    def save(self, state: Checkpoint) -> Path:
        """Save a checkpoint, and remove those that no run would continue from."""
        path = save(self._last, state)
        prune(self._last, keep=2)
        self._drop_abandoned(state)
        # A best model is removed only when no checkpoint names it: after a crash now, resuming needs it.
        prune_before(self._best, epoch_of(oldest(self._last) or path))
        return path

    def _drop_abandoned(self, state: Checkpoint) -> None:
        """Remove best models that are newer than the best one of this checkpoint.

        They are of epochs that a killed run did not save, and that went otherwise the second time.
        """
        best_epoch = state.progress.get("best_epoch") or 0
        for path in _all(self._best):
            if best_epoch < epoch_of(path) <= state.epoch:
                remove(path)

    def of_result(self, *, best: bool) -> Path:
        """The checkpoint with the weights of the result: the last one or, with ``best``, the best that it names.

        A run that was killed before its first checkpoint has at most best models; without any, the folder is returned.
        """
        last = latest(self._last)
        if last is None:
            return (latest(self._best) if best else None) or self._last
        with _refusing_damage(last):
            best_epoch = _read_state(last)["progress"].get("best_epoch") if best else None
        return last if best_epoch is None else at_epoch(self._best, best_epoch)

    @property
    def newest(self) -> Path | None:
        """The last checkpoint's folder, or None."""
        return latest(self._last)

    def drop(self, path: Path) -> None:
        """Remove a checkpoint that no run can continue from."""
        remove(path)

    def save_best(self, state: Checkpoint) -> None:
        """Save the best model so far."""
        save(self._best, state)

    def best_weights(self, epoch: int) -> dict[str, torch.Tensor]:
        """The weights and buffers of the best model, saved after ``epoch`` epochs."""
        return load(at_epoch(self._best, epoch)).weights


def _failure(text: str) -> CheckpointError:
    failure = CheckpointError(text)
    failure.exit_code = 1  # a failure of the disk, not a wrong setting
    return failure


def _all(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    paths = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    in_place = {epoch_of(path) for path in paths if path.suffix != durable.OLD}
    return [path for path in paths if path.suffix != durable.OLD or epoch_of(path) not in in_place]


def _checkpoint_at(path: Path) -> Path:
    if _NAME.fullmatch(path.name) and path.is_dir():
        return path
    newest = latest(path)
    if newest is None:
        raise CheckpointError(
            f"there is no checkpoint in {path}: give the folder of one, or train again from the beginning."
        )
    return newest


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The checked content of a checkpoint's three files."""
    content = _read_state(path)
    weights, optimizer = (read_tensors(path / name, content["checksums"][name]) for name in (WEIGHTS, OPTIMIZER))
    return content, weights, optimizer


def _read_state(path: Path) -> dict[str, Any]:
    """The checked content of its state.json."""
    stored = json.loads(read_small(path / STATE, MOST_STATE_BYTES))
    if stored["format"] != FORMAT:
        raise CheckpointError(
            f"the checkpoint {path} has format {stored['format']}, and this version of Dorylus reads {FORMAT}: "
            "continue with the version that wrote it, or train again from the beginning, into another "
            f"{given('run_dir')}."
        )
    content: dict[str, Any] = stored["content"]
    if _checksum(_canonical(content)) != stored["checksum"]:
        raise ValueError(f"{STATE} does not have the checksum it was written with")
    return content


def _state_file(content: dict[str, Any]) -> bytes:
    stored = {"format": FORMAT, "checksum": _checksum(_canonical(content)), "content": content}
    return json.dumps(stored, allow_nan=False, indent=1).encode()


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False, sort_keys=True).encode()


def _describe(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{Path(error.filename).name if error.filename else 'a file'} cannot be read ({error.strerror})"
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError | RecursionError):
        return f"{STATE} is not whole"
    if isinstance(error, KeyError):
        return f"{error.args[0]!r} is missing from it"
    return str(error)


def _cure(path: Path) -> str:
    older = [other for other in _all(path.parent) if epoch_of(other) < epoch_of(path)]
    if not older:
        return f"There is no older one beside it: train again from the beginning, into another {given('run_dir')}."
    return f"Remove that folder to continue from {max(older, key=epoch_of).name}, the one before."


# A safetensors file holds the length of its header in 8 bytes, the header in JSON, which has the place of each tensor,
# and the tensors, which end where the file does. A damaged file may have any size: header and checksum are checked
# before its content is in memory.
MOST_HEADER_BYTES = 100_000_000  # as safetensors has it
_LENGTH_BYTES = 8


def packed(tensors: dict[str, torch.Tensor]) -> bytes:
    """The content of a file of these tensors."""
    # Cloned one by one: parameters that share memory, or views of a larger buffer, are refused otherwise.
    return safetensors.torch.save(
        {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    )


def _checksum(data: bytes) -> str:
    """The BLAKE2 checksum of some bytes."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def read_tensors(path: Path, expected: str) -> dict[str, torch.Tensor]:
    """The tensors of a file that has the ``expected`` checksum; ValueError where it is damaged."""
    with open(path, "rb") as file:
        _check_header(file, path.name)
        file.seek(0)
        if hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest() != expected:
            raise ValueError(f"{path.name} does not have the checksum it was written with")
        file.seek(0)
        return safetensors.torch.load(file.read())


def _check_header(file: BinaryIO, name: str) -> None:
    """Refuse a file whose header cannot be right, or whose tensors do not end where it does."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header_bytes = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    content_bytes = size - _LENGTH_BYTES - header_bytes
    if content_bytes < 0 or not 2 <= header_bytes <= MOST_HEADER_BYTES:
        raise ValueError(f"{name} has {size:,} bytes and says that {header_bytes:,} of them are its header")
    try:
        entries = json.loads(file.read(header_bytes))
        end = max((entry["data_offsets"][1] for key, entry in entries.items() if key != "__metadata__"), default=0)
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"the header of {name} is damaged") from error
    if end != content_bytes:
        raise ValueError(f"{name} has {content_bytes:,} bytes of tensors, and its header says {short_repr(end)}")


_TAGS = frozenset({"$tuple", "$float", "$items", "$counter", "$tensor"})


def encode(value: Any, at: str, tensors: dict[str, torch.Tensor]) -> Any:
    """JSON data for ``value``; its tensors are put into ``tensors`` under the path ``at`` they stand at."""
    if isinstance(value, torch.Tensor):
        tensors[at] = value
        return {"$tensor": at}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, list):
        return [encode(item, f"{at}.{i}", tensors) for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": [encode(item, f"{at}.{i}", tensors) for i, item in enumerate(value)]}
    if isinstance(value, dict):
        return _encode_table(value, at, tensors)
    raise CheckpointError(
        f"{at} is a {type(value).__name__}, which a checkpoint cannot hold: use an optimiser or schedule whose state "
        "is numbers, texts, lists and tensors, or train without a run folder."
    )


def _encode_table(table: dict[Any, Any], at: str, tensors: dict[str, torch.Tensor]) -> Any:
    items = [(key, encode(item, f"{at}.{key}", tensors)) for key, item in table.items()]
    if isinstance(table, Counter):
        return {"$counter": [[key, item] for key, item in items]}
    if all(isinstance(key, str) for key in table) and not _TAGS.intersection(table):
        return dict(items)
    return {"$items": [[encode(key, at, tensors), item] for key, item in items]}


def decode(value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """What :func:`encode` was given."""
    if isinstance(value, list):
        return [decode(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next(iter(value)) if len(value) == 1 else None
    if tag not in _TAGS:
        return {key: decode(item, tensors) for key, item in value.items()}
    return _decode_tagged(tag, value[tag], tensors)


def _decode_tagged(tag: str, value: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    match tag:
        case "$tensor":
            return tensors[value]
        case "$float":
            return float(value)
        case "$tuple":
            return tuple(decode(item, tensors) for item in value)
        case "$counter":
            return Counter({key: count for key, count in value})  # noqa: C416  (a Counter of pairs would count pairs)
        case _:
            return {decode(key, tensors): decode(item, tensors) for key, item in value}
