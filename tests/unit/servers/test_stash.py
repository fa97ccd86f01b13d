import gc
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dorylus.errors import TrainingError
from dorylus.servers.parameter import stash as module
from dorylus.servers.parameter.stash import Stash, Version


def test_a_pinned_version_is_returned():
    stash = Stash()
    stash.pin(3, 0, 7, "seven")
    stash.pin(3, 1, 8, "eight")
    assert stash.get(3, 0) == (7, "seven")
    assert stash.get(3, 1) == (8, "eight")


def test_a_version_is_dropped_with_its_last_pin():
    stash = Stash()
    for interval in range(3):
        stash.pin(interval, 0, 7, "seven")
    stash.pin(3, 0, 8, "eight")
    stash.release(0, 0)
    stash.release(2, 0)
    assert (len(stash), stash.versions()) == (2, {7, 8})
    stash.release(1, 0)
    assert (len(stash), stash.versions()) == (1, {8})


def test_pins_of_one_version_share_its_weights():
    stash = Stash()
    weights = ["heavy"]
    stash.pin(0, 0, 1, weights)
    stash.pin(1, 0, 1, weights)
    assert stash.get(0, 0)[1] is stash.get(1, 0)[1]


def test_weights_are_not_kept_alive_by_a_stash_that_has_released_them():
    stash = Stash()
    weights = np.ones(3)
    seen = weakref.ref(weights)
    stash.pin(0, 0, 1, weights)
    del weights
    gc.collect()
    assert seen() is not None
    stash.release(0, 0)
    gc.collect()
    assert seen() is None


def test_an_interval_uses_one_version_in_an_epoch():
    stash = Stash()
    stash.pin(0, 5, Version(1), "one")
    message = "interval 0 pins version 1 predicted 2 updates ahead for epoch 5, but holds version 1 for it"
    with pytest.raises(TrainingError, match=message):
        stash.pin(0, 5, Version(1, ahead=2), "another one")
    assert stash.get(0, 5) == (Version(1), "one")


@pytest.mark.parametrize("ask", [Stash.get, Stash.release])
def test_a_version_that_is_not_pinned_is_refused(ask):
    stash = Stash()
    stash.pin(0, 5, 1, "one")
    with pytest.raises(TrainingError, match="interval 0 has no version pinned for epoch 6"):
        ask(stash, 0, 6)
    stash.release(0, 5)
    with pytest.raises(TrainingError, match="interval 0 has no version pinned for epoch 5"):
        ask(stash, 0, 5)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3))))
def test_it_agrees_with_a_plain_table_of_pins(moves):
    stash, plain = Stash(), {}
    for interval, epoch, version in moves:  # a pin where there is none, else a release
        if (interval, epoch) in plain:
            stash.release(interval, epoch)
            del plain[interval, epoch]
        else:
            stash.pin(interval, epoch, version, f"weights {version}")
            plain[interval, epoch] = version
        assert len(stash) == len(plain)
        assert stash.versions() == set(plain.values())
        assert all(stash.get(*at) == (held, f"weights {held}") for at, held in plain.items())


def test_the_stash_needs_no_torch():
    load = "import runpy, sys; runpy.run_path(sys.argv[1]); print('torch' in sys.modules)"
    file = str(Path(module.__file__))
    done = subprocess.run([sys.executable, "-c", load, file], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
