"""Places: where a folder of arrays lies. A folder of this machine, or an address that fsspec knows (s3://bucket/graph).

Files of a folder here are memory-mapped; those elsewhere are read when they are asked for.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import numpy as np

from dorylus.errors import DataError
from dorylus.graph.arrays import AnyArray

Address = str | PathLike[str]


class Place(Protocol):
    """A folder of files."""

    def sizes(self) -> dict[str, int]:
        """The bytes of every file by name; empty where there is no such folder."""

    def open(self, name: str) -> BinaryIO:
        """A file, to be read; OSError where there is none."""

    def array(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
        """A file as an array that is not written to."""


def is_elsewhere(address: Address) -> bool:
    """Whether it is an address like s3://bucket/folder, not a folder of this machine."""
    return isinstance(address, str) and "://" in address


def place_of(address: Address) -> Place:
    """The folder at an address."""
    return _Elsewhere(str(address)) if is_elsewhere(address) else _Here(Path(address))


def full_address(address: Address) -> str:
    """The address as it is from any working directory."""
    return str(address) if is_elsewhere(address) else str(Path(address).resolve())


@contextmanager
def uploaded(address: str, last: str) -> Iterator[Path]:
    """A folder here to write to; its files are put to the address afterwards, the one named ``last`` at the end: who
    sees that one sees all."""
    with tempfile.TemporaryDirectory(prefix="dorylus-") as draft:
        yield Path(draft)
        system, root = _file_system(address)
        with _told(address):
            system.makedirs(root, exist_ok=True)
            if system.exists(f"{root}/{last}"):
                system.rm_file(f"{root}/{last}")
            for file in sorted(Path(draft).iterdir(), key=lambda file: file.name == last):
                system.put_file(str(file), f"{root}/{file.name}")


class _Here:
    """A folder of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sizes(self) -> dict[str, int]:
        if not self._path.is_dir():
            return {}
        return {each.name: each.stat().st_size for each in os.scandir(self._path) if each.is_file()}

    def open(self, name: str) -> BinaryIO:
        return open(self._path / name, "rb", buffering=0)

    def array(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
        return np.asarray(np.memmap(self._path / name, dtype=dtype, mode="r", shape=shape))


class _Elsewhere:
    """A folder that fsspec reaches."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._system, self._root = _file_system(address)

    def sizes(self) -> dict[str, int]:
        with _told(self._address):
            try:
                found = self._system.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
        return {each["name"].rsplit("/", 1)[-1]: int(each["size"] or 0) for each in found if each["type"] == "file"}

    def open(self, name: str) -> BinaryIO:
        with _told(self._address):
            return cast(BinaryIO, self._system.open(f"{self._root}/{name}", "rb"))

    def array(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> AnyArray:
        with _told(self._address):
            read = np.frombuffer(self._system.cat_file(f"{self._root}/{name}"), dtype)
        return read.reshape(shape)


def _file_system(address: str) -> tuple[Any, str]:
    import fsspec  # comes with torch

    with _told(address):
        system, root = fsspec.core.url_to_fs(address)
    return system, root.rstrip("/")


@contextmanager
def _told(address: str) -> Iterator[None]:
    """Errors of whatever is behind an address, told with the address; a file that is not there is for the caller."""
    try:
        yield
    except (FileNotFoundError, DataError):
        raise
    except (ImportError, ValueError) as error:  # unknown protocol, or its package is missing
        raise DataError(f"{address} cannot be reached: {error}. Install what fsspec needs for it.") from error
    except Exception as error:
        raise DataError(f"{address} cannot be reached: {type(error).__name__}: {error}.") from error
