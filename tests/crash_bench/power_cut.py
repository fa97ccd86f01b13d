"""What a power cut loses: content of files and renames in folders that were not forced to disk."""

import ctypes
import os
from dataclasses import dataclass, field
from pathlib import Path

from crash_bench.preload import Call

_EXCHANGE = 2
_HERE = -100  # AT_FDCWD


@dataclass
class Unsynced:
    """Follows the calls of a writer: which files have content, and which folders names, that the disk does not."""

    files: set[str] = field(default_factory=set)
    renames: list[tuple[str, str, str]] = field(default_factory=list)

    def follow(self, call: Call) -> None:
        """Take the next call."""
        what, path, other = call
        if what in ("write", "truncate"):
            self.files.add(path)
        elif what == "fsync":
            self.files.discard(path)
            self.renames = [each for each in self.renames if path not in map(os.path.dirname, each[1:])]
        elif what == "remove":
            self.files.discard(path)
        elif what == "link":
            self.files = {other if each == path else each for each in self.files}
        elif what in ("rename", "replace", "exchange"):
            self.files = {_moved(each, path, other, exchanged=what == "exchange") for each in self.files}
            if what != "replace":  # the content that was replaced is gone from here; on disk it would be the old one
                self.renames.append(call)

    def take_away(self) -> int:
        """Change the files as the power cut would; returns how many."""
        for path in self.files:
            if os.path.isfile(path):
                os.truncate(path, 0)
        for what, path, other in reversed(self.renames):
            if what == "exchange" and os.path.exists(path) and os.path.exists(other):
                exchange(Path(path), Path(other))
            elif what == "rename" and os.path.exists(other) and not os.path.exists(path):
                os.rename(other, path)
        return len(self.files) + len(self.renames)


def exchange(first: Path, second: Path) -> None:
    """Exchange two names in one step."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(_HERE, os.fsencode(first), _HERE, os.fsencode(second), _EXCHANGE):
        raise OSError(ctypes.get_errno(), "cannot exchange", str(first))


def _moved(path: str, old: str, new: str, *, exchanged: bool) -> str:
    for begin, end in ((old, new), (new, old)) if exchanged else ((old, new),):
        if path == begin or path.startswith(f"{begin}/"):
            return end + path[len(begin) :]
    return path
