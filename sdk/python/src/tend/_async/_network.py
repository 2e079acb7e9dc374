"""A network that sends the head and the body of a request in one piece: httpcore writes them one after the other."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

from ._io import end_writing


def _is_head(data: bytes) -> bool:
    """Whether this is the head of a request whose body follows at once. Input that is streamed may take its time."""
    return data.startswith(b"POST ") and b"\r\nContent-Length: " in data


class OnePieceStream(httpcore.AsyncNetworkStream):
    """Holds a head back until the next write or read."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._head = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._head:
            await self._flush(b"", timeout)
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        if self._head:
            await self._flush(buffer, timeout)
        elif _is_head(buffer):
            self._head = buffer
        else:
            await self._stream.write(buffer, timeout)

    async def _flush(self, body: bytes, timeout: float | None) -> None:
        head, self._head = self._head, b""
        await self._stream.write(head + body, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None) -> httpcore.AsyncNetworkStream:
        return OnePieceStream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    async def end_writing(self) -> None:
        """Sends no more; reading goes on."""
        await end_writing(self._stream)

    def get_extra_info(self, info: str) -> Any:
        return self if info == "tend.stream" else self._stream.get_extra_info(info)


class OnePiece(httpcore.AsyncNetworkBackend):
    """The network of this machine, with such streams."""

    def __init__(self) -> None:
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, local_address: str | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None
    ) -> httpcore.AsyncNetworkStream:
        return OnePieceStream(await self._network.connect_tcp(host, port, timeout, local_address, socket_options))

    async def connect_unix_socket(self, path: str, timeout: float | None = None, socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None) -> httpcore.AsyncNetworkStream:
        return OnePieceStream(await self._network.connect_unix_socket(path, timeout, socket_options))

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)
