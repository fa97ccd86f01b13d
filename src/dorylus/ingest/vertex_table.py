"""A table of vertices as ids, features, labels and splits, each read in a pass of its own over only its columns.

A first pass (:meth:`VertexTable.open`) checks every value and collects what the later ones need of the whole table:
classes, categories and means. So a category of the first row and of the last get the same columns, and a table of any
size takes the memory of one batch.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import ConfigError, DataError, given, unknown_name
from dorylus.graph import MAX_CLASSES, AnyArray, BoolArray
from dorylus.ingest.batches import EdgeBatch, Tokens
from dorylus.ingest.numbering import AnyNumbering, DenseIds
from dorylus.ingest.readers.arrow import compute, pyarrow, tokens_of_column
from dorylus.ingest.readers.options import PANDAS_INDEX
from dorylus.ingest.readers.table import InputTable, TableBatch, first_true, open_table
from dorylus.ingest.row_files import ComputedRows
from dorylus.ingest.settings import SPLITS, TableColumns
from dorylus.ingest.table_values import FeatureColumn, in_order, is_integer, is_text, kind_of, short, text_of
from dorylus.process_memory import give_back, resident_bytes

STRATIFY_ROWS = 1 << 16  # fixed: the split of a seed depends on it
ID_PATTERN = r"^-?(0|[1-9][0-9]{0,17})$"  # "007" is a text
SYNONYMS = {
    **dict.fromkeys(("train", "training", "tr"), 1),
    **dict.fromkeys(("val", "valid", "validation", "dev", "eval"), 2),
    **dict.fromkeys(("test", "testing", "te", "holdout"), 3),
    **dict.fromkeys(("", "none", "unused", "unlabeled", "unlabelled"), 0),
}


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
        if is_text(column.type):
            column = compute().utf8_trim_whitespace(text_of(batch, self._column))
        _check_ids_present(batch, self._column, column)
        try:
            return np.asarray(column.cast(pa.int64()).to_numpy(zero_copy_only=False), np.int64)
        except pa.ArrowInvalid:
            row = next(row for row, value in enumerate(column.to_pylist()) if not _is_int64(value))
            raise DataError(
                f"{batch.locate(row, self._column)} holds {short(column[row].as_py())}, but the ids of the edges are "
                f"whole numbers of 64 bits: correct it, or read all ids as texts by {given('ids', 'strings')}."
            ) from None


def _locator(batch: TableBatch, column: str) -> Callable[[int], str]:
    return lambda position: batch.locate(position, column)


def _check_ids_present(batch: TableBatch, name: str, column: Any) -> None:
    row = first_true(column.is_null().to_numpy(zero_copy_only=False)) if column.null_count else None
    if row is None and is_text(column.type):
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
            return not is_integer(getattr(kind, "value_type", kind))
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
        listed = [] if columns.features is None else _patterns(columns.features)
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
            kind = "category" if name in categories else kind_of(self.table, name)
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
                f"split[{name!r}] names {short(ids[wrong].item())} (entry {wrong:,}), which is not among the "
                f"{self.num_rows:,} vertices of {self.table.name}: correct the split."
            )
        firsts = np.unique(numbers, return_index=True)[1]
        if firsts.size < numbers.size:
            entry = int(np.setdiff1d(np.arange(numbers.size), firsts)[0])
            raise DataError(
                f"split[{name!r}] names {short(ids[entry].item())} twice, again in entry {entry:,}: list every vertex "
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
                f"{batch.locate(row, name)} holds {short(value)}: a split is {listed}. Correct it, or choose another "
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
    if kind is not None and not is_integer(value) and not is_text(value):
        raise DataError(
            f"{table.name}: column {name!r} holds {kind}, but ids are whole numbers or texts. Convert it, or choose "
            "another column."
        )
    return name


def _check_counts(batch: TableBatch, name: str, num_rows: int) -> None:
    """Refuse an index of pandas whose values are not the numbers of the rows, in its file or in all files."""
    pa, values = pyarrow(), batch.columns[name]
    if is_text(values.type):
        values = text_of(batch, name).fill_null("")
    wrong = 0 if len(values) else None
    if is_integer(values.type) or is_text(values.type):
        for first in (num_rows, batch.first):
            counted = pa.array(np.arange(first, first + len(values))).cast(pa.large_string())
            equal = compute().equal(values.cast(pa.large_string()), counted).fill_null(False)
            wrong = first_true(~equal.to_numpy(zero_copy_only=False))
            if wrong is None:
                return
    if wrong is not None:
        found = f"holds {short(values[wrong].as_py())} instead of the number of the row"
        raise _unnamed_error(batch.locate(wrong, name), name, found)


def _unnamed_error(where: str, name: str, found: str) -> DataError:
    cure = "name it in the first line" if not name else "rename it"
    return DataError(
        f"{where}: a column {name!r} is the index of pandas only if it is the first and counts 0, 1, 2, ..., but this "
        f"one {found}. If it is a feature, {cure}; if not, remove it, or name the features by {given('features', ...)}."
    )


def _check_column(table: InputTable, name: str) -> None:
    if name not in table.columns:
        raise DataError(f"{table.name}: {unknown_name('column', name, table.columns)}")


def _patterns(patterns: str | Sequence[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _matching(table: InputTable, patterns: str | Sequence[str]) -> list[str]:
    """The columns whose names match, in the order of the patterns; a pattern without a match is refused."""
    chosen: dict[str, None] = {}
    for pattern in _patterns(patterns):
        exact = [pattern] if pattern in table.columns else []
        found = exact or [name for name in table.columns if fnmatchcase(name, pattern)]
        if not found:
            raise DataError(f"{table.name}: {unknown_name('column', pattern, table.columns)}")
        chosen.update(dict.fromkeys(found))
    return list(chosen)
