"""The lock of a run folder: one process at a time writes a run; the kernel releases the lock when the process ends.

The lock is an exclusive flock on the file ``lock`` in the folder, which names its owner and is removed when the run
is closed; a file that a killed process left is not locked. Over NFS 4 the lock holds between machines, too. Children
do not inherit it: it is closed on exec, and after a fork.
"""

import errno
import fcntl
import json
import os
import socket
import time
import weakref
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from dorylus.errors import ConfigError, DorylusError, TrainingError, WriteError, cannot_write, given
from dorylus.files import is_at

NAME = "lock"
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_taken: "weakref.WeakSet[RunLock]" = weakref.WeakSet()


class RunLock:
    """Held from when it is made until it is released; a folder that another process writes to is refused.

    ``by_kernel`` is False on a file system without locks. There a second process of this machine is refused by the
    content of the lock file; one on another machine is not noticed.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self.by_kernel = True
        self._file = -1
        self._take()
        _taken.add(self)

    def _take(self) -> None:
        self._file = self._locked()
        try:
            os.truncate(self._file, 0)
            os.pwrite(self._file, json.dumps(_this_process()).encode(), 0)
        except OSError as error:
            self.release()
            raise _cannot_lock(self._path.parent, error) from error

    def keep(self) -> None:
        """Take the lock again where its file was removed; refuse to continue where another process has taken it since.

        A process that was forked does not hold the lock of its parent.
        """
        if self._file < 0:
            raise TrainingError(
                f"the run folder {self._path.parent} is held by another process than this one, a parent that was "
                "forked: train in one of the two."
            )
        if not is_at(self._file, self._path):
            self._close_inherited()
            try:
                self._take()
            except (ConfigError, WriteError) as error:
                raise TrainingError(f"the file {self._path} was removed under this run, and {error}") from error

    def release(self) -> None:
        """Release the folder."""
        if self._file >= 0:
            # Removed while it is held: a process that has opened it sees that the name is gone.
            with suppress(OSError):  # a file that stays is not locked
                if is_at(self._file, self._path):
                    self._path.unlink()
            self._close_inherited()

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of the interpreter
            self.release()

    def _close_inherited(self) -> None:
        """Close the file without unlocking it: in a forked child, the lock is still its parent's."""
        descriptor, self._file = self._file, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _locked(self) -> int:
        while True:
            try:
                descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            except OSError as error:
                raise _cannot_lock(self._path.parent, error) from error
            try:
                self._flock(descriptor)
                if is_at(descriptor, self._path):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)  # its holder removed it just now

    def _flock(self, descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = _owner(descriptor)
            if error.errno in _NO_LOCKS and not _is_alive(owner):
                self.by_kernel = False
                return
            raise ConfigError(_in_use(self._path.parent, owner)) from error


def is_locked(folder: Path) -> bool:
    """Whether a process writes the run in a folder, for readers.

    A process of this machine is known by the name it left in the lock file. Only for others the lock itself is tried,
    for a moment in which a process that wants it would be refused.
    """
    try:
        descriptor = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        owner = _owner(descriptor)
        if owner.get("host") == socket.gethostname():
            return _is_alive(owner)
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    finally:
        os.close(descriptor)
    return False


def _close_all_inherited() -> None:
    for lock in list(_taken):
        lock._close_inherited()


os.register_at_fork(after_in_child=_close_all_inherited)


def _this_process() -> dict[str, Any]:
    began = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return {"host": socket.gethostname(), "pid": os.getpid(), "since": began, "ticks": _ticks(os.getpid())}


def _owner(descriptor: int) -> dict[str, Any]:
    """The owner that the lock file names; a process that has just locked it may not have written that yet."""
    for _ in range(10):
        with suppress(ValueError, OSError, RecursionError):
            owner = json.loads(os.pread(descriptor, 4096, 0))
            if isinstance(owner, dict):
                return owner
        time.sleep(0.01)
    return {}


def _is_alive(owner: dict[str, Any]) -> bool:
    """Whether a process of this machine that is named there still runs; a reused process number does not count."""
    pid = owner.get("pid")
    known = isinstance(pid, int) and owner.get("host") == socket.gethostname()
    return known and owner.get("ticks") is not None and _ticks(pid) == owner["ticks"]


def _ticks(pid: Any) -> int | None:
    """When a process that still runs began, in the kernel's count since the machine started."""
    with suppress(OSError, ValueError, IndexError):
        # The name of the program, in parentheses, may hold anything.
        state, *figures = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if state == "Z" else int(figures[18])
    return None


def _cannot_lock(folder: Path, error: OSError) -> DorylusError:
    return cannot_write(
        f"the run folder {folder} cannot be locked: {error.strerror or error}. Choose a {given('run_dir')} that can "
        "be written.",
        error,
        refused=ConfigError,
    )


def _in_use(folder: Path, owner: dict[str, Any]) -> str:
    if owner.get("pid") == os.getpid() and owner.get("host") == socket.gethostname():
        return f"the run folder {folder} is open in this process already: close the Trainer that has it first."
    named = f"process {owner.get('pid')} on {owner.get('host')} has held it since {owner.get('since')}"
    reason = named if owner else "another process holds it"
    return (
        f"the run folder {folder} is in use: {reason}. One process at a time writes a run: wait until it has ended, or "
        "stop it, which releases the folder, and try again."
    )
