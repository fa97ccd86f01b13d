"""The seam for where a graph server keeps its matrices: in memory, here, or partly in files (:mod:`.paged`).

A graph server is handed a :class:`Storage` and has no branch on which one it is.
"""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

from dorylus.backends import Backend
from dorylus.partition import Layout
from dorylus.saga import ApplyEdge, Gather, Plan, Slot, Steps
from dorylus.servers.graph.edges import EdgeGather
from dorylus.servers.graph.gathers import EachInterval, Gatherer, gather_once
from dorylus.servers.graph.input_rows import InputRows
from dorylus.servers.graph.matrices import Arena, Matrices
from dorylus.servers.graph.pass_context import PassContext

StaticRows: TypeAlias = Any
"""All rows of a gather that is made once, as the storage keeps them: for ``Matrices.put`` of the same storage."""


class TaskRows(Protocol):
    """Keeps the rows that a task reads in memory while it runs."""

    def before(self, step: int, interval: int) -> None:
        """A task of this step starts on an interval."""

    def after(self, step: int, interval: int) -> None:
        """The task is finished."""


class PassStorage(Protocol):
    """The matrices of one pass (training or evaluation) over one shard.

    ``parts_wait_in_rows``: a cotangent's part that waits for others until a later phase is stored in the slot's matrix
    and not held in memory.
    """

    parts_wait_in_rows: bool

    @property
    def matrices(self) -> Matrices:
        """The matrices by name."""

    def publish_features(self, features: InputRows, context: PassContext) -> None:
        """Store the features of own rows and ghosts, which never change, where gathers read them."""

    def gather_once(
        self, stage: Gather, gather: Gatherer, context: PassContext, features: InputRows, each_interval: EachInterval
    ) -> StaticRows:
        """Make a gather that needs making only once, and hold its rows.

        ``each_interval(n, work)`` does some work for n intervals.
        """

    def task_rows(
        self,
        context: PassContext,
        steps: Steps,
        gathers: Mapping[Gather, Gatherer],
        edges: Mapping[ApplyEdge, EdgeGather],
    ) -> TaskRows:
        """The :class:`TaskRows` of the pass."""


class Storage(Protocol):
    """Where the graph servers of one process keep their matrices."""

    def open_pass(self, layout: Layout, plan: Plan) -> PassStorage:
        """The storage of one pass over the intervals of a shard."""

    def clear(self) -> None:
        """Return memory that no matrix uses to the system."""


class MemoryStorage:
    """Everything is in memory, from an arena that all passes share."""

    def __init__(self, backend: Backend, arena: Arena) -> None:
        self._backend, self._arena = backend, arena

    def open_pass(self, layout: Layout, plan: Plan) -> "MemoryPassStorage":
        """The storage of one pass."""

        def share_of(name: Any) -> float:
            """The part of a matrix's rows that this pass ever writes."""
            level = (name if isinstance(name, Slot) else name.slot).level
            return layout.num_rows(level) / max(1, layout.order.size)

        return MemoryPassStorage(Matrices(self._backend, self._arena, share_of))

    def clear(self) -> None:
        """Return the arena's free blocks to the system."""
        self._arena.clear()


class MemoryPassStorage:
    """One pass in memory."""

    parts_wait_in_rows = False

    def __init__(self, matrices: Matrices) -> None:
        self.matrices = matrices

    def publish_features(self, features: InputRows, context: PassContext) -> None:
        """Hold the features themselves or, in another number format or in blocks of columns, a copy."""
        if features.stored_as_given:
            self.matrices.put(features.slot, features.with_ghosts(keep=True))
        else:
            features.copy_rows(0, len(context.shard.ids))

    def gather_once(
        self, stage: Gather, gather: Gatherer, context: PassContext, features: InputRows, each_interval: EachInterval
    ) -> StaticRows:
        """Gather once, in memory."""
        return gather_once(stage, gather, context, features, each_interval)

    def task_rows(
        self,
        context: PassContext,
        steps: Steps,
        gathers: Mapping[Gather, Gatherer],
        edges: Mapping[ApplyEdge, EdgeGather],
    ) -> TaskRows:
        """Everything is in memory."""
        return _AllInMemory()


class _AllInMemory:
    def before(self, step: int, interval: int) -> None:
        """Nothing has to be read."""

    def after(self, step: int, interval: int) -> None:
        """Nothing has to be written."""
