from dorylus.pools.functions.data_service import Keyring
from dorylus.wire.keys import RunKeys


def test_keys_are_renewed_after_half_of_their_lifetime():
    now = [1000.0]
    keys = RunKeys.fresh(lambda: now[0])
    ring = Keyring(keys, 100.0, lambda: now[0])
    first = ring.header()
    now[0] += 49
    assert ring.header() == first
    now[0] += 2
    second = ring.header()
    assert second["public"] != first["public"]
    assert keys.is_allowed(first["public"])  # functions invoked with the first key still run
    now[0] += 50
    assert not keys.is_allowed(first["public"])
    assert keys.is_allowed(second["public"])
