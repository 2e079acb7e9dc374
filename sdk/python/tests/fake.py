"""A server that does what a test says."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import tend
from tend._connect import envelope
from tend._wire import encode

Answer = Callable[["Call"], None]


class Call(BaseHTTPRequestHandler):
    """One request, and its answer."""

    protocol_version = "HTTP/1.1"
    body = b""

    def do_POST(self) -> None:
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        server = self.server
        assert isinstance(server, Fake)
        method = self.path.rpartition("/")[2]
        server.calls.append(method)
        found = server.answers.get(method)
        if found is None:
            return self.say(404, "text/plain", b"404 page not found")
        found(self)

    def say(self, status: int, type_: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": type_, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def message(self, schema: str, message: dict[str, Any]) -> None:
        self.say(200, "application/proto", encode(schema, message))

    def events(self, *events: dict[str, Any], end: bool = True, raw: bytes = b"") -> None:
        """A stream; without an end it is cut."""
        data = b"".join(envelope(encode("ReadResponse", {"event": e})) for e in events) + raw
        if end:
            return self.say(200, "application/connect+proto", data + b"\2\0\0\0\2{}")
        self.send_response(200)
        self.send_header("Content-Type", "application/connect+proto")
        self.send_header("Content-Length", str(len(data) + 100))
        self.end_headers()
        self.wfile.write(data)
        self.cut()

    def cut(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


class Fake(ThreadingHTTPServer):
    def __init__(self, **answers: Answer) -> None:
        super().__init__(("127.0.0.1", 0), Call)
        self.answers: dict[str, Answer] = {
            "Hello": lambda c: c.message("HelloResponse", {"listeners_held": True, "version": "fake"}),
            "Get": lambda c: c.message("GetResponse", {"info": {"id": "p", "pid": 7}}),
            **answers,
        }
        self.calls: list[str] = []
        self._clients: list[tend.Client] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self._thread.start()

    def client(self, **options: Any) -> tend.Client:
        """A client of it, which is closed with it."""
        self._clients.append(tend.Client.connect(self.url, **options))
        return self._clients[-1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that has left

    def __exit__(self, *_: object) -> None:
        for client in self._clients:
            client.close()
        self.shutdown()
        self._thread.join()
        self.server_close()
