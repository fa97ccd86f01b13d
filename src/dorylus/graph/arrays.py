"""Array types by element, so that signatures say what an array holds."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

AnyArray: TypeAlias = NDArray[Any]
BoolArray: TypeAlias = NDArray[np.bool_]
FloatArray: TypeAlias = NDArray[np.float32]
HalfArray: TypeAlias = NDArray[np.float16]
IdArray: TypeAlias = NDArray[np.int32]
OffsetArray: TypeAlias = NDArray[np.int64]
