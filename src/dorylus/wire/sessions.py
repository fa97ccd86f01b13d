"""Which requests have been seen: numbers grow within a session, so what does not grow is a replay."""

from collections import OrderedDict


class Sessions:
    """The highest request number of each session of each key; the sessions used longest ago are forgotten first."""

    def __init__(self, max_sessions: int = 65_536) -> None:
        self._max_sessions = max_sessions
        self._last: OrderedDict[tuple[str, int], int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._last)

    def is_new(self, key: str, session: int, request: int) -> bool:
        """Whether the request's number is beyond all that came before it in this session; notes it."""
        if request <= self._last.get((key, session), 0):
            return False
        self._last[key, session] = request
        self._last.move_to_end((key, session))
        if len(self._last) > self._max_sessions:
            self._last.popitem(last=False)
        return True
