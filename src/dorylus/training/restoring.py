"""Where a run that goes on begins: at its last checkpoint, or at the beginning if it has none."""

from dataclasses import dataclass

from torch import Tensor

from dorylus.errors import CheckpointError
from dorylus.saga import Program
from dorylus.servers import PSState
from dorylus.training.fingerprint import fingerprint
from dorylus.training.keeper import Keeper
from dorylus.training.progress import Progress
from dorylus.training.run_folder import RunFolder


@dataclass(frozen=True)
class Restored:
    """The epoch of the checkpoint and what it holds: progress, state of the parameter servers, best weights."""

    progress: Progress
    epoch: int | None = None
    state: PSState | None = None
    best: dict[str, Tensor] | None = None


def restore(folder: RunFolder, program: Program, graph: str, *, best: bool) -> Restored:
    """What the last checkpoint says, its weights put into the program; refused if it is of another model or graph.

    ``best``: whether the best weights are wanted too.
    """
    keeper = Keeper(folder)
    found = keeper.latest(fingerprint(program.state_dict(), program.describe()))
    if found is None:
        return Restored(Progress(graph=graph))
    try:
        progress = Progress.from_dict(found.progress)
    except (TypeError, ValueError) as error:
        raise CheckpointError(
            f"the checkpoint of epoch {found.epoch} in {folder.checkpoints} is damaged: {error}. Remove its folder to "
            "go on from the one before, or train again into another run_dir."
        ) from error
    if progress.graph != graph:
        raise CheckpointError(
            f"the run was started on another graph ({progress.graph}; this one: {graph}). Give it the graph "
            "it was started on, or train this one into another run_dir."
        )
    if progress.stopped in ("interrupted", "budget"):
        progress.stopped = None
    program.load_state_dict(found.weights)

    def trained(state: dict[str, Tensor]) -> dict[str, Tensor]:  # the rest are buffers
        return {name: state[name] for name, _ in program.named_parameters()}

    best_epoch = progress.best_epoch if best else None
    return Restored(
        progress,
        found.epoch,
        PSState(trained(found.weights), found.optimizer, found.lr_schedule),
        None if best_epoch is None else trained(keeper.best_weights(best_epoch)),
    )
