"""Storage locations: a local folder or an fsspec address (s3://bucket/graph), and whether a folder is on a disk.

Local files are memory-mapped; remote files are read on demand.
"""

import ctypes
import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from dorylus.errors import DataError, given

Address = str | PathLike[str]
IN_MEMORY = {0x01021994: "tmpfs", 0x858458F6: "ramfs", 0x958458F6: "hugetlbfs"}  # by the f_type of statfs
OVERLAY = 0x794C7630


class StorageLocation(Protocol):
    """A folder of files."""

    def sizes(self) -> dict[str, int]:
        """The size of every file by name; empty if the folder does not exist."""

    def open(self, name: str) -> BinaryIO:
        """A file, opened for reading; OSError if it does not exist."""

    def read(self, name: str) -> bytes:
        """The content of a file; OSError if it does not exist."""


def is_remote(address: Address) -> bool:
    """Whether it is an address like s3://bucket/folder, not a local path."""
    return isinstance(address, str) and "://" in address


def location_of(address: Address) -> StorageLocation:
    """The folder at an address."""
    return _RemoteFolder(str(address)) if is_remote(address) else _LocalFolder(Path(address))


def full_address(address: Address) -> str:
    """The address, absolute if it is a local path."""
    return str(address) if is_remote(address) else str(Path(address).resolve())


def file_system_in_memory(path: str | PathLike[str], root: Path = Path("/")) -> str | None:
    """The kind of a folder's file system if its files are in memory (tmpfs, a RAM disk); None for a disk.

    Follows an overlay to its upper folder and a loop device to its backing file. The storage behind FUSE, a network or
    a virtual machine is not visible. ``root``: the folder that /proc and /sys are in.
    """
    existing = _nearest_existing(path)
    kind = _statfs(existing)
    if kind in IN_MEMORY:
        return IN_MEMORY[kind]
    device = existing.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    if kind == OVERLAY:
        upper = _overlay_target(root / "proc/self/mountinfo", number)
        return None if upper is None or not upper.exists() else file_system_in_memory(upper, root)
    block = root / "sys/dev/block" / number
    try:
        name = block.resolve().name
        if name.startswith(("ram", "zram")):
            return name
        backing = Path((block / "loop/backing_file").read_text().strip())
    except OSError:
        return None
    return file_system_in_memory(backing.parent, root) if backing.exists() else None


def disk_folder(*preferred: str | PathLike[str] | None) -> str | None:
    """The first folder of ``preferred``, or else of the usual ones, that is writable and on a disk."""
    usual = (tempfile.gettempdir(), "/var/tmp", os.path.expanduser("~"), os.getcwd())
    for folder in (*preferred, *usual):
        if folder is None:
            continue
        existing = _nearest_existing(folder)
        if existing.is_dir() and os.access(existing, os.W_OK) and file_system_in_memory(existing) is None:
            return str(folder)
    return None


def not_on_disk(folder: str | PathLike[str], kind: str) -> str:
    """The error message for a scratch folder in memory, with a folder that is suitable."""
    suitable = disk_folder()
    which = "a folder on a disk" if suitable is None else f"a folder on a disk, {suitable} for one,"
    return (
        f"{given('scratch_dir', os.fspath(folder))} is on {kind}, which is memory: files written there count against "
        f"the limit as much as the arrays that they replace. Name {which} as {given('scratch_dir')}."
    )


def _nearest_existing(path: str | PathLike[str]) -> Path:
    """The path, or its nearest parent that exists."""
    existing = Path(path).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return existing


def _statfs(path: Path) -> int:
    """The f_type of a file system; 0 where it is not available."""
    try:
        call = ctypes.CDLL(None, use_errno=True).statfs
    except (OSError, AttributeError):  # not Linux
        return 0
    result = (ctypes.c_long * 64)()  # struct statfs, whose first word is the kind
    if call(os.fsencode(path), ctypes.byref(result)) != 0:
        return 0
    return int(result[0]) & 0xFFFFFFFF


def _overlay_target(mounts: Path, device: str) -> Path | None:
    """The upper folder of the overlay with this device number, if it is visible in this mount namespace."""
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return None
    for fields in (line.split() for line in lines):
        if len(fields) > 6 and fields[2] == device:
            for option in fields[-1].split(","):
                if option.startswith("upperdir="):
                    return Path(option.removeprefix("upperdir="))
    return None


@contextmanager
def uploaded_folder(address: str, last: str, *, overwrite: bool = True) -> Iterator[Path]:
    """A temporary local folder whose files are uploaded to the address on exit, the file ``last`` at the end: a reader
    that finds it finds all.

    Without ``overwrite``, a folder that another process has uploaded in the meantime stays: EEXIST.
    """
    with tempfile.TemporaryDirectory(prefix="dorylus-") as draft:
        yield Path(draft)
        system, root = _file_system(address)
        with _naming_address(address):
            system.makedirs(root, exist_ok=True)
            is_there = system.exists(f"{root}/{last}")
        if is_there and not overwrite:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{address}/{last}")
        with _naming_address(address):
            if is_there:
                system.rm_file(f"{root}/{last}")
            for file in sorted(Path(draft).iterdir(), key=lambda file: file.name == last):
                system.put_file(str(file), f"{root}/{file.name}")


class _LocalFolder:
    """A local folder."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def sizes(self) -> dict[str, int]:
        if not self._path.is_dir():
            return {}
        return {each.name: each.stat().st_size for each in os.scandir(self._path) if each.is_file()}

    def open(self, name: str) -> BinaryIO:
        return open(self._path / name, "rb", buffering=0)

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


class _RemoteFolder:
    """A folder that fsspec reaches, such as an S3 prefix."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._system, self._root = _file_system(address)

    def sizes(self) -> dict[str, int]:
        with _naming_address(self._address):
            try:
                entries = self._system.ls(self._root, detail=True)
            except FileNotFoundError:
                return {}
        return {each["name"].rsplit("/", 1)[-1]: int(each["size"] or 0) for each in entries if each["type"] == "file"}

    def open(self, name: str) -> BinaryIO:
        with _naming_address(self._address):
            return cast(BinaryIO, self._system.open(f"{self._root}/{name}", "rb"))

    def read(self, name: str) -> bytes:
        with _naming_address(self._address):
            return cast(bytes, self._system.cat_file(f"{self._root}/{name}"))


def _file_system(address: str) -> tuple[Any, str]:
    import fsspec  # comes with torch

    with _naming_address(address):
        system, root = fsspec.core.url_to_fs(address)
    return system, root.rstrip("/")


@contextmanager
def _naming_address(address: str) -> Iterator[None]:
    """Raise errors of a remote file system as a DataError with the address; FileNotFoundError is left to the caller."""
    try:
        yield
    except (FileNotFoundError, DataError):
        raise
    except (ImportError, ValueError) as error:  # unknown protocol, or its package is missing
        raise DataError(f"{address} cannot be reached: {error}. Install what fsspec needs for it.") from error
    except Exception as error:
        raise DataError(f"{address} cannot be reached: {type(error).__name__}: {error}.") from error
