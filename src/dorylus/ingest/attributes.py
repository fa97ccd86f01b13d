"""Features, labels and splits: copied from files to a store block by block, with every value checked."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from dorylus.errors import DataError, GraphError
from dorylus.graph import (
    LABEL_RULE,
    MAX_CLASSES,
    AnyArray,
    BoolArray,
    NewFolder,
    as_float32,
    as_labels,
    check_float16_rows,
    class_too_large,
    is_label_type,
    mark_selected,
    parse_feature_dtype,
    repeated_vertex,
)
from dorylus.ingest.reordering import VertexOrder
from dorylus.ingest.row_files import ComputedRows, RowFile, open_rows
from dorylus.ingest.settings import IngestSettings, Rows
from dorylus.progress import ReportStage, StageProgress

STEP = 1 << 22


@dataclass(frozen=True)
class Attributes:
    """The given files and arrays; shapes are checked, values not yet."""

    features: RowFile | None
    labels: RowFile | None
    splits: dict[str, RowFile | None] = field(default_factory=dict)
    feature_dtype: np.dtype[Any] = np.dtype(np.float32)  # noqa: RUF009 (a constant)

    @classmethod
    def open(cls, settings: IngestSettings) -> "Attributes":
        """The files of the settings, with their existence, types and shapes checked."""
        open_file = partial(_open_rows, memory_bytes=settings.memory_bytes)
        features, labels = open_file(settings.features, "features"), open_file(settings.labels, "labels")
        splits = {name: open_file(rows, name) for name, rows in settings.splits.items()}
        if features is not None and len(features.shape) != 2:
            raise DataError(f"{features.path} has shape {list(features.shape)}: features are [vertices, columns].")
        if labels is not None:
            _check_label_type(labels)
        if any(splits.values()) and labels is None:
            raise DataError("a split is given without labels: a split selects vertices that have one. Give labels.")
        return cls(features, labels, splits, parse_feature_dtype(settings.feature_dtype))

    def num_vertices(self) -> int | None:
        """The number of rows of the files with one row per vertex; None if there are none."""
        rows = {str(each.path): each.shape[0] for each in self._by_vertex}
        if len(set(rows.values())) > 1:
            counts = ", ".join(f"{path} has {count:,} rows" for path, count in rows.items())
            raise DataError(f"{counts}: each holds one row per vertex, so all must have the same number.")
        return next(iter(rows.values()), None)

    @property
    def rows_statement(self) -> str | None:
        """A statement about the file that determines the number of vertices; None if there is none."""
        first = next(iter(self._by_vertex), None)
        return None if first is None else f"{first.path} has {first.shape[0]:,} rows, one per vertex"

    @property
    def _by_vertex(self) -> list[RowFile]:
        files = [self.features, self.labels, *(each for each in self.splits.values() if each and each.dtype == bool)]
        return [each for each in files if each is not None]

    @property
    def of_table(self) -> bool:
        """Whether rows are computed from a table of vertices, which was read once before."""
        return any(isinstance(each, ComputedRows) for each in (self.features, self.labels, *self.splits.values()))

    @property
    def features_bytes(self) -> int:
        """The bytes of the features in a store."""
        count = 0 if self.features is None else int(np.prod(self.features.shape, dtype=object))
        return count * self.feature_dtype.itemsize

    @property
    def resident_bytes(self) -> int:
        """The largest size of the process while the first row of a file was read."""
        files = (self.features, self.labels, *self.splits.values())
        return max(int(getattr(each, "resident_bytes", 0)) for each in files)

    def rows_bytes(self, num_vertices: int) -> int:
        """The bytes of features, labels and splits in a store."""
        labels = 0
        if self.labels is not None:
            labels = int(np.prod(self.labels.shape, dtype=object)) * (8 if len(self.labels.shape) == 1 else 1)
        return self.features_bytes + labels + len(self.splits) * num_vertices

    def write(self, folder: NewFolder, num_vertices: int, order: VertexOrder, tell: ReportStage) -> dict[str, Any]:
        """Write all arrays in the given order; returns the fields for the manifest."""
        num_features = self._write_features(folder, num_vertices, order, tell)
        labelled, num_classes = _write_labels(folder, self.labels, num_vertices, order, tell)
        trained = None
        for name, rows in self.splits.items():
            mask = _mask(name, rows, num_vertices)
            self._check_split_labelled(name, mask, labelled)
            trained = np.packbits(mask) if trained is None else check_disjoint(trained, mask, name)
            _write_mask(folder, name, order.mask(mask))
        facts: dict[str, Any] = {"num_features": num_features, "num_classes": num_classes}
        for fact, rows in (("feature_names", self.features), ("class_names", self.labels)):
            if isinstance(rows, ComputedRows):
                facts[fact] = list(rows.names)
        return facts

    def _check_split_labelled(self, name: str, mask: BoolArray, labelled: BoolArray | None) -> None:
        """Refuse a split with a vertex that has no label."""
        rows = self.splits[name]
        if rows is None or self.labels is None or labelled is None:
            return
        bad = np.flatnonzero(mask & ~labelled)
        if bad.size:
            raise GraphError(
                f"{name} from {rows.path} selects vertex {bad[0]}, whose label in {self.labels.path} is -1 (none). "
                "Leave it out of the split."
            )

    def _write_features(self, folder: NewFolder, num_vertices: int, order: VertexOrder, tell: ReportStage) -> int:
        rows, dtype = self.features, self.feature_dtype
        width = 0 if rows is None else rows.shape[1]
        with folder.array("features", dtype if width else "<f4", (width,)) as writer:
            if rows is None:
                writer.write(np.empty((num_vertices, 0), np.float32))
                return 0
            for block in order.rows(_features(rows, dtype), dtype, (width,)):
                writer.write(block)
                tell(StageProgress("copying features", writer.num_rows, rows.shape[0], "rows"))
        return width


def _open_rows(rows: Rows, what: str, memory_bytes: int) -> RowFile | None:
    return None if rows is None else open_rows(rows, what, memory_bytes)


def _check_label_type(labels: RowFile) -> None:
    if not labels.shape[0] or is_label_type(labels.dtype, len(labels.shape)):  # without rows the type does not matter
        return
    raise GraphError(f"labels come from {labels.path} as {labels.dtype} of shape {list(labels.shape)}. {LABEL_RULE}")


def _features(rows: RowFile, dtype: np.dtype[Any]) -> Iterator[AnyArray]:
    """The checked blocks of features; for float16 in their own type, so that they are rounded once."""
    first = 0
    for block in rows.blocks():
        values = as_float32(block, "features")
        bad = np.argwhere(~np.isfinite(values))
        if bad.size:
            row, column = bad[0]
            raise GraphError(
                f"the features of vertex {first + row} in {rows.path} have {values[row, column]} in column {column}. "
                "Features are finite numbers: correct that row."
            )
        if dtype == np.float16:
            check_float16_rows(block, first)
        yield block if dtype == np.float16 else values
        first += len(values)


def _write_labels(
    folder: NewFolder, rows: RowFile | None, num_vertices: int, order: VertexOrder, tell: ReportStage
) -> tuple[BoolArray | None, int]:
    """(bool per vertex in file order: whether it has a label, or None for all; number of classes)."""
    if rows is None:
        return None, 0
    dtype, shape = "<i8" if len(rows.shape) == 1 else "|u1", rows.shape[1:]
    labelled, largest = None if shape else np.zeros(num_vertices, np.bool_), -1
    with folder.array("labels", dtype, shape) as writer:
        for block in order.rows(_labels(rows, labelled), dtype, shape):
            largest = largest if shape else max(largest, int(block.max(initial=-1)))
            writer.write(block)
            tell(StageProgress("copying labels", writer.num_rows, rows.shape[0], "rows"))
    return labelled, shape[0] if shape else largest + 1


def _labels(rows: RowFile, labelled: BoolArray | None) -> Iterator[AnyArray]:
    """The checked blocks of labels; ``labelled`` is filled with whether each vertex has one."""
    first = 0
    for block in rows.blocks():
        labels = as_labels(block)
        if labelled is not None:
            _check_labels(rows, labels, first)
            labelled[first : first + len(labels)] = labels >= 0
        yield labels
        first += len(labels)


def _check_labels(rows: RowFile, labels: AnyArray, first: int) -> None:
    bad = np.flatnonzero(labels < -1)
    if bad.size:
        raise GraphError(
            f"the label of vertex {first + bad[0]} in {rows.path} is {labels[bad[0]]}: classes are numbered from 0, "
            "and -1 stands for none. Renumber the labels."
        )
    large = np.flatnonzero(labels >= MAX_CLASSES)
    if large.size:
        reason = class_too_large(int(labels[large[0]]))
        raise GraphError(f"the label of vertex {first + large[0]} in {rows.path} {reason}")


def _mask(name: str, rows: RowFile | None, num_vertices: int) -> BoolArray:
    """The mask of a split, in file order."""
    mask = np.zeros(num_vertices, np.bool_)
    if rows is not None:
        _select(mask, rows, name)
    return mask


def check_disjoint(trained: AnyArray, mask: BoolArray, name: str) -> AnyArray:
    """Returns ``trained``, the packed train_mask; refuses a split that shares a vertex with it."""
    both = trained & np.packbits(mask)
    if both.any():
        byte = int(both.argmax())
        vertex = 8 * byte + int(np.unpackbits(both[byte : byte + 1]).argmax())
        count = int(np.unpackbits(both).sum())
        raise GraphError(
            f"vertex {vertex} is in train_mask and in {name}, and so are {count:,} in all. A score over training "
            "vertices is meaningless: remove them from one of the two."
        )
    return trained


def _write_mask(folder: NewFolder, name: str, mask: BoolArray) -> None:
    with folder.array(name, "|b1") as writer:
        for begin in range(0, mask.size, STEP):
            writer.write(mask[begin : begin + STEP])


def _select(mask: BoolArray, rows: RowFile, name: str) -> None:
    done = 0
    for block in rows.blocks():
        if block.ndim != 1 or block.dtype.kind not in "biu":
            raise GraphError(
                f"{name} comes from {rows.path} as {block.dtype} of shape {list(rows.shape)}: give the numbers of its "
                f"vertices, or one bool per vertex, of shape [{mask.size}]."
            )
        if block.dtype == np.bool_:
            mask[done : done + block.size] = block
        else:
            _check_numbers(block, mask.size, rows, done)
            repeated = mark_selected(mask, block.astype(np.int64))
            if repeated is not None:
                split = f"{name} from {rows.path}"
                raise GraphError(repeated_vertex(split, int(block[repeated]), done + repeated))
        done += block.size


def _check_numbers(numbers: Any, num_vertices: int, rows: RowFile, first: int) -> None:
    bad = np.flatnonzero((numbers < 0) | (numbers >= num_vertices))
    if bad.size:
        raise GraphError(
            f"{rows.path} names vertex {numbers[bad[0]]} (entry {first + bad[0]}), but vertices are numbered 0 to "
            f"{num_vertices - 1}: correct the split."
        )
