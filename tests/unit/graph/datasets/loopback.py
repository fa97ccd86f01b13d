"""A file server on this machine: downloads are tested without a network."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Loopback:
    """The files of the server by path, and the paths that were requested."""

    url: str
    files: dict[str, bytes]
    requests: list[str] = field(default_factory=list)
    cut_short_by: int = 0


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[Loopback]:
    """A server on 127.0.0.1 for the length of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rpartition("/")[2]
            state.requests.append(name)
            if name not in files:
                self.send_error(404, "Not Found")
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(files[name])))
            self.end_headers()
            self.wfile.write(files[name][: len(files[name]) - state.cut_short_by])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state = Loopback(f"http://127.0.0.1:{server.server_port}", files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
