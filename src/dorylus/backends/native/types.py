"""The array types of the kernels' face."""

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Offsets: TypeAlias = npt.NDArray[np.int64]
"""``indptr`` of a CSR: int64 [N + 1]; row r holds the edges ``indptr[r] .. indptr[r + 1] - 1``."""

Ints: TypeAlias = npt.NDArray[np.int32]
"""Columns of edges, or original vertex ids."""

Bytes: TypeAlias = npt.NDArray[np.uint8]

Floats: TypeAlias = npt.NDArray[np.float32]

Bf16: TypeAlias = npt.NDArray[np.uint16]
"""bfloat16, held as the upper 16 bits of a float32."""

Bools: TypeAlias = npt.NDArray[np.bool_]

Levels: TypeAlias = npt.NDArray[np.int8]
"""The deepest level each vertex is needed at, -1 for none."""

Array: TypeAlias = npt.NDArray[Any]

Csr: TypeAlias = tuple[Offsets, Ints, Floats | None]
"""(indptr, indices, values or None)."""
