"""Download of a file into the cache: complete and checked, or not at all."""

import hashlib
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from os import PathLike
from pathlib import Path

from dorylus.errors import DISK_FAULTS, DataError, WriteError, given
from dorylus.files import new_file

TIMEOUT_S = 30.0
BLOCK_BYTES = 1 << 20


def cache_folder(root: str | PathLike[str] | None) -> Path:
    """``root``, or ~/.cache/dorylus when it is left out."""
    return Path.home() / ".cache" / "dorylus" if root is None else Path(root).expanduser()


def fetch(
    url: str,
    target: Path,
    *,
    sha256: str | None = None,
    check: Callable[[Path], None] | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Path:
    """Download ``url`` to ``target``; returns ``target``.

    The file appears there only if it is complete and passes the comparison with its SHA-256 sum, where one is known,
    and ``check``, which raises DataError for wrong content.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with new_file(target) as file:
            received_sum = _receive(url, file.write, timeout_s)
            if sha256 is not None and received_sum != sha256:
                raise DataError(
                    f"{url} has SHA-256 {received_sum}, but {target.name} should have {sha256}. "
                    f"It is another file or was damaged on the way: try again, or put the right one at {target}."
                )
            if check is not None:
                file.flush()
                check(Path(file.name))
    except (OSError, HTTPException) as error:
        if isinstance(error, OSError) and error.errno in DISK_FAULTS:
            raise WriteError(
                f"cannot write {target}: {error.strerror}. Make room, or give another folder by {given('root', ...)}."
            ) from error
        raise DataError(
            f"cannot download {url} ({_reason(error)}). Without a network, put the file at {target} by hand, "
            f"or give the folder that has it by {given('root', ...)}."
        ) from error
    return target


def _receive(url: str, write: Callable[[bytes], int], timeout_s: float) -> str:
    """Write the content of ``url``; returns its SHA-256 sum. A connection that ends early is an error."""
    if not url.startswith(("https://", "http://")):
        raise DataError(f"cannot download {url}: the address must start with https:// or http://.")
    digest, received = hashlib.sha256(), 0
    with _open(url, timeout_s) as reply:
        while block := reply.read(BLOCK_BYTES):
            digest.update(block)
            received += len(block)
            write(block)
        expected = reply.headers.get("Content-Length")
    if expected is not None and received != int(expected):
        raise HTTPException(f"{received:,} of {int(expected):,} bytes arrived")
    return digest.hexdigest()


def _open(url: str, timeout_s: float) -> HTTPResponse:
    try:
        reply: HTTPResponse = urllib.request.urlopen(url, timeout=timeout_s)
        return reply
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise HTTPException(f"the server answered {error.code} {error.reason}") from error


def _reason(error: OSError | HTTPException) -> str:
    return str(error.reason if isinstance(error, urllib.error.URLError) else error) or type(error).__name__
