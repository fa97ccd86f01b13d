from dorylus.wire.pieces import ReplayGuard


def test_numbers_must_grow_within_a_session():
    guard = ReplayGuard()
    assert [guard.is_new("key", 1, number) for number in (1, 2, 2, 1, 5, 4, 6)] == [
        True, True, False, False, True, False, True,
    ]  # fmt: skip


def test_sessions_and_keys_count_for_themselves():
    guard = ReplayGuard()
    assert guard.is_new("key", 1, 9)
    assert guard.is_new("key", 2, 9)
    assert guard.is_new("another", 1, 9)
    assert not guard.is_new("key", 2, 9)


def test_the_session_used_longest_ago_is_forgotten_first():
    guard = ReplayGuard(max_sessions=2)
    guard.is_new("key", 1, 5)
    guard.is_new("key", 2, 5)
    guard.is_new("key", 1, 6)
    guard.is_new("key", 3, 5)
    assert len(guard) == 2
    assert not guard.is_new("key", 1, 6)
    assert guard.is_new("key", 2, 5)
