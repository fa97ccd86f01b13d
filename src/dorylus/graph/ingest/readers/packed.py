"""Text files that may be packed (.gz, .bz2, .zst, .lz4), read as plain bytes; positions are those on disk."""

import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from dorylus.errors import DataError
from dorylus.graph.ingest.readers.arrow import pyarrow


def _gzip(raw: IO[bytes]) -> Any:
    return gzip.GzipFile(fileobj=raw, mode="rb")


def _arrow(codec: str) -> Callable[[IO[bytes]], Any]:
    return lambda raw: pyarrow().CompressedInputStream(raw, codec)


UNPACK: dict[str, Callable[[IO[bytes]], Any]] = {
    ".gz": _gzip,
    ".bz2": bz2.BZ2File,
    ".zst": _arrow("zstd"),
    ".lz4": _arrow("lz4"),
}
BEGINS = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd", ".lz4": b"\x04\x22\x4d\x18"}
"""The first bytes of a file that is packed."""


def packing(path: Path) -> str:
    """The suffix that says how a file is packed, or nothing."""
    suffix = path.suffix.lower()
    return suffix if suffix in UNPACK else ""


class UnpackedFile:
    """A file's content as if it were not packed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._raw: IO[bytes] = open(path, "rb", buffering=0)  # noqa: SIM115
        packed = packing(path)
        try:
            self._file: Any = UNPACK[packed](self._raw) if packed else self._raw
        except BaseException:
            self._raw.close()
            raise

    @property
    def position(self) -> int:
        """How many bytes of the file on disk were read."""
        return self._raw.tell()

    def fill(self, room: memoryview) -> int:
        """Read until ``room`` is full or the file ends; how many bytes there are now."""
        filled = 0
        with self._damage_named():
            while filled < len(room):
                count = self._file.readinto(room[filled:])
                if not count:
                    break
                filled += count
        return filled

    def skip(self, count: int) -> None:
        """Pass over the next ``count`` bytes."""
        room = memoryview(bytearray(min(count, 1 << 20)))
        while count > 0:
            count -= self.fill(room[: min(count, len(room))]) or count

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        try:
            yield
        except (OSError, EOFError, zlib.error, ValueError) as error:
            if isinstance(error, io.UnsupportedOperation):
                raise
            raise DataError(f"cannot unpack or read {self._path}: {error}. {self._cure()}") from error

    def _cure(self) -> str:
        packed = packing(self._path)
        with open(self._path, "rb") as file:
            if not packed or file.read(4).startswith(BEGINS[packed]):
                return "It is damaged or cut short: copy it whole."
        return f"It does not begin as {packed} does: if it is plain text, rename it to {self._path.stem}."

    def __enter__(self) -> "UnpackedFile":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._raw.close()
