"""Every test of the kernels runs on every instruction set this processor has."""

from collections.abc import Iterator

import pytest

from dorylus.backends import native


@pytest.fixture(scope="module", params=native.available_isas(), autouse=True)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    best = native.isa()
    native.use_isa(request.param)
    yield request.param
    native.use_isa(best)
