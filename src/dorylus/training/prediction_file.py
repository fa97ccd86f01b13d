"""Predictions as files: NumPy's ``.npy``, or Parquet with one row a vertex."""

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dorylus.errors import ConfigError, DataError
from dorylus.training import durable

SUFFIXES = (".npy", ".parquet")


def check_target(path: str | PathLike[str]) -> None:
    """Refuses a file that predictions cannot be written to, before they are computed."""
    target = Path(path)
    if target.suffix not in SUFFIXES:
        raise ConfigError(f"predictions cannot be written to {target}: name a file that ends in .npy or .parquet.")
    if not target.parent.is_dir():
        raise ConfigError(f"predictions cannot be written to {target}: the folder {target.parent} does not exist.")
    if target.suffix == ".parquet":
        _pyarrow()


def write(array: NDArray[Any], path: str | PathLike[str], name: str) -> None:
    """Writes one row a vertex, whole or not at all.

    Parquet gets a column ``vertex`` and a column ``name``, which holds a list where a vertex has several numbers.
    """
    check_target(path)
    target = Path(path)
    writer = _write_parquet if target.suffix == ".parquet" else _write_npy
    try:
        durable.write_file_with(target, lambda partial: writer(array, partial, name))
    except OSError as error:
        raise DataError(
            f"predictions cannot be written to {target}: {error.strerror or error}. Make room, or name another file."
        ) from error


def _write_npy(array: NDArray[Any], path: Path, _: str) -> None:
    with open(path, "wb") as file:  # a file, not a path: np.save would add a suffix to a path
        np.save(file, array, allow_pickle=False)


def _write_parquet(array: NDArray[Any], path: Path, name: str) -> None:
    pa = _pyarrow()
    from pyarrow import parquet

    flat = np.ascontiguousarray(array)
    column = pa.array(flat.reshape(-1))
    if flat.ndim == 2:
        column = pa.FixedSizeListArray.from_arrays(column, flat.shape[1])
    vertices = pa.array(np.arange(len(flat), dtype=np.int64))
    parquet.write_table(pa.table({"vertex": vertices, name: column}), path)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(
            'a .parquet file needs the package pyarrow: install it by `pip install "dorylus[parquet]"`, or write .npy.'
        ) from error
    return pyarrow
