"""The edges of Arrow's own files and streams (.arrow, .feather)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dorylus.errors import DataError
from dorylus.graph.ingest.batches import EdgeBatch, Held
from dorylus.graph.ingest.readers.arrow import compute, damage_named, pyarrow
from dorylus.graph.ingest.readers.arrow_columns import ArrowColumns
from dorylus.graph.ingest.readers.arrow_sizes import MessageSize, chosen_buffers, held_bytes, message_sizes
from dorylus.graph.ingest.readers.edge_file import NoEdgesError
from dorylus.graph.ingest.readers.mapped_file import MappedFile
from dorylus.graph.ingest.readers.options import ReadOptions

MAGIC, MAGIC_V1 = b"ARROW1", b"FEA1"
FILE_START = 8  # the magic, and zeros
SMALL_BYTES = 64 << 10  # a file of more has rows


class ArrowEdges:
    """The edges of a file or stream in Arrow's format; a record batch that is packed is unpacked whole."""

    num_edges: int | None = None

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.path = path
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
        if start.startswith(MAGIC_V1):
            raise DataError(
                f"{path} is of Feather's first version, which had no batches. Write it again, as with "
                "pyarrow.feather.write_feather(table, path)."
            )
        self._is_file = start == MAGIC
        with damage_named(path), MappedFile(path) as mapped:
            mapped.sparsely()
            schema = self._open(mapped).schema
            self._columns = ArrowColumns(path, schema, options)
            sizes = self._sizes(mapped, schema)
            if len(mapped.content) <= SMALL_BYTES and self._open(mapped).read_all().num_rows == 0:
                raise NoEdgesError(f"{path} holds no edge. Leave it out, or write it again.")
        batches = [size for size in sizes if size.dictionary is None]
        self._ends_at = [size.end for size in batches]
        self._dictionaries_end = batches[0].begin if batches else 0
        # To choose columns, pyarrow copies them: worth it only where the others would be unpacked.
        chosen = sorted(set(self._columns.positions))
        packed = any(size.unpacked for size in batches)
        self._chosen = chosen if packed and len(chosen) < len(schema.names) else None
        self.held = Held(
            held_bytes(sizes, copied=self._chosen is not None),
            f"to unpack dictionaries and the largest record batch of {path}",
            "write the file with smaller record batches, and names without dictionaries",
        )
        self.strings, self.weighted = self._columns.strings, self._columns.weighted

    def __iter__(self) -> Iterator[EdgeBatch]:
        row = 0
        with MappedFile(self.path) as mapped:
            batches = self._batches(mapped)
            while True:
                with damage_named(self.path):
                    batch, begin, end = next(batches, (None, 0, 0))
                if batch is None:
                    return
                for edges in self._columns.batches(batch, row, begin, end):
                    yield edges
                    mapped.at(edges.bytes_read, self._dictionaries_end)
                row += batch.num_rows

    def _sizes(self, mapped: MappedFile, schema: Any) -> list[MessageSize]:
        """What all record batches and dictionaries take."""
        content = pyarrow().BufferReader(mapped.content)
        num_batches = self._open(mapped).num_record_batches if self._is_file else None
        content.seek(FILE_START if self._is_file else 0)
        return list(message_sizes(content, num_batches, chosen_buffers(schema.types, self._columns.positions)))

    def _batches(self, mapped: MappedFile) -> Iterator[tuple[Any, int, int]]:
        """(record batch, where it begins and ends in the file)."""
        reader = self._open(mapped, self._chosen)
        size, count = len(mapped.content), len(self._ends_at)
        for number, end in enumerate(self._ends_at):
            batch = reader.get_batch(number) if self._is_file else reader.read_next_batch()
            for name in self._columns.names:
                _check(batch.column(name))
            begin = self._ends_at[number - 1] if number else 0
            yield batch, begin, size if self._is_file and number == count - 1 else end

    def _open(self, mapped: MappedFile, columns: list[int] | None = None) -> Any:
        """A reader of some columns, or of all; what is not packed it takes as it lies in the file."""
        ipc, content = pyarrow().ipc, pyarrow().BufferReader(mapped.content)
        options = ipc.IpcReadOptions(use_threads=False, included_fields=columns)
        return (ipc.open_file if self._is_file else ipc.open_stream)(content, options=options)


def _check(column: Any) -> None:
    """Refuse a column whose offsets or indices lead out of it: pyarrow takes what lies in a file on trust.

    Whether names are UTF-8 is looked at later, where the row is known.
    """
    pa = pyarrow()
    kind = column.type
    if pa.types.is_dictionary(kind):
        column.validate()
        if len(column.indices):
            lowest, highest = (each.as_py() for each in compute().min_max(column.indices).values())
            if lowest is not None and not 0 <= lowest <= highest < len(column.dictionary):
                raise ValueError(f"an index of a dictionary of {len(column.dictionary)} leads out of it.")
        _check(column.dictionary)
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column.validate()
        column.view(pa.binary() if pa.types.is_string(kind) else pa.large_binary()).validate(full=True)
    else:
        column.validate(full=not (pa.types.is_integer(kind) or pa.types.is_floating(kind)))
