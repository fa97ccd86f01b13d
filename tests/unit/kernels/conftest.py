"""Every test of the kernels runs on every instruction set this processor has."""

from collections.abc import Iterator

import pytest

from dorylus import kernels


@pytest.fixture(scope="module", params=kernels.available_isas(), autouse=True)
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    best = kernels.isa()
    kernels.use_isa(request.param)
    yield request.param
    kernels.use_isa(best)
