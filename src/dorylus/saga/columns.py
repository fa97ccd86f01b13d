"""Gathers in blocks of columns: the same plan with narrower matrices, for those of which all rows must be in memory.

Where a reduction's columns are independent, every number stays the same. Each block is one matrix, one gather and one
gradient; dense bodies read and write the blocks side by side.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from dorylus.saga.lower import Plan
from dorylus.saga.stages import ApplyEdge, ApplyVertex, Body, Gather, Loss, Scatter, Slot, Stage

LINE = 16  # numbers in a cache line: all blocks but the last are a multiple of it


def in_blocks(plan: Plan, blocks: int) -> Plan:
    """The plan with so many blocks of columns for every gather that can be split."""
    parts: dict[Slot, tuple[Slot, ...]] = {}
    for stage in plan.stages:
        if isinstance(stage, Gather) and can_split(stage) and blocks > 1:
            parts[stage.inputs[0]] = _split(stage.inputs[0], blocks)
            parts[stage.output] = _split(stage.output, blocks)
    if not parts:
        return plan
    stages: list[Stage] = []
    for stage in plan.stages:
        stages += _stages(stage, parts)
    return replace(plan, stages=tuple(stages), parts=parts)


def can_split(stage: Gather) -> bool:
    """Whether a gather's columns are independent and more than one block, and every epoch makes it."""
    return stage.spec.splits_columns and stage.output.source != "static" and stage.output.columns > LINE


def block_columns(columns: int, blocks: int) -> int:
    """The width of the widest block."""
    lines = -(-columns // LINE)
    return min(columns, LINE * -(-lines // blocks))


def _split(slot: Slot, blocks: int) -> tuple[Slot, ...]:
    width = block_columns(slot.columns, blocks)
    starts = range(0, slot.columns, width)
    return tuple(
        replace(slot, name=f"{slot.name}[{start}:]", columns=min(width, slot.columns - start), first_column=start)
        for start in starts
    )


def _stages(stage: Stage, parts: Mapping[Slot, tuple[Slot, ...]]) -> list[Stage]:
    def spread(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        return tuple(part for slot in slots for part in parts.get(slot, (slot,)))

    if isinstance(stage, ApplyVertex):
        body = _joined(stage.body, stage.inputs, stage.outputs, parts)
        return [replace(stage, body=body, inputs=spread(stage.inputs), outputs=spread(stage.outputs))]
    if isinstance(stage, Loss):
        return [replace(stage, body=_joined(stage.body, stage.inputs, (), parts), inputs=spread(stage.inputs))]
    if isinstance(stage, Scatter):
        return [replace(stage, slots=spread(stage.slots))]
    if isinstance(stage, ApplyEdge) or stage.output not in parts:
        return [stage]
    made: list[Stage] = []
    before: Gather | None = None
    for source, output in zip(parts[stage.inputs[0]], parts[stage.output], strict=True):
        before = Gather(stage.layer, (source,), output, after=before)
        made.append(before)
    return made


def _joined(
    body: Body, inputs: tuple[Slot, ...], outputs: tuple[Slot, ...], parts: Mapping[Slot, tuple[Slot, ...]]
) -> Body:
    if not any(slot in parts for slot in (*inputs, *outputs)):
        return body
    counts = tuple(len(parts.get(slot, (slot,))) for slot in inputs)
    widths = tuple(tuple(part.columns for part in parts.get(slot, (slot,))) for slot in outputs)
    return Body(BlocksBody(body.module, counts, widths), body.label)


class BlocksBody(nn.Module):
    """A body that reads and writes some matrices as blocks of columns.

    ``counts``: the number of blocks of each input. ``widths``: the widths of each output's blocks; empty where outputs
    are not stored.
    """

    def __init__(self, inner: nn.Module, counts: tuple[int, ...], widths: tuple[tuple[int, ...], ...]) -> None:
        super().__init__()
        self.counts, self.widths = counts, widths
        for name, part in inner.named_children():
            self.add_module(name, part)  # weights keep the names they have in the program
        self.__dict__["inner"] = inner  # not as a child module, which would register its weights a second time

    def forward(self, *inputs: Any) -> tuple[Tensor, ...]:
        """(blocks of every input) -> (blocks of every output)."""
        left = iter(inputs)
        joined = [_whole([next(left) for _ in range(count)]) for count in self.counts]
        made = self.__dict__["inner"](*joined)
        outputs = made if isinstance(made, tuple) else (made,)
        if not self.widths:
            return outputs
        return tuple(
            part
            for each, widths in zip(outputs, self.widths, strict=True)
            for part in torch.split(each, list(widths), dim=1)
        )


def _whole(blocks: list[Any]) -> Any:
    return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)
