"""What a run leaves in its folder on the way: the last checkpoints, and the best model as long as one names it."""

from pathlib import Path

from torch import Tensor

from dorylus.runs import checkpoint
from dorylus.runs.checkpoint import Checkpoint
from dorylus.runs.identity import Fingerprint
from dorylus.runs.run_folder import RunFolder


class CheckpointStore:
    """Writes and finds a run's checkpoints."""

    def __init__(self, folder: RunFolder) -> None:
        self._last, self._best = folder.checkpoints, folder.best

    def latest(self, expect: Fingerprint) -> Checkpoint | None:
        """The last checkpoint, refused if it is of another model; None where there is none yet."""
        return None if checkpoint.latest(self._last) is None else checkpoint.load(self._last, expect)

    def save(self, state: Checkpoint) -> Path:
        """Save a checkpoint, and drop what no run would go on from any more."""
        path = checkpoint.save(self._last, state)
        checkpoint.prune(self._last, keep=2)
        # A best model goes only when no checkpoint names it any more: a crash now must find the one it needs.
        oldest = checkpoint.oldest(self._last) or path
        checkpoint.prune_before(self._best, checkpoint.epoch_of(oldest))
        return path

    @property
    def newest(self) -> Path | None:
        """The last checkpoint's folder, or None."""
        return checkpoint.latest(self._last)

    def drop(self, path: Path) -> None:
        """Remove a checkpoint that no run can go on from."""
        checkpoint.remove(path)

    def save_best(self, state: Checkpoint) -> None:
        """Save the best model so far."""
        checkpoint.save(self._best, state)

    def best_weights(self, epoch: int) -> dict[str, Tensor]:
        """The weights and buffers of the best model, which was that of an epoch."""
        return checkpoint.load(checkpoint.at_epoch(self._best, epoch)).weights
