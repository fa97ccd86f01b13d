"""The definition of "the same numbers" in these tests."""

import numpy as np
from numpy.typing import ArrayLike


def assert_same_run(losses: ArrayLike, logits: ArrayLike, expected: object, *, relative: float = 1e-4) -> None:
    """Every loss, and the logits by their largest entry, agree to a relative tolerance."""
    expected_losses = np.asarray(expected.losses)  # type: ignore[attr-defined]
    expected_logits = np.asarray(expected.logits)  # type: ignore[attr-defined]
    np.testing.assert_allclose(losses, expected_losses, rtol=relative)
    np.testing.assert_allclose(logits, expected_logits, rtol=0, atol=relative * np.abs(expected_logits).max())
