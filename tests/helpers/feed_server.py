"""A web server of one file on loopback that can be slow, huge, changed or out of order."""

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Served:
    """What the server answers, and what it was asked."""

    content: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    packed: bool = False
    pause_s: float = 0.0  # after each byte
    asked: list[dict[str, str]] = field(default_factory=list)


@contextmanager
def serving(served: Served) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append({name.lower(): value for name, value in self.headers.items()})
            body = gzip.compress(served.content) if served.packed else served.content
            status = served.status
            if served.headers.get("ETag", "-") == self.headers.get("If-None-Match"):
                status, body = 304, b""
            self.send_response(status)
            for name, value in served.headers.items():
                self.send_header(name, value)
            if served.packed:
                self.send_header("Content-Encoding", "gzip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not served.pause_s:
                self.wfile.write(body)
                return
            try:
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(served.pause_s)
            except OSError:
                return

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/feed.pb"
    finally:
        server.shutdown()
        server.server_close()
