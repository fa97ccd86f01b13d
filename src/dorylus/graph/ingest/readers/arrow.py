"""The package that reads Arrow and Parquet, where it is installed, and its errors as ours."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dorylus.errors import DataError
from dorylus.graph.interop.packages import optional

INSTALL = 'pip install "dorylus[parquet]"'


def pyarrow() -> Any:
    """The package, or a DataError that says how to install it."""
    optional("pyarrow.ipc", INSTALL)
    return optional("pyarrow", INSTALL)


def compute() -> Any:
    """Arrow's functions; apart, as they take 10 MiB that nobody needs who reads numbers."""
    return optional("pyarrow.compute", INSTALL)


@contextmanager
def damage_named(path: Path) -> Iterator[None]:
    """Arrow's own errors as a DataError about the file."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, struct.error) as error:
        raise DataError(
            f"cannot read {path}: {str(error).splitlines()[0]} Copy it whole, or write it again."
        ) from error
