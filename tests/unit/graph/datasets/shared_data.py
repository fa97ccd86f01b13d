"""The folder of the real graphs, for the tests that use them."""

from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[4].parent / "shared" / "data"

needs_shared_data = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"the folder of real graphs, {FOLDER}, is absent")
