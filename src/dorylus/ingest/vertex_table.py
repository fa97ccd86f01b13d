"""A table of vertices as ids, features, labels and splits, each read in a pass of its own over only its columns.

A first pass (:meth:`VertexTable.open`) checks every value and collects what the later ones need of the whole table:
classes, categories and means. So a category of the first row and of the last get the same columns, and a table of any
size takes the memory of one batch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import ConfigError, DataError, given, unknown_name
from dorylus.graph import MAX_CLASSES, AnyArray, BoolArray, FloatArray
from dorylus.ingest.batches import EdgeBatch, Tokens
from dorylus.ingest.numbering import AnyNumbering, DenseIds
from dorylus.ingest.readers.arrow import compute, decoded, pyarrow, tokens_of_column
from dorylus.ingest.readers.options import PANDAS_INDEX
from dorylus.ingest.readers.table import InputTable, TableBatch, first_true, open_table
from dorylus.ingest.row_files import ComputedRows
from dorylus.process_memory import give_back, resident_bytes

MOST_CATEGORIES = 1024
STRATIFY_ROWS = 1 << 16  # fixed: the split of a seed depends on it
MISSING_NUMBERS = ("", "na", "n/a", "nan", "null", "none", "-nan")
ID_PATTERN = r"^-?(0|[1-9][0-9]{0,17})$"  # "007" is a text
SPLITS = ("train", "val", "test")
SYNONYMS = {
    **dict.fromkeys(("train", "training", "tr"), 1),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), 2),
    **dict.fromkeys(("test", "testing", "te", "holdout"), 3),
    **dict.fromkeys(("", "none", "unused", "unlabeled", "unlabelled"), 0),
}
Fill = float | str | Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class TableColumns:
    """Which columns of a vertex table are what.

    - ``id``: the column of ids; left out, the column "id" if there is one, else rows are numbered from 0.
    - ``label``: the column of classes, texts, whole numbers or booleans; an empty value is no label.
    - ``features``: names, or patterns like "f*"; left out, all columns that are not id, label or split.
    - ``categories``: names or patterns of features whose values are categories although they are numbers.
    - ``split``: a column with train, val and test; or {"train": ..., "val": ..., "test": ...} with, for each, a share
      of the labelled vertices of every class (0.6), a column of booleans, a mask, or a list of ids.
    - ``fill``: what replaces missing features: a number, "mean", or {column: number, "mean" or category}.
    - ``seed``: of a split by shares.
    """

    id: str | None = None
    label: str | None = None
    features: str | Sequence[str] | None = None
    categories: str | Sequence[str] = ()
    split: str | Mapping[str, Any] | None = None
    fill: Fill = None
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.split, Mapping):
            self._check_split(self.split)
        elif not isinstance(self.split, str | None):
            raise ConfigError(
                f"{given('split', self.split)}: a split is a column of vertices, or a share of each name, as in "
                "{'train': 0.6, 'val': 0.2}."
            )
        for setting in ("features", "categories"):
            value = getattr(self, setting)
            if not all(isinstance(name, str) for name in _names_of(value)):
                raise ConfigError(f"{given(setting, value)}: columns of vertices are given by name.")
        if isinstance(self.fill, str) and self.fill != "mean":
            raise ConfigError(
                f"{given('fill', self.fill)}: missing features are filled with a number, 'mean', or {{column: value}}."
            )
        if isinstance(self.seed, bool) or not isinstance(self.seed, Integral) or self.seed < 0:
            raise ConfigError(f"{given('seed', self.seed)}: the seed of a split is a whole number, 0 or more.")

    def _check_split(self, split: Mapping[str, Any]) -> None:
        for name in split:
            if name not in SPLITS:
                raise ConfigError(unknown_name("split", str(name), SPLITS))
        shares = [value for value in split.values() if _is_share(value)]
        if shares and len(shares) < len(split):
            raise ConfigError(f"{given('split', dict(split))}: give shares for all splits, or for none.")
        if any(not 0 <= share <= 1 for share in shares) or sum(shares) > 1 + 1e-9:
            raise ConfigError(f"{given('split', dict(split))}: shares are from 0 to 1, and at most 1 together.")

    @property
    def shares(self) -> dict[str, float] | None:
        """The shares of a split by shares; the test vertices are the rest unless their share is given."""
        if not isinstance(self.split, Mapping) or not any(map(_is_share, self.split.values())):
            return None
        shares = {name: float(self.split.get(name, 0)) for name in SPLITS}
        if "test" not in self.split:
            shares["test"] = max(0.0, 1 - shares["train"] - shares["val"])
        return shares

    def fill_of(self, column: str) -> Any:
        """What replaces a missing value of a column; None: nothing."""
        return self.fill.get(column) if isinstance(self.fill, Mapping) else self.fill


def _names_of(value: Any) -> Sequence[Any]:
    return [] if value is None else value if isinstance(value, Sequence) else [value]


def _is_share(value: Any) -> bool:
    return isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool))


class FeatureColumn:
    """A column of numbers, booleans, lists or categories, and the columns of features that it becomes."""

    def __init__(self, name: str, kind: str | None, columns: TableColumns) -> None:
        self.name, self.kind, self._fill = name, kind, columns.fill_of(name)
        self._given_fill = {name: self._fill} if isinstance(columns.fill, Mapping) else self._fill
        self.width = 1
        self._listed = kind == "list"
        self._width_known = not self._listed
        self._categories: set[str] = set()
        self._sums: Any = 0.0
        self._counts: Any = 0
        self._order: list[str] = []
        self._values: Any = None

    @property
    def names(self) -> list[str]:
        """The names of its columns of features."""
        if self.kind == "category":
            return [f"{self.name}={value}" for value in self._order]
        return [f"{self.name}[{position}]" for position in range(self.width)] if self._listed else [self.name]

    def scan(self, batch: TableBatch) -> None:
        """Check the values, and collect categories and sums."""
        if self.kind in (None, "unknown"):
            self.kind = self._kind_of_text(batch)
        if self.kind == "category":
            self._collect(batch)
        elif self.kind is not None:
            values = self._numbers(batch)
            missing = np.isnan(values)
            if self._fill is None and missing.any():
                row = int(np.argwhere(missing)[0][0])
                raise self._missing_error(batch, row, "a number, or 'mean'")
            if self._fill == "mean":
                self._sums = self._sums + np.where(missing, 0, values).sum(axis=0, dtype=np.float64)
                self._counts = self._counts + (~missing).sum(axis=0)

    def finish(self, table: str) -> None:
        """Fix the columns when all rows were scanned."""
        if self.kind == "category":
            self._order = in_order(self._categories)
            self.width = len(self._order)
            return
        if self.kind in (None, "unknown"):
            if self._fill is None or self._fill == "mean":
                raise DataError(
                    f"{table} has no value in column {self.name!r}: leave it out of the features by naming the others "
                    f"in {given('features', ...)}."
                )
            self.kind = "number"
        self._values = self._fill_values(table)

    def values(self, batch: TableBatch) -> FloatArray:
        """float32 [rows, width]."""
        if self.kind == "category":
            return self._one_hot(batch)
        values = self._numbers(batch)
        if self._values is not None:
            values = np.where(np.isnan(values), self._values, values)
        return values.astype(np.float32)

    def _fill_values(self, table: str) -> Any:
        if self._fill is None:
            return None
        if self._fill == "mean":
            if np.any(np.asarray(self._counts) == 0):
                raise DataError(
                    f"{table} has no value in column {self.name!r}, so it has no mean: leave the column out of the "
                    "features, or fill it with a number."
                )
            return self._sums / self._counts
        try:
            value = float(self._fill)
        except (TypeError, ValueError):
            raise ConfigError(
                f"{given('fill', self._given_fill)} for column {self.name!r}, which holds numbers: give a number, or "
                "'mean'."
            ) from None
        if not abs(value) <= float(np.finfo(np.float32).max):  # nor NaN
            raise ConfigError(
                f"{given('fill', self._given_fill)} for column {self.name!r}: features are finite numbers of 32 bits."
            )
        return value

    def _kind_of_text(self, batch: TableBatch) -> str | None:
        """The kind of a CSV column, by its first value; None while there is none."""
        for text in text_of(batch, self.name).to_pylist():
            word = (text or "").strip().lower()
            if word in MISSING_NUMBERS:
                continue
            if word in ("true", "false"):
                return "bool"
            return "number" if _as_number(word) is not None else "category"
        return None

    def _collect(self, batch: TableBatch) -> None:
        column = text_of(batch, self.name)
        if column.null_count:
            if self._fill is None or not isinstance(self._fill, str) or self._fill == "mean":
                row = first_true(column.is_null().to_numpy(zero_copy_only=False))
                raise self._missing_error(batch, row or 0, f"a category, as in {given('fill', {self.name: 'none'})}")
            self._categories.add(self._fill)
        self._categories.update(column.drop_null().unique().to_pylist())
        if len(self._categories) > MOST_CATEGORIES:
            raise DataError(
                f"{batch.part} has more than {MOST_CATEGORIES:,} different texts in column {self.name!r}, and each "
                f"would be a column of features: leave it out by naming the others in {given('features', ...)}, or "
                "convert it to numbers."
            )

    def _one_hot(self, batch: TableBatch) -> FloatArray:
        pa = pyarrow()
        column = text_of(batch, self.name)
        if column.null_count:
            column = column.fill_null(self._fill)
        codes = compute().index_in(column, value_set=pa.array(self._order, pa.large_string()))
        hot = np.zeros((len(column), self.width), np.float32)
        hot[np.arange(len(column)), codes.to_numpy(zero_copy_only=False)] = 1
        return hot

    def _numbers(self, batch: TableBatch) -> NDArray[Any]:
        """[rows, width] in the column's precision, at least float32; NaN where a value is missing."""
        column = batch.columns[self.name]
        if self._listed:
            values = self._lists(batch, column)
        elif _is_text(column.type):
            values = self._parsed(batch)[:, None]
        else:
            values = _float_values(column)[:, None]
        with np.errstate(over="ignore"):
            bad = np.isinf(values.astype(np.float32))
        if bad.any():
            row, position = np.argwhere(bad)[0]
            raise DataError(
                f"{batch.locate(int(row), self.name)} holds {values[row, position]}: features are finite numbers of "
                "32 bits. Correct it, or leave it empty."
            )
        return values

    def _parsed(self, batch: TableBatch) -> NDArray[np.float64]:
        pc, pa = compute(), pyarrow()
        text = pc.utf8_lower(pc.utf8_trim_whitespace(text_of(batch, self.name)))
        kept = pc.if_else(pc.is_in(text, value_set=pa.array(MISSING_NUMBERS, pa.large_string())), None, text)
        if self.kind == "bool":
            known = pc.index_in(kept, value_set=pa.array(["false", "true"], pa.large_string()))
            wrong = first_true(pc.and_(pc.is_null(known), pc.is_valid(kept)).to_numpy(zero_copy_only=False))
            if wrong is not None:
                raise self._mixed_error(batch, wrong, "true or false")
            return _float_values(known)
        try:
            return _float_values(kept.cast(pa.float64()))
        except pa.ArrowInvalid:
            numbers = [np.nan if each is None else _as_number(each) for each in kept.to_pylist()]
        wrong = next((row for row, each in enumerate(numbers) if each is None), None)
        if wrong is not None:
            raise self._mixed_error(batch, wrong, "numbers")
        return np.array(numbers, np.float64)

    def _mixed_error(self, batch: TableBatch, row: int, before: str) -> DataError:
        value = text_of(batch, self.name)[row].as_py()
        return DataError(
            f"{batch.locate(row, self.name)} holds {_short(value)}, but the values before it are {before}: correct it, "
            f"leave it empty, or read the column as categories by {given('categories', self.name)}."
        )

    def _lists(self, batch: TableBatch, column: Any) -> NDArray[Any]:
        pc = compute()
        missing = column.is_null().to_numpy(zero_copy_only=False)
        lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
        if not self._width_known and not missing.all():
            self.width, self._width_known = int(lengths[~missing][0]), True
            if not self.width:
                raise DataError(
                    f"{batch.locate(int(np.flatnonzero(~missing)[0]), self.name)} holds an empty list: write its "
                    f"numbers, or leave the column out by naming the others in {given('features', ...)}."
                )
        wrong = first_true((lengths != self.width) & ~missing)
        if wrong is not None:
            raise DataError(
                f"{batch.locate(wrong, self.name)} holds a list of {lengths[wrong]}, but the first row has one of "
                f"{self.width}: the lists of all rows are equally long."
            )
        values = np.full((len(column), self.width), np.nan)
        flat = _float_values(pc.list_flatten(column))
        values[~missing] = flat.reshape(-1, self.width)
        return values

    def _missing_error(self, batch: TableBatch, row: int, cure: str) -> DataError:
        return DataError(
            f"{batch.locate(row, self.name)} is missing: fill it in, or say by {given('fill', ...)} what stands for "
            f"missing values ({cure})."
        )


def _short(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}..."


def _as_number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def _is_text(kind: Any) -> bool:
    types = pyarrow().types
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    return any(is_one(kind) for is_one in checks)


def _float_values(column: Any) -> NDArray[Any]:
    """The numbers of an Arrow column, NaN where one is missing; float32 stays float32."""
    pa = pyarrow()
    types = pa.types
    if types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif types.is_decimal(column.type):
        column = column.cast(pa.float64())
    values = np.asarray(column.to_numpy(zero_copy_only=False))
    if values.dtype.kind == "f":
        return values.astype(np.float32) if values.dtype == np.float16 else values
    return values.astype(np.float64)


def text_of(batch: TableBatch, name: str) -> Any:
    """The values of a column as Arrow texts; missing and empty ones are null, whole numbers have no fraction."""
    pa, column = pyarrow(), batch.columns[name]
    types = pa.types
    if types.is_dictionary(column.type):
        return text_of(batch._replace(columns={name: decoded(column)}), name)
    is_known = (_is_text, types.is_integer, types.is_boolean, types.is_floating, types.is_null)
    if not any(is_one(column.type) for is_one in is_known):
        raise DataError(
            f"{batch.part}: column {name!r} holds {column.type}, but ids, classes, categories and splits are texts, "
            "whole numbers or booleans. Convert it, or choose another column."
        )
    if types.is_floating(column.type):
        numbers = _float_values(column).astype(np.float64)
        missing = np.isnan(numbers)
        wrong = first_true(~missing & (np.floor(numbers) != numbers) | (np.abs(np.nan_to_num(numbers)) > 2.0**53))
        if wrong is not None:
            raise DataError(
                f"{batch.locate(wrong, name)} holds {numbers[wrong]}: classes and categories are texts or whole "
                "numbers. Correct it, or choose another column."
            )
        column = pa.array(np.where(missing, 0, numbers).astype(np.int64), mask=missing)
    if _is_text(column.type):  # to bytes and back: texts of a file are not checked before
        column = column.cast(pa.large_string() if types.is_string_view(column.type) else pa.large_binary())
        column = column.cast(pa.large_binary())
    try:
        texts = column.cast(pa.large_string())
    except pa.ArrowInvalid:
        row = next(row for row, value in enumerate(column) if not _is_utf8(value.as_py()))
        raise DataError(
            f"{batch.locate(row, name)} is not UTF-8: {_short(column[row].as_py())}. Write the file as UTF-8."
        ) from None
    if not _is_text(column.type) or not texts.null_count < len(texts):
        return texts
    empty = compute().equal(compute().binary_length(texts), 0)
    return compute().if_else(empty, None, texts) if compute().any(empty).as_py() else texts


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def in_order(names: Any) -> list[str]:
    """Names sorted: as numbers if all are whole numbers, else as texts."""
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


class TableIds:
    """The ids of a vertex table as edges from each to itself: a list of vertices for a numbering."""

    total_bytes: int | None = None

    def __init__(self, table: InputTable, column: str, *, strings: bool) -> None:
        self._table, self._column, self.strings = table, column, strings

    def __iter__(self) -> Iterator[EdgeBatch]:
        for batch in self._table.batches([self._column]):
            ids = self._names(batch) if self.strings else self._numbers(batch)
            yield EdgeBatch(ids, ids, None, 0, _locator(batch, self._column))

    def _names(self, batch: TableBatch) -> Tokens:
        texts = text_of(batch, self._column)
        if self._table.types[self._column] is None:
            texts = compute().utf8_trim_whitespace(texts)
        _check_ids_present(batch, self._column, texts)
        return tokens_of_column(texts)

    def _numbers(self, batch: TableBatch) -> NDArray[np.int64]:
        pa, column = pyarrow(), batch.columns[self._column]
        if _is_text(column.type):
            column = compute().utf8_trim_whitespace(text_of(batch, self._column))
        _check_ids_present(batch, self._column, column)
        try:
            return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
        except pa.ArrowInvalid:
            row = next(row for row, value in enumerate(column.to_pylist()) if not _is_int64(value))
            raise DataError(
                f"{batch.locate(row, self._column)} holds {_short(column[row].as_py())}, but the ids of the edges are "
                f"whole numbers of 64 bits: correct it, or read all ids as texts by {given('ids', 'strings')}."
            ) from None


def _locator(batch: TableBatch, column: str) -> Callable[[int], str]:
    return lambda position: batch.locate(position, column)


def _check_ids_present(batch: TableBatch, name: str, column: Any) -> None:
    row = first_true(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else None
    if row is None and _is_text(column.type):
        row = first_true(compute().equal(compute().binary_length(column), 0).to_numpy(zero_copy_only=False))
    if row is not None:
        raise DataError(f"{batch.locate(row, name)} is missing: every vertex has an id. Fill it in, or drop the row.")


def _is_int64(value: Any) -> bool:
    try:
        return -(2**63) <= int(value) < 2**63 and "_" not in str(value)
    except (TypeError, ValueError):
        return False


@dataclass(eq=False)
class VertexTable:
    """A scanned table of vertices."""

    table: InputTable
    columns: TableColumns
    id: str | None
    num_rows: int = 0
    features: list[FeatureColumn] = field(default_factory=list)
    index: str | None = None  # the index of pandas, which is no feature
    class_counts: Counter[str] = field(default_factory=Counter)
    resident_bytes: int = 0

    @classmethod
    def open(cls, source: Any, columns: TableColumns) -> "VertexTable":
        """The table, with every value checked."""
        table = open_table(source, "vertices")
        vertices = cls(table, columns, _id_column(table, columns))
        vertices._choose_features()
        vertices._scan()
        return vertices

    @property
    def class_names(self) -> tuple[str, ...]:
        """The classes in the order of their numbers."""
        return tuple(in_order(self.class_counts))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of features."""
        return tuple(name for column in self.features for name in column.names)

    def ids_are_texts(self) -> bool:
        """Whether the ids are texts; those of a CSV file are numbers if all of the first batch are."""
        if self.id is None:
            return False
        kind = self.table.types[self.id]
        if kind is not None:
            return not _is_integer(getattr(kind, "value_type", kind))
        first = next(iter(self.table.batches([self.id])), None)
        if first is None:
            return False
        texts = compute().utf8_trim_whitespace(text_of(first, self.id))
        return not compute().all(compute().match_substring_regex(texts.drop_null(), ID_PATTERN)).as_py()

    def ids(self, *, strings: bool) -> TableIds:
        """The ids, as texts or as numbers."""
        assert self.id is not None
        return TableIds(self.table, self.id, strings=strings)

    def feature_rows(self) -> ComputedRows | None:
        """The features; None if no column is one."""
        names = self.feature_names
        if not names:
            return None
        return self._rows((self.num_rows, len(names)), np.dtype(np.float32), self._feature_blocks, names)

    def label_rows(self) -> ComputedRows | None:
        """The labels; None if no column holds them."""
        if self.columns.label is None:
            return None
        return self._rows((self.num_rows,), np.dtype(np.int64), self._label_blocks, self.class_names)

    def split_rows(self, numbering: AnyNumbering) -> dict[str, Any]:
        """The splits by name, for the settings of an ingest; ids are looked up in a numbering of the table."""
        split = self.columns.split
        if split is None:
            return {}
        if self.columns.label is None:
            raise ConfigError(
                f"{given('split')} is given without {given('label')}: a split selects vertices that have a label."
            )
        if isinstance(split, Mapping) and self.columns.shares is None:
            return {name: self._chosen(name, value, numbering) for name, value in split.items()}
        codes = self._stratified if self.columns.shares is not None else self._column_codes
        return {name: self._mask(codes, number) for number, name in enumerate(SPLITS, start=1)}

    def _rows(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        blocks: Callable[[], Iterator[AnyArray]],
        names: tuple[str, ...] = (),
    ) -> ComputedRows:
        return ComputedRows(self.table.name, shape, dtype, self.resident_bytes, blocks, names)

    def _choose_features(self) -> None:
        columns = self.columns
        others = {self.id, columns.label, *self._split_columns()}
        for name in others - {None}:
            _check_column(self.table, str(name))
        listed = [] if columns.features is None else _listed(columns.features)
        matching = self.table.columns if columns.features is None else _matching(self.table, listed)
        chosen = [name for name in matching if name not in others]  # a pattern may match more than features
        for name in [each for each in chosen if each in PANDAS_INDEX and each not in listed]:
            if name != self.table.columns[0]:
                raise _unnamed_error(self.table.name, name, "is not the first column")
            self.index = name
            chosen.remove(name)
        for name in listed:
            if name in others:
                raise ConfigError(
                    f"{given('features')} name column {name!r} of {self.table.name}, which holds the id, label or "
                    "split of vertices: a model that sees it learns nothing else. Leave it out."
                )
        categories = set(_matching(self.table, columns.categories))
        if isinstance(columns.fill, Mapping):
            for name in columns.fill:
                _check_column(self.table, name)
        for name in chosen:
            kind = "category" if name in categories else _kind_of(self.table, name)
            self.features.append(FeatureColumn(name, kind, columns))

    def _split_columns(self) -> list[str]:
        split = self.columns.split
        named = [split] if isinstance(split, str) else list(split.values()) if isinstance(split, Mapping) else []
        return [each for each in named if isinstance(each, str)]

    def _scan(self) -> None:
        label, split = self.columns.label, self.columns.split
        single = [each for each in (label, self.index) if each is not None]
        names = [column.name for column in self.features] + single + self._split_columns()
        for batch in self.table.batches(names or self.table.columns[:1]):
            for column in self.features:
                column.scan(batch)
            if label is not None:
                self._count_classes(batch, label)
            if self.index is not None:
                _check_counts(batch, self.index, self.num_rows)
            for name in self._split_columns():
                _split_codes(batch, name, flags=name != split)
            self.num_rows += len(next(iter(batch.columns.values())))
            self.resident_bytes = max(self.resident_bytes, resident_bytes())
        if not self.num_rows:
            raise DataError(f"{self.table.name} has no rows: a table of vertices has one row per vertex.")
        give_back()
        for column in self.features:
            column.finish(self.table.name)
        if label is not None and not self.class_counts:
            raise DataError(f"{self.table.name} has no value in column {label!r}: give a column of labels.")

    def _count_classes(self, batch: TableBatch, label: str) -> None:
        counts = text_of(batch, label).drop_null().value_counts()
        self.class_counts.update(dict(zip(counts.field(0).to_pylist(), counts.field(1).to_pylist(), strict=True)))
        if len(self.class_counts) > MAX_CLASSES:
            raise DataError(
                f"{batch.part} has more than {MAX_CLASSES:,} different labels in column {label!r}: is it a column of "
                "ids or measurements? Labels are classes: choose another column."
            )

    def _feature_blocks(self) -> Iterator[AnyArray]:
        for batch in self.table.batches(column.name for column in self.features):
            yield np.concatenate([column.values(batch) for column in self.features], axis=1)

    def _label_blocks(self) -> Iterator[NDArray[np.int64]]:
        for batch in self.table.batches([str(self.columns.label)]):
            yield self._labels_of(batch)

    def _labels_of(self, batch: TableBatch) -> NDArray[np.int64]:
        """The number of each row's class, -1 for none."""
        pa = pyarrow()
        classes = pa.array(self.class_names, pa.large_string())
        codes = compute().index_in(text_of(batch, str(self.columns.label)), value_set=classes)
        return np.asarray(codes.fill_null(-1).to_numpy(zero_copy_only=False), np.int64)

    def _mask(self, codes: Callable[[], Iterator[NDArray[np.uint8]]], number: int) -> ComputedRows:
        return self._rows((self.num_rows,), np.dtype(np.bool_), lambda: (block == number for block in codes()))

    def _column_codes(self) -> Iterator[NDArray[np.uint8]]:
        """0 for no split, 1 to 3 for train, val and test; a vertex without a label is in none."""
        split = str(self.columns.split)
        for batch in self.table.batches([split, str(self.columns.label)]):
            codes = _split_codes(batch, split, flags=False)
            codes[self._labels_of(batch) < 0] = 0
            yield codes

    def _chosen(self, name: str, value: Any, numbering: AnyNumbering) -> Any:
        """The mask or the vertex numbers of one split."""
        if isinstance(value, str):
            return self._rows((self.num_rows,), np.dtype(np.bool_), lambda: self._flags(value))
        array = np.asarray(value)
        if array.dtype == np.bool_:
            if array.shape != (self.num_rows,):
                raise ConfigError(
                    f"split[{name!r}] is a mask of shape {list(array.shape)}, but {self.table.name} has "
                    f"{self.num_rows:,} rows: give one bool per row."
                )
            return array
        if array.ndim != 1 or array.dtype.kind not in "iuUOST":
            raise ConfigError(
                f"split[{name!r}] is {array.dtype} of shape {list(array.shape)}: give a list of ids, one bool per row, "
                "a share like 0.6, or the name of a column of booleans."
            )
        return self._numbers_of(name, array, numbering)

    def _numbers_of(self, name: str, ids: AnyArray, numbering: AnyNumbering) -> NDArray[np.int64]:
        """The vertex numbers of ids; whole numbers are positions of rows where ids are texts."""
        if isinstance(numbering, DenseIds) or (ids.dtype.kind in "iu" and numbering.strings):
            numbers = ids.astype(np.int64) if ids.dtype.kind in "iu" else np.full(ids.size, -1)
        elif numbering.strings:
            numbers = numbering.find(Tokens.of(str(each) for each in ids)).astype(np.int64)
        else:
            numeric = [int(each) if _is_int64(each) else None for each in ids.tolist()]
            numbers = numbering.find(np.array([0 if each is None else each for each in numeric], np.int64))
            numbers = np.where([each is None for each in numeric], -1, numbers)
        wrong = first_true((numbers < 0) | (numbers >= self.num_rows))
        if wrong is not None:
            raise DataError(
                f"split[{name!r}] names {_short(ids[wrong].item())} (entry {wrong:,}), which is not among the "
                f"{self.num_rows:,} vertices of {self.table.name}: correct the split."
            )
        firsts = np.unique(numbers, return_index=True)[1]
        if firsts.size < numbers.size:
            entry = int(np.setdiff1d(np.arange(numbers.size), firsts)[0])
            raise DataError(
                f"split[{name!r}] names {_short(ids[entry].item())} twice, again in entry {entry:,}: list every vertex "
                "once."
            )
        return numbers

    def _flags(self, column: str) -> Iterator[BoolArray]:
        for batch in self.table.batches([column, str(self.columns.label)]):
            yield (_split_codes(batch, column, flags=True) == 1) & (self._labels_of(batch) >= 0)

    def _stratified(self) -> Iterator[NDArray[np.uint8]]:
        """The codes of a split by shares: of every class, the shares of its vertices, chosen at random by the seed.

        What is left of each class is dealt to blocks of fixed size by a hypergeometric draw, so that no more than a
        block is in memory.
        """
        shares, random = self.columns.shares, np.random.default_rng(self.columns.seed)
        assert shares is not None
        left = np.array([_quotas(self.class_counts[name], shares) for name in self.class_names], np.int64)
        for labels in _rechunked(self._label_blocks(), STRATIFY_ROWS):
            codes = np.zeros(labels.size, np.uint8)
            for number in np.unique(labels[labels >= 0]):
                rows = np.flatnonzero(labels == number)
                drawn = random.multivariate_hypergeometric(left[number], rows.size, method="marginals")
                left[number] -= drawn
                codes[rows] = random.permutation(np.repeat(np.array([1, 2, 3, 0], np.uint8), drawn))
            yield codes


def _quotas(count: int, shares: Mapping[str, float]) -> list[int]:
    """The vertices of a class for train, val, test and none; at least one to train on if that has a share."""
    train = min(count, max(round(shares["train"] * count), 1 if shares["train"] else 0))
    val = min(count - train, round(shares["val"] * count))
    rest = count - train - val
    # The last split with a share takes what rounding leaves.
    test = rest if sum(shares.values()) > 1 - 1e-9 else min(rest, round(shares["test"] * count))
    return [train, val, test, rest - test]


def _rechunked(blocks: Iterator[AnyArray], size: int) -> Iterator[AnyArray]:
    """The same rows in blocks of ``size``; the last may be shorter."""
    kept: list[AnyArray] = []
    for block in blocks:
        kept.append(block)
        while sum(map(len, kept)) >= size:
            joined = np.concatenate(kept)
            yield joined[:size]
            kept = [joined[size:]]
    rest = np.concatenate(kept) if kept else np.empty(0, np.int64)
    if rest.size:
        yield rest


def _split_codes(batch: TableBatch, name: str, *, flags: bool) -> NDArray[np.uint8]:
    """The split of each row: 0 for none, 1 to 3 for train, val and test; of ``flags`` 1 for true."""
    known = {"true": 1, "1": 1, "yes": 1, "false": 0, "0": 0, "no": 0, "": 0} if flags else SYNONYMS
    texts = compute().utf8_lower(compute().utf8_trim_whitespace(text_of(batch, name).fill_null("")))
    codes = np.empty(len(texts), np.uint8)
    unique = texts.dictionary_encode()
    values = []
    for position, value in enumerate(unique.dictionary.to_pylist()):
        if value not in known:
            row = first_true(unique.indices.to_numpy(zero_copy_only=False) == position) or 0
            listed = "true or false" if flags else "train, val, test, their usual synonyms, or empty"
            raise DataError(
                f"{batch.locate(row, name)} holds {_short(value)}: a split is {listed}. Correct it, or choose another "
                "column."
            )
        values.append(known[value])
    codes[:] = np.array(values, np.uint8)[unique.indices.to_numpy(zero_copy_only=False)] if values else 0
    return codes


def _id_column(table: InputTable, columns: TableColumns) -> str | None:
    name = "id" if columns.id is None and "id" in table.columns else columns.id
    if name is None:
        return None
    _check_column(table, name)
    kind = table.types[name]
    value = kind.value_type if kind is not None and pyarrow().types.is_dictionary(kind) else kind
    if kind is not None and not _is_integer(value) and not _is_text(value):
        raise DataError(
            f"{table.name}: column {name!r} holds {kind}, but ids are whole numbers or texts. Convert it, or choose "
            "another column."
        )
    return name


def _check_counts(batch: TableBatch, name: str, num_rows: int) -> None:
    """Refuse an index of pandas whose values are not the numbers of the rows, in its file or in all files."""
    pa, values = pyarrow(), batch.columns[name]
    if _is_text(values.type):
        values = text_of(batch, name).fill_null("")
    wrong = 0 if len(values) else None
    if _is_integer(values.type) or _is_text(values.type):
        for first in (num_rows, batch.first):
            counted = pa.array(np.arange(first, first + len(values))).cast(pa.large_string())
            equal = compute().equal(values.cast(pa.large_string()), counted).fill_null(False)
            wrong = first_true(~equal.to_numpy(zero_copy_only=False))
            if wrong is None:
                return
    if wrong is not None:
        found = f"holds {_short(values[wrong].as_py())} instead of the number of the row"
        raise _unnamed_error(batch.locate(wrong, name), name, found)


def _unnamed_error(where: str, name: str, found: str) -> DataError:
    cure = "name it in the first line" if not name else "rename it"
    return DataError(
        f"{where}: a column {name!r} is the index of pandas only if it is the first and counts 0, 1, 2, ..., but this "
        f"one {found}. If it is a feature, {cure}; if not, remove it, or name the features by {given('features', ...)}."
    )


def _is_integer(kind: Any) -> bool:
    return bool(pyarrow().types.is_integer(kind))


def _check_column(table: InputTable, name: str) -> None:
    if name not in table.columns:
        raise DataError(f"{table.name}: {unknown_name('column', name, table.columns)}")


def _listed(patterns: str | Sequence[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _matching(table: InputTable, patterns: str | Sequence[str]) -> list[str]:
    """The columns whose names match, in the order of the patterns; a pattern without a match is refused."""
    chosen: dict[str, None] = {}
    for pattern in _listed(patterns):
        exact = [pattern] if pattern in table.columns else []
        found = exact or [name for name in table.columns if fnmatchcase(name, pattern)]
        if not found:
            raise DataError(f"{table.name}: {unknown_name('column', pattern, table.columns)}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)


def _kind_of(table: InputTable, name: str) -> str | None:
    """The kind of a column of features by its type; None for CSV, where the first value decides."""
    kind = table.types[name]
    if kind is None:
        return None
    types = pyarrow().types
    if types.is_null(kind):
        return "unknown"
    if types.is_dictionary(kind) or _is_text(kind):
        return "category"
    if any(is_one(kind) for is_one in (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)):
        return "number"
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        value = kind.value_type
        if types.is_integer(value) or types.is_floating(value) or types.is_boolean(value):
            return "list"
    raise DataError(
        f"{table.name}: column {name!r} holds {kind}, but features are numbers, booleans, lists of numbers or texts. "
        f"Convert it, or leave it out by naming the others in {given('features', ...)}."
    )
