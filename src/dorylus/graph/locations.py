"""Places: where a folder of arrays lies. A folder of this machine, or an address that fsspec knows (s3://bucket/graph).

Files of a folder here are memory-mapped; those elsewhere are read when they are asked for.
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
IN_MEMORY = {0x01021994: "tmpfs", 0x858458F6: "ramfs", 0x958458F6: "hugetlbfs"}  # by the number statfs gives
OVERLAY = 0x794C7630


class Place(Protocol):
    """A folder of files."""

    def sizes(self) -> dict[str, int]:
        """The bytes of every file by name; empty where there is no such folder."""

    def open(self, name: str) -> BinaryIO:
        """A file, to be read; OSError where there is none."""

    def read(self, name: str) -> bytes:
        """All of a file; OSError where there is none."""


def is_remote(address: Address) -> bool:
    """Whether it is an address like s3://bucket/folder, not a folder of this machine."""
    return isinstance(address, str) and "://" in address


def place_of(address: Address) -> Place:
    """The folder at an address."""
    return _Elsewhere(str(address)) if is_remote(address) else _Here(Path(address))


def full_address(address: Address) -> str:
    """The address as it is from any working directory."""
    return str(address) if is_remote(address) else str(Path(address).resolve())


def file_system_in_memory(path: str | PathLike[str], root: Path = Path("/")) -> str | None:
    """The kind of file system that a folder is on, where what lies there is memory and no disk; else None.

    Looks through an overlay to the folder it writes to, and at block devices that are memory themselves. What a FUSE
    file system, a network or a virtual machine makes of its files cannot be seen. ``root``: the folder that /proc and
    /sys are in.
    """
    place = Path(path).absolute()
    while not place.exists() and place != place.parent:
        place = place.parent
    kind = _statfs(place)
    if kind in IN_MEMORY:
        return IN_MEMORY[kind]
    device = place.stat().st_dev
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


def disk_folder(*wanted: str | PathLike[str] | None) -> str | None:
    """The first folder of these, or else of the usual ones, that can be written to and is on a disk."""
    usual = (tempfile.gettempdir(), "/var/tmp", os.path.expanduser("~"), os.getcwd())
    for folder in (*wanted, *usual):
        if folder is None:
            continue
        place = Path(folder).absolute()
        while not place.exists() and place != place.parent:
            place = place.parent
        if place.is_dir() and os.access(place, os.W_OK) and file_system_in_memory(place) is None:
            return str(folder)
    return None


def not_on_disk(folder: str | PathLike[str], kind: str) -> str:
    """Why a folder will not do for scratch files, and one that will."""
    found = disk_folder()
    which = "a folder on a disk" if found is None else f"a folder on a disk, {found} for one,"
    return (
        f"{given('scratch_dir', os.fspath(folder))} is on {kind}, which is memory: what is written there counts "
        "against the "
        f"limit as much as what it makes room for. Name {which} as scratch_dir."
    )


def _statfs(path: Path) -> int:
    """The number of a file system's kind; 0 where the system does not say."""
    try:
        call = ctypes.CDLL(None, use_errno=True).statfs
    except (OSError, AttributeError):  # no Linux
        return 0
    found = (ctypes.c_long * 64)()  # struct statfs, whose first word is the kind
    if call(os.fsencode(path), ctypes.byref(found)) != 0:
        return 0
    return int(found[0]) & 0xFFFFFFFF


def _overlay_target(mounts: Path, device: str) -> Path | None:
    """The folder that an overlay writes to, by the number of its device, where that can be seen from here."""
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
def uploaded(address: str, last: str, *, overwrite: bool = True) -> Iterator[Path]:
    """A folder here to write to; its files are put to the address afterwards, the one named ``last`` at the end: who
    sees that one sees all.

    Without ``overwrite``, what another process has put there meanwhile stays: EEXIST.
    """
    with tempfile.TemporaryDirectory(prefix="dorylus-") as draft:
        yield Path(draft)
        system, root = _file_system(address)
        with _told(address):
            system.makedirs(root, exist_ok=True)
            is_there = system.exists(f"{root}/{last}")
        if is_there and not overwrite:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), f"{address}/{last}")
        with _told(address):
            if is_there:
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

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()


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

    def read(self, name: str) -> bytes:
        with _told(self._address):
            return cast(bytes, self._system.cat_file(f"{self._root}/{name}"))


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
