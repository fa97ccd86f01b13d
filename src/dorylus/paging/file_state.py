"""What a file was like when it was opened, and whether it still is.

A store's files are written once and never changed. One that changes while it is read gives numbers of two graphs, or
zeros where it was cut short: whoever reads compares, and stops with one sentence.
"""

import os
from typing import NamedTuple

from dorylus.errors import DataError

CURE = (
    "Numbers read of it since then are not those of the graph: put the store back as it was (dorylus info STORE "
    "--verify compares it with its checksums), and go on from the last checkpoint."
)


class FileState(NamedTuple):
    """Which file it is, how long, and when it was last written to.

    ``ctime_ns`` cannot be set back. It also moves when the number of names (``links``), the owner or the permissions
    change (``owned``): where one of those explains it, the content has to be looked at; where none does, it may have
    been another in between.
    """

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    links: int
    owned: tuple[int, int, int]

    @classmethod
    def of(cls, file: int | str | os.PathLike[str]) -> "FileState":
        """As it is now; ``file``: a descriptor, or a path."""
        found = os.stat(file)
        owned = found.st_uid, found.st_gid, found.st_mode
        return cls(
            found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_nlink, owned
        )

    def explains(self, now: "FileState") -> bool:
        """Whether something else than its content has changed, which moves ``ctime_ns`` too."""
        return (now.links, now.owned) != (self.links, self.owned)

    def compare(self, now: "FileState", path: str) -> None:
        """Refuse a file that is another, or has changed since.

        Size and time decide: there are file systems (FUSE) that number the same file anew when it is opened again.
        """
        if (now.size, now.mtime_ns) == (self.size, self.mtime_ns):
            return
        if now.size < self.size:
            what = f"was cut short from {self.size:,} to {now.size:,} bytes"
        elif now.size > self.size:
            what = f"grew from {self.size:,} to {now.size:,} bytes"
        elif (now.device, now.inode) != (self.device, self.inode):
            what = "was replaced by another file"
        else:
            what = "was written to"
        raise changed(path, what)


def changed(path: str, what: str) -> DataError:
    """The sentence for a file that is not what it was."""
    return DataError(f"{path} {what} while it was in use. {CURE}")
