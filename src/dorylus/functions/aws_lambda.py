"""The entry point on AWS Lambda: a frame as base64 in an event, and one in the answer.

An event is JSON, so bytes travel as text: ``{"frame": "..."}`` both ways.
"""

from base64 import b64decode, b64encode
from binascii import Error
from typing import Any

from dorylus.functions.handler import handle, of_this_process

of_this_process()  # load ONNX Runtime while the environment starts, not in the first task


def handler(event: dict[str, Any], context: Any = None) -> dict[str, str]:
    """Run the task in an event. Errors are reported in the answer, also for an event that holds no frame."""
    try:
        request = b64decode(event["frame"], validate=True)
    except (KeyError, TypeError, ValueError, Error):
        request = b""
    return {"frame": b64encode(handle(request)).decode()}
