"""Values of a vertex table as arrays: texts, and the columns of features that a column of the table becomes."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import ConfigError, DataError, given
from dorylus.graph import FloatArray
from dorylus.ingest.readers.arrow import compute, decoded, pyarrow
from dorylus.ingest.readers.table import InputTable, TableBatch, first_true
from dorylus.ingest.settings import TableColumns

MOST_CATEGORIES = 1024
MISSING_NUMBERS = ("", "na", "n/a", "nan", "null", "none", "-nan")


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
        elif is_text(column.type):
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
            f"{batch.locate(row, self.name)} holds {short(value)}, but the values before it are {before}: correct it, "
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


def kind_of(table: InputTable, name: str) -> str | None:
    """The kind of a column of features by its type; None for CSV, where the first value decides."""
    kind = table.types[name]
    if kind is None:
        return None
    types = pyarrow().types
    if types.is_null(kind):
        return "unknown"
    if types.is_dictionary(kind) or is_text(kind):
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


def _as_number(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


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
    is_known = (is_text, types.is_integer, types.is_boolean, types.is_floating, types.is_null)
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
    if is_text(column.type):  # to bytes and back: texts of a file are not checked before
        column = column.cast(pa.large_string() if types.is_string_view(column.type) else pa.large_binary())
        column = column.cast(pa.large_binary())
    try:
        texts = column.cast(pa.large_string())
    except pa.ArrowInvalid:
        row = next(row for row, value in enumerate(column) if not _is_utf8(value.as_py()))
        raise DataError(
            f"{batch.locate(row, name)} is not UTF-8: {short(column[row].as_py())}. Write the file as UTF-8."
        ) from None
    if not is_text(column.type) or not texts.null_count < len(texts):
        return texts
    empty = compute().equal(compute().binary_length(texts), 0)
    return compute().if_else(empty, None, texts) if compute().any(empty).as_py() else texts


def in_order(names: Any) -> list[str]:
    """Names sorted: as numbers if all are whole numbers, else as texts."""
    try:
        return sorted(names, key=lambda name: (int(name), name))
    except ValueError:
        return sorted(names)


def is_text(kind: Any) -> bool:
    types = pyarrow().types
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    return any(is_one(kind) for is_one in checks)


def is_integer(kind: Any) -> bool:
    return bool(pyarrow().types.is_integer(kind))


def _is_utf8(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def short(value: Any) -> str:
    return repr(value) if len(repr(value)) <= 60 else f"{repr(value)[:60]}..."
