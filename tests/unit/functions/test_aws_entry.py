from base64 import b64decode, b64encode

import pytest

from dorylus.functions.aws_lambda import handler
from dorylus.wire.frames import pack, unpack


def test_a_frame_comes_and_goes_as_text():
    request = b"".join(pack({"task": "t", "program": "unknown"}, {}))
    answer = handler({"frame": b64encode(request).decode()}, None)
    assert unpack(b64decode(answer["frame"])).header["missing"] == "unknown"


@pytest.mark.parametrize("event", [{}, {"frame": "§"}, {"frame": None}, {"frame": "a"}, [], {"frame": ""}])
def test_an_event_without_a_frame_is_answered_with_an_error_frame(event):
    assert unpack(b64decode(handler(event)["frame"])).header["kind"] == "frame"
