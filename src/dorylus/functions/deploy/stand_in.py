"""The process that ministack runs in. It ends, with all functions it started, as soon as whoever started it does.

Started as ``python -m dorylus.functions.deploy.stand_in`` at the head of a process group of its own, with a pipe for
its standard input: when the pipe is closed at the other end, the folder of the functions is removed and the whole
group is killed. The folder is TMPDIR.
"""

import importlib
import os
import shutil
import signal
import socketserver
import sys
import threading


def main() -> None:
    """Serve until the pipe is closed."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    # Its runtime API writes the head and the body of an answer apart: the body would wait 40 ms for an acknowledgement.
    socketserver.StreamRequestHandler.disable_nagle_algorithm = True
    sys.argv = ["ministack"]
    importlib.import_module("ministack.app").main()


def _die_with_parent() -> None:
    os.read(0, 1)  # returns when the other end is closed: nobody writes
    shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)  # of whoever started it, who may have died without a word
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
