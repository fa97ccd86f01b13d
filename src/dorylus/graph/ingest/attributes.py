"""Features, labels and splits on their way from files to a store, block by block, each value checked as it passes."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dorylus.errors import DataError, GraphError
from dorylus.graph import canonical, half
from dorylus.graph.array_folder import NewFolder
from dorylus.graph.arrays import AnyArray, BoolArray
from dorylus.graph.ingest.progress import Progress, Tell
from dorylus.graph.ingest.row_files import RowFile, open_rows
from dorylus.graph.ingest.settings import IngestSettings

STEP = 1 << 22


@dataclass(frozen=True)
class Attributes:
    """The files that were given; shapes are known, values not yet."""

    features: RowFile | None
    labels: RowFile | None
    splits: dict[str, RowFile | None] = field(default_factory=dict)
    feature_dtype: np.dtype[Any] = np.dtype(np.float32)  # noqa: RUF009 (a constant)

    @classmethod
    def open(cls, settings: IngestSettings) -> "Attributes":
        """The files of the settings, looked at: whether they are there, and of a kind that fits."""
        features = None if settings.features is None else open_rows(settings.features, "features")
        labels = None if settings.labels is None else open_rows(settings.labels, "labels")
        splits = {name: open_rows(path, name) if path else None for name, path in settings.splits.items()}
        if features is not None and len(features.shape) != 2:
            raise DataError(f"{features.path} has shape {list(features.shape)}: features are [vertices, columns].")
        if any(splits.values()) and labels is None:
            raise DataError("a split is given without labels: a split selects vertices that have one. Give labels.")
        return cls(features, labels, splits, half.feature_dtype(settings.feature_dtype))

    def num_vertices(self) -> int | None:
        """As many rows as every file has that holds one a vertex; None where there is none."""
        files = [self.features, self.labels, *(each for each in self.splits.values() if each and each.dtype == bool)]
        rows = {str(each.path): each.shape[0] for each in files if each is not None}
        if len(set(rows.values())) > 1:
            told = ", ".join(f"{path} has {count:,} rows" for path, count in rows.items())
            raise DataError(f"{told}: each holds one row a vertex, so that all have the same number.")
        return next(iter(rows.values()), None)

    @property
    def num_bytes(self) -> int:
        """What the rows take in a store."""
        sizes = ((self.features, self.feature_dtype.itemsize), (self.labels, 8))
        return sum(int(np.prod(each.shape)) * size for each, size in sizes if each is not None)

    def write(self, folder: NewFolder, num_vertices: int, tell: Tell) -> dict[str, int]:
        """Writes all of it; the facts for the manifest."""
        num_features = _write_features(folder, self.features, num_vertices, self.feature_dtype, tell)
        labelled, num_classes = _write_labels(folder, self.labels, num_vertices, tell)
        for name, rows in self.splits.items():
            _write_mask(folder, name, rows, labelled, num_vertices)
        return {"num_features": num_features, "num_classes": num_classes}


def _write_features(
    folder: NewFolder, rows: RowFile | None, num_vertices: int, dtype: np.dtype[Any], tell: Tell
) -> int:
    width = 0 if rows is None else rows.shape[1]
    with folder.array("features", dtype if width else "<f4", (width,)) as writer:
        if rows is None:
            writer.write(np.empty((num_vertices, 0), np.float32))
            return 0
        for block in rows.blocks():
            values = canonical.numbers(block, "features")
            bad = np.argwhere(~np.isfinite(values))
            if bad.size:
                row, column = bad[0]
                raise GraphError(
                    f"the features of vertex {writer.num_rows + row} in {rows.path} have {values[row, column]} in "
                    f"column {column}. Features are finite numbers: mend that row."
                )
            if dtype == np.float16:
                half.check_dense(block, writer.num_rows)
            writer.write(block if dtype == np.float16 else values)  # rounded once, whatever the file holds
            tell(Progress("copying features", writer.num_rows, rows.shape[0], "rows"))
    return width


def _write_labels(
    folder: NewFolder, rows: RowFile | None, num_vertices: int, tell: Tell
) -> tuple[BoolArray | None, int]:
    """(who has a label, or None for all, number of classes)."""
    if rows is None:
        return None, 0
    several = len(rows.shape) == 2
    labelled, largest = None if several else np.zeros(num_vertices, np.bool_), -1
    with folder.array("labels", "|u1" if several else "<i8", rows.shape[1:]) as writer:
        for block in rows.blocks():
            labels = canonical.labels(block)
            if labelled is not None:
                _check_labels(rows, labels, writer.num_rows)
                labelled[writer.num_rows : writer.num_rows + len(labels)] = labels >= 0
                largest = max(largest, int(labels.max(initial=-1)))
            writer.write(labels)
            tell(Progress("copying labels", writer.num_rows, rows.shape[0], "rows"))
    return labelled, rows.shape[1] if several else largest + 1


def _check_labels(rows: RowFile, labels: AnyArray, first: int) -> None:
    bad = np.flatnonzero(labels < -1)
    if bad.size:
        raise GraphError(
            f"the label of vertex {first + bad[0]} in {rows.path} is {labels[bad[0]]}: classes are numbered from 0, "
            "and -1 stands for none. Renumber the labels."
        )


def _write_mask(
    folder: NewFolder, name: str, rows: RowFile | None, labelled: BoolArray | None, num_vertices: int
) -> None:
    mask = np.zeros(num_vertices, np.bool_)
    if rows is not None:
        _select(mask, rows, name)
    if labelled is not None:
        bad = np.flatnonzero(mask & ~labelled) if mask.any() else mask[:0]
        if bad.size:
            raise GraphError(f"{name} selects vertex {bad[0]}, whose label is -1 (none). Leave it out of the split.")
    with folder.array(name, "|b1") as writer:
        for begin in range(0, num_vertices, STEP):
            writer.write(mask[begin : begin + STEP])


def _select(mask: BoolArray, rows: RowFile, name: str) -> None:
    done = 0
    for block in rows.blocks():
        if block.ndim != 1 or block.dtype.kind not in "biu":
            raise GraphError(
                f"{name} comes from {rows.path} as {block.dtype} of shape {list(rows.shape)}: give the numbers of its "
                f"vertices, or a bool a vertex, of shape [{mask.size}]."
            )
        if block.dtype == np.bool_:
            mask[done : done + block.size] = block
        else:
            _check_numbers(block, mask.size, rows, done)
            mask[block.astype(np.int64)] = True
        done += block.size


def _check_numbers(numbers: Any, num_vertices: int, rows: RowFile, first: int) -> None:
    bad = np.flatnonzero((numbers < 0) | (numbers >= num_vertices))
    if bad.size:
        raise GraphError(
            f"{rows.path} names vertex {numbers[bad[0]]} (entry {first + bad[0]}), but vertices are numbered 0 to "
            f"{num_vertices - 1}: mend the split."
        )
