"""Checkpoints: everything a run needs to go on bit for bit, written whole or not at all, without pickle.

A checkpoint is a folder ``epoch-000120`` that holds

    weights.safetensors     the model's state
    optimizer.safetensors   tensors of the optimiser's (and the schedule's) state
    state.json              epoch, progress, scalar state, the model's fingerprint, a BLAKE2 checksum of each file

and appears by a rename after all of it is on disk, so one that exists is complete. One of the same epoch is exchanged
for it in one step; where the file system cannot do that, the old one stands beside as ``epoch-000120.old`` until the
new one is in place, and counts as long as that is not there. The best model of a run is kept the same way, in a folder
of its own.
"""

import json
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from dorylus import files as durable
from dorylus.errors import CheckpointError
from dorylus.files import read_small
from dorylus.runs.identity import Fingerprint, fingerprint
from dorylus.runs.tensors import checksum as _checksum
from dorylus.runs.tensors import decode, encode, packed, read_tensors

FORMAT = 2  # since 2 the optimiser's state is by parameter name
STATE = "state.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
MOST_STATE_BYTES = 256 << 20  # of state.json, which has the loss and the seconds of every epoch: of millions
_NAME = re.compile(r"epoch-(\d{6,})(" + re.escape(durable.OLD) + ")?")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The state of a run after ``epoch`` epochs.

    ``optimizer`` is ``{"state": {name: ...}, "groups": {name: ...}}``, by the parameters' names, so that a run may go
    on with another number of parameter servers; ``lr_schedule`` is the schedule's ``state_dict()``; ``progress`` is
    the trainer's own JSON data (losses, seconds, best score, patience); ``spec`` describes the model in words of the
    caller's choice.
    """

    epoch: int
    weights: dict[str, torch.Tensor]
    optimizer: dict[str, Any]
    lr_schedule: dict[str, Any] | None = None
    progress: dict[str, Any] = field(default_factory=dict)
    spec: str = ""

    @property
    def fingerprint(self) -> Fingerprint:
        """Which model this is the state of."""
        return fingerprint(self.weights, self.spec)


def save(folder: Path, state: Checkpoint) -> Path:
    """Writes ``state`` into ``folder`` and returns its path; what an earlier crash left half-written is swept away."""
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
            f"cannot write the checkpoint {path}: {error.strerror or error}. Make room or choose another run_dir, "
            "then resume from the checkpoint before."
        ) from error
    return path


def sweep(folder: Path) -> None:
    """Removes what a crash left in ``folder``, whose only writer is the caller."""
    durable.sweep(folder)
    kept = set(_all(folder))
    for path in folder.glob(f"epoch-*{durable.OLD}"):
        if path not in kept:
            shutil.rmtree(path)


def load(path: Path, expect: Fingerprint | None = None) -> Checkpoint:
    """The checkpoint at ``path``, or the latest in that folder, if it is whole and of the model ``expect``."""
    path = _checkpoint_at(path)
    try:
        content, weights, tensors = _read(path)
        found = Fingerprint.from_dict(content["fingerprint"])
        if difference := fingerprint({name: weights[name] for name in found.names}, found.spec).difference(found):
            raise ValueError(f"{WEIGHTS} is not what {STATE} says of it: {difference}")
        state = Checkpoint(
            epoch=content["epoch"],
            weights={name: weights[name] for name in found.names},
            optimizer=decode(content["optimizer"], tensors),
            lr_schedule=decode(content["lr_schedule"], tensors),
            progress=decode(content["progress"], tensors),
            spec=found.spec,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise CheckpointError(f"the checkpoint {path} is damaged: {_what(error)}. {_cure(path)}") from error
    if expect is not None and (difference := found.difference(expect)):
        raise CheckpointError(
            f"the checkpoint {path} is of another model: {difference}. Build the model the checkpoint was made with, "
            "or train this one into another run_dir."
        )
    return state


def latest(folder: Path) -> Path | None:
    """The checkpoint of the highest epoch in ``folder``, or None."""
    return max(_all(folder), key=epoch_of, default=None)


def oldest(folder: Path) -> Path | None:
    """The checkpoint of the lowest epoch in ``folder``, or None."""
    return min(_all(folder), key=epoch_of, default=None)


def at_epoch(folder: Path, epoch: int) -> Path:
    """Where the checkpoint of an epoch stands in ``folder``, or would."""
    path = folder / f"epoch-{epoch:06d}"
    return next((found for found in _all(folder) if epoch_of(found) == epoch), path)


def epoch_of(path: Path) -> int:
    """The epoch that a checkpoint is named for."""
    return int(path.name.removeprefix("epoch-").removesuffix(durable.OLD))


def prune(folder: Path, keep: int = 2) -> None:
    """Removes all but the last ``keep`` checkpoints of ``folder``."""
    for path in sorted(_all(folder), key=epoch_of)[:-keep]:
        remove(path)


def prune_before(folder: Path, epoch: int) -> None:
    """Removes what no run that goes on from ``epoch`` or later can ask for: all before the last one up to ``epoch``.

    For best models: one may go only when every checkpoint left has a later best, or resuming would miss it.
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


def _failure(text: str) -> CheckpointError:
    failure = CheckpointError(text)
    failure.exit_code = 1  # nothing was asked wrongly: the run failed
    return failure


def _all(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = [path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_dir()]
    in_place = {epoch_of(path) for path in found if path.suffix != durable.OLD}
    return [path for path in found if path.suffix != durable.OLD or epoch_of(path) not in in_place]


def _checkpoint_at(path: Path) -> Path:
    if _NAME.fullmatch(path.name) and path.is_dir():
        return path
    found = latest(path)
    if found is None:
        raise CheckpointError(
            f"there is no checkpoint in {path}: give the folder of one, or train again from the beginning."
        )
    return found


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The checked content of a checkpoint's three files."""
    stored = json.loads(read_small(path / STATE, MOST_STATE_BYTES))
    if stored["format"] != FORMAT:
        raise CheckpointError(
            f"the checkpoint {path} has format {stored['format']}, and this version of Dorylus reads {FORMAT}: go on "
            "with the version that wrote it, or train again from the beginning, into another run_dir."
        )
    content = stored["content"]
    if _checksum(_canonical(content)) != stored["checksum"]:
        raise ValueError(f"{STATE} does not have the checksum it was written with")
    weights, optimizer = (read_tensors(path / name, content["checksums"][name]) for name in (WEIGHTS, OPTIMIZER))
    return content, weights, optimizer


def _state_file(content: dict[str, Any]) -> bytes:
    stored = {"format": FORMAT, "checksum": _checksum(_canonical(content)), "content": content}
    return json.dumps(stored, allow_nan=False, indent=1).encode()


def _canonical(content: dict[str, Any]) -> bytes:
    return json.dumps(content, allow_nan=False, sort_keys=True).encode()


def _what(error: Exception) -> str:
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
        return "There is no older one beside it: train again from the beginning, into another run_dir."
    return f"Remove that folder to go on from {max(older, key=epoch_of).name}, the one before."
