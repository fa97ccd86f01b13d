"""What an ingest may take of memory and will take of the disk, asked before any work and when edges were read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dorylus.errors import ConfigError
from dorylus.graph.ingest.attributes import Attributes
from dorylus.graph.ingest.batches import EdgeSource, Held, Numbering
from dorylus.graph.ingest.degree_order import BYTES_PER_VERTEX
from dorylus.graph.ingest.ids import Dense, TableFullError
from dorylus.graph.ingest.memory import IDS_SHARE, NOTHING_HELD, Shares, check_runs, least_for_ids, shares_of
from dorylus.graph.ingest.settings import IngestSettings
from dorylus.graph.ingest.space import Counts, Space, check_space, record_bytes
from dorylus.graph.sizes import format_bytes


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The limits of one ingest to ``folder``; the process had ``resident`` bytes, ``ids`` are left to the numbering.

    ``held`` is what the source needs to be read, ``ids_for`` what the numbering takes for a number of ids.
    """

    folder: Path
    settings: IngestSettings
    attributes: Attributes
    weighted: bool
    resident: int
    ids: int
    held: Held = NOTHING_HELD
    ids_for: Callable[[int], int] | None = None

    def shares(self, num_vertices: int) -> Shares:
        """The memory for sorting beside what the order of so many vertices takes, or a ConfigError."""
        order = BYTES_PER_VERTEX * num_vertices if self._reordered else 0
        return shares_of(
            self.settings.memory_bytes,
            resident=self.resident,
            ids_bytes=self.ids,
            order_bytes=order,
            held=self.held,
            ids_for=self.ids_for,
        )

    def check_before(self, source: EdgeSource, known: int | None) -> None:
        """Refuses what cannot end well, as far as it is known how many edges and vertices there are."""
        num_edges, num_vertices = getattr(source, "num_edges", None) or 0, known or 0
        ids = 8 * num_vertices if self._reordered else 0
        stored = num_edges * (2 if self.settings.undirected else 1)
        self._check(Counts(num_edges, stored, num_vertices, ids), already=0)

    def check_spooled(
        self, spooled_bytes: int, num_read: int, num_vertices: int, numbering: Numbering, *, arrays_bytes: int
    ) -> None:
        """The same when all edges were read: ``spooled_bytes`` of them lie on disk, and so much of arrays."""
        stored = num_read * (2 if self.settings.undirected else 1)
        if not self._reordered:  # repeats are gone from what was sorted; the last run is in memory still
            most = spooled_bytes + self.shares(num_vertices).spool // 3
            stored = min(stored, most // record_bytes(self.weighted))
        names = int(getattr(numbering, "scratch_bytes", 0))
        ids = names or (8 * num_vertices if self._reordered or not isinstance(numbering, Dense) else 0)
        already = spooled_bytes + names + arrays_bytes
        self._check(Counts(num_read, stored, num_vertices, ids, names), already)

    @property
    def _reordered(self) -> bool:
        return self.settings.reorder != "none"

    def _check(self, counts: Counts, already: int) -> None:
        shares, directed = self.shares(counts.num_vertices), not self.settings.undirected
        space = Space.of(
            counts,
            weighted=self.weighted,
            directed=directed,
            reordered=self._reordered,
            features_bytes=self.attributes.features_bytes,
            rows_bytes=self.attributes.rows_bytes(counts.num_vertices),
        )
        check_runs(self.settings.memory_bytes, shares, space.spool, directed=directed)
        check_space(self.folder, space, already)


def too_many_ids(error: TableFullError, settings: IngestSettings, resident: int, held: Held) -> ConfigError:
    """The refusal of ids that do not fit into their part of the memory, with a limit that is enough for all."""
    memory_bytes, order_bytes = settings.memory_bytes, 0
    if settings.reorder != "none":
        order_bytes = BYTES_PER_VERTEX * error.num_ids
    least = least_for_ids(error.num_bytes, resident=resident, order_bytes=order_bytes, held=held)
    return ConfigError(
        f"memory={memory_bytes:,} bytes ({format_bytes(memory_bytes)}), of which a part in {IDS_SHARE} is for ids, but "
        f"there are about {error.num_ids:,} different ids, whose table takes {format_bytes(error.num_bytes)}: give at "
        f"least {least}, or number the vertices from 0 beforehand and pass ids='dense' (--ids dense)."
    )
