"""A proxy that cuts each connection after a number of bytes."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from urllib.parse import urlsplit


class Cutting:
    """Cuts in either direction, after so many bytes in all; between them, each second connection lasts half as long."""

    def __init__(self, url: str, after: int) -> None:
        u = urlsplit(url)
        self._to = (u.hostname, u.port)
        self._after = after
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.cuts = 0
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        n = 0
        while True:
            try:
                near, _ = self._server.accept()
            except OSError:
                return
            n += 1
            far = socket.create_connection(self._to)
            left = [self._after // (1 + n % 2)]
            for a, b in ((near, far), (far, near)):
                thread = threading.Thread(target=self._pipe, args=(a, b, left))
                thread.start()
                self._threads.append(thread)

    def _pipe(self, a: socket.socket, b: socket.socket, left: list[int]) -> None:
        try:
            while data := a.recv(min(16384, left[0])):
                left[0] -= len(data)
                b.sendall(data)
                if left[0] <= 0:
                    self.cuts += 1
                    break
        except OSError:
            pass
        for one in (a, b):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            if one is a:
                one.close()

    def __enter__(self) -> Cutting:
        return self

    def __exit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        for thread in self._threads:
            thread.join()
