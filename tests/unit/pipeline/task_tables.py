"""Random task tables: any at all, and such as programs become."""

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from dorylus.pipeline import Kind, Need, Scope, Step, TaskTable

SENT = {Kind.SCATTER: Scope.SOURCES, Kind.GRAD_SCATTER: Scope.READERS}  # and the scope that waits for it
ACROSS = (Scope.SOURCES, Scope.READERS)
MIDDLE_KINDS = [kind for kind in Kind if kind is not Kind.WEIGHT_UPDATE]


@st.composite
def any_tables(draw: st.DrawFn, max_steps: int = 6, every: bool = True) -> TaskTable:
    """Steps with any needs that look back (across intervals at scatters), and an update after all of them."""
    steps: list[Step] = []
    for index in range(draw(st.integers(1, max_steps))):
        needs = [draw(_need(index, steps, every)) for _ in range(draw(st.integers(0, min(index, 3))))]
        if draw(st.booleans()):
            needs.append(Need(index, Scope.PREVIOUS))
        kind = draw(st.sampled_from(list(SENT))) if draw(st.booleans()) else draw(st.sampled_from(MIDDLE_KINDS))
        steps.append(Step(kind, index, tuple(dict.fromkeys(needs))))
    return TaskTable((*steps, _update(steps, range(len(steps)))))


@st.composite
def _need(draw: st.DrawFn, index: int, steps: Sequence[Step], every: bool) -> Need:
    step = draw(st.integers(0, index - 1))
    scopes = (Scope.OWN, Scope.EVERY) if every else (Scope.OWN,)
    across = [SENT[steps[step].kind]] if steps[step].kind in SENT else []
    return Need(step, draw(st.sampled_from([*scopes, *across])))


def _update(steps: Sequence[Step], after: Sequence[int]) -> Step:
    return Step(Kind.WEIGHT_UPDATE, steps[-1].phase, tuple(Need(step, Scope.OWN) for step in after))


LAYERS = ("gather first", "transform first", "edges")


def program_table(layers: Sequence[str]) -> TaskTable:
    """The table of a program of such layers, each step waiting as the step of a real program would."""
    steps: list[Step] = []

    def add(kind: Kind, *needs: tuple[int | None, Scope]) -> int:
        known = tuple(Need(step, scope) for step, scope in needs if step is not None)
        phase = (steps[-1].phase if steps else 0) + any(need.scope in ACROSS for need in known)
        steps.append(Step(kind, phase, known))
        return len(steps) - 1

    own, sources, readers = Scope.OWN, Scope.SOURCES, Scope.READERS
    row: int | None = None  # the step that last made or sent the rows; None: features, which every server has
    for layer in layers:
        if layer != "gather first":
            row = add(Kind.APPLY_VERTEX, (row, own))
        if row is not None:
            row = add(Kind.SCATTER, (row, own))
        if layer == "edges":
            row = add(Kind.GATHER, (add(Kind.APPLY_EDGE, (row, own), (row, sources)), own))
        else:
            row = add(Kind.GATHER, (row, own), (row, sources))
        row = add(Kind.APPLY_VERTEX, (row, own))
    steps[-1] = replace(steps[-1], kind=Kind.LOSS)
    dense, grad = [len(steps) - 1], (len(steps) - 1, own)
    for layer in reversed(layers):
        if layer == "edges":
            edge = add(Kind.GRAD_APPLY_EDGE, (add(Kind.GRAD_GATHER, grad), own))
            sent = add(Kind.GRAD_SCATTER, (edge, own), (len(steps), Scope.PREVIOUS))
            dense.append(edge)
            dense.append(add(Kind.GRAD_APPLY_VERTEX, (sent, own), (sent, readers)))
        else:
            sent = add(Kind.GRAD_SCATTER, grad)
            dense.append(add(Kind.GRAD_APPLY_VERTEX, (add(Kind.GRAD_GATHER, (sent, own), (sent, readers)), own)))
        grad = (dense[-1], own)
    return TaskTable((*steps, _update(steps, dense)))


program_tables = st.lists(st.sampled_from(LAYERS), min_size=1, max_size=2).map(program_table)
