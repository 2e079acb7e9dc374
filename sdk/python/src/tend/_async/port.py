"""A connection to a port of a sandbox."""

from __future__ import annotations

from types import TracebackType

import httpcore

from .. import _connect as connect
from .._errors import UnsupportedError
from .transport import Transport, Upgraded


class AsyncPortConnection:
    """The bytes of a TCP connection to a program in a sandbox.

    One task or thread may read while another one writes. It ends with the server that carries it: UnavailableError. Close it, or
    use it in a `with` statement.
    """

    def __init__(self, transport: Transport, upgraded: Upgraded) -> None:
        self._url = transport.url
        self._upgraded: Upgraded | None = upgraded
        self._stream: httpcore.AsyncNetworkStream = upgraded.stream

    async def read(self, most: int = 64 << 10) -> bytes:
        """The next bytes, at most so many; b"": the program sends no more."""
        try:
            return await self._stream.read(most)
        except connect.BROKEN as err:
            raise connect.final(self._url, connect.ConnectionLost(str(err) or "the connection broke")) from err

    async def write(self, data: bytes | str) -> None:
        """Sends all of data, once the connection takes it."""
        try:
            await self._stream.write(data.encode() if isinstance(data, str) else data)
        except connect.BROKEN as err:
            raise connect.final(self._url, connect.ConnectionLost(str(err) or "the connection broke")) from err

    async def close_write(self) -> None:
        """Ends what this side sends; the other side may go on. UnsupportedError: by https."""
        if self._stream.get_extra_info("ssl_object") is not None:
            raise UnsupportedError("a connection by https is closed as a whole; use http or a unix socket")
        await self._stream.get_extra_info("tend.stream").end_writing()

    async def __aenter__(self) -> AsyncPortConnection:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends the connection."""
        upgraded, self._upgraded = self._upgraded, None
        if upgraded is not None:
            await upgraded.aclose()
