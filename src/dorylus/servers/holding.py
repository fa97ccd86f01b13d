"""What a graph server keeps in memory under a limit, and what in files."""

from collections.abc import Hashable
from dataclasses import dataclass

from dorylus.saga.lower import Plan
from dorylus.saga.stages import ApplyEdge, Slot
from dorylus.servers.bench import Grad, Published


@dataclass(frozen=True, kw_only=True)
class Holding:
    """Which matrices are paged: in a file, with only the rows at hand in memory.

    ``rows``: those of which an interval's tasks see no more than its own rows. ``gathered``: those that are gathered
    from; all of one is in memory while that lasts. ``published``: the same for the cotangents of the backward pass.
    """

    rows: bool = True
    gathered: bool = True
    published: bool = True

    def pages(self, name: Hashable, plan: Plan) -> bool:
        """Whether the matrix of this name is paged. What a pass results in always is, and so are features.

        What edges add to their ends never is: any interval may add to any row.
        """
        if name in plan.results or is_lasting(name):
            return True
        if isinstance(name, Grad) and any(name.slot in ends for ends in _ends(plan)):
            return False
        if isinstance(name, Slot) and name.gathered:
            return self.gathered
        return self.published if isinstance(name, Published) else self.rows


def is_lasting(name: Hashable) -> bool:
    """Whether a matrix is the same in every epoch: what is gathered once, or features.

    Features that are gathered are stored with their dropout; to others it is applied as they are read.
    """
    return isinstance(name, Slot) and name.source != "computed" and (name.dropout == 0 or not name.gathered)


def _ends(plan: Plan) -> list[tuple[Slot, Slot]]:
    return [(stage.source, stage.destination) for stage in plan.stages if isinstance(stage, ApplyEdge)]
