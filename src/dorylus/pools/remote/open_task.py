"""A call under way: what its attempts share, from when it is first submitted until somebody has completed it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from dorylus.functions.program import Program
from dorylus.pools.remote.arrays import Inputs
from dorylus.pools.remote.cutting import Part
from dorylus.pools.remote.outcome import Outcome, output_shapes
from dorylus.saga.dense import Call, Reply


@dataclass(eq=False)
class Attempt:
    """One submission of a call; ``jobs`` is how many of its invocations are still to end.

    ``replaced``: a later submission of the call has taken its place, or the call was cancelled: it is waited for no
    longer.
    """

    done: Callable[[Reply], None]
    failed: Callable[[BaseException], None]
    answered: bool = False
    jobs: int = 0
    replaced: bool = False


class Work:
    """What a task is once its program is known: inputs cut into parts, and the outcome they add up to."""

    def __init__(
        self,
        call: Call,
        program: Program,
        inputs: Inputs,
        parts: list[Part],
        precision: str = "float32",
        *,
        sums_apart: bool,
    ) -> None:
        self.program, self.inputs, self.parts = program, inputs, parts
        shapes = output_shapes(call, program.outputs, program.kept)
        self.outcome = Outcome(shapes, parts, len(parts) if sums_apart else 1, precision)


@dataclass(eq=False)
class OpenTask:
    """A call and its attempts; touched under the pool's lock, but for ``work``, which is set once.

    ``id`` names this registration of the call and no other, in this run or any: it is what functions bring back.
    """

    id: str
    call: Call
    attempts: list[Attempt] = field(default_factory=list)
    work: Work | None = None
    over: bool = False
    over_s: float = 0.0  # when that was

    @property
    def kind(self) -> str:
        """What its usage is counted under."""
        return str(self.call.task.kind)
