"""An HTTP server that answers the few questions the diagnosis asks an engine; pulls hang."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

HEALTHY: dict[str, Any] = {
    "Runtimes": {"runc": {"path": "runc"}},
    "DefaultRuntime": "runc",
    "CgroupVersion": "2",
    "MemoryLimit": True,
    "SwapLimit": True,
    "PidsLimit": True,
    "CpuCfsQuota": True,
}


class StubEngine(ThreadingHTTPServer):
    """Has one image or none; `info` is what a test wants it to say."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.info = dict(HEALTHY)
        self.version = {"Version": "24.0.7", "ApiVersion": "1.43", "MinAPIVersion": "1.24"}
        self.image = True
        self.closed = threading.Event()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def server_close(self) -> None:
        self.closed.set()
        super().server_close()

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self.server_address[1]}"

    def answer(self, path: str) -> tuple[int, object]:
        if path.endswith("/version"):
            return 200, self.version
        if path.endswith("/info"):
            return 200, self.info
        return (200, {"Id": "x"}) if self.image else (404, {"message": "No such image"})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Begin a pull that makes no progress until the stub is closed."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        event = b'{"status": "Pulling"}\r\n'
        self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        cast("StubEngine", self.server).closed.wait()

    def do_GET(self) -> None:
        status, answer = cast("StubEngine", self.server).answer(self.path)
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing."""
