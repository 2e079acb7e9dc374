"""Calls and streams of the Connect protocol over httpcore, which is what httpx sends by."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterable, AsyncIterator
from typing import IO

import httpcore

from .. import _connect as connect
from .._errors import ClosedError, protocol_error
from .._wire import Message, decode
from ._network import OnePiece


_MAX_LINE = 1 << 20


class _Pool:
    """Connections, and how many of them carry something."""

    def __init__(self, http: httpcore.AsyncConnectionPool) -> None:
        self.http = http
        self.used = 0
        self.retired = False


class Stream:
    """The messages of one answer. It is closed by its end, or by close."""

    def __init__(self, transport: Transport, pool: _Pool, response: httpcore.Response, schema: str) -> None:
        self._transport = transport
        self._pool: _Pool | None = pool
        self._response = response
        self._body = transport.body(response)
        self._schema = schema
        self._envelopes = connect.Envelopes()

    async def next(self) -> Message | None:
        """The next message; None: the server says that there is no more. ConnectionLost: it broke off."""
        while True:
            found = self._envelopes.next()
            if found is None:
                try:
                    self._envelopes.add(await anext(self._body))
                except StopAsyncIteration:
                    raise connect.ConnectionLost("the stream broke off" if not self._envelopes.torn else "the stream broke off in the midst of a message") from None
                continue
            flags, data = found
            if flags & 1:
                raise protocol_error("a compressed message that nobody asked for")
            if not flags & 2:
                return decode(self._schema, data)
            error = connect.parse_json(data).get("error")
            if isinstance(error, dict):
                raise connect.wire_error(error)
            # What follows is the end of the body: read, it leaves the connection for another call.
            async for _ in self._body:
                pass
            await self.aclose()
            return None

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await self._transport.release(pool, self._response)


class Lines:
    """The lines of one answer, each a value of JSON."""

    def __init__(self, transport: Transport, pool: _Pool, response: httpcore.Response) -> None:
        self._transport = transport
        self._pool: _Pool | None = pool
        self._response = response
        self._body = transport.body(response)
        self._held = b""

    async def next(self) -> Message:
        """The next line. ConnectionLost: it broke off."""
        while b"\n" not in self._held:
            if len(self._held) > _MAX_LINE:
                raise protocol_error("a line that does not end")
            try:
                self._held += await anext(self._body)
            except StopAsyncIteration:
                raise connect.ConnectionLost("the answer broke off") from None
        line, _, self._held = self._held.partition(b"\n")
        return connect.parse_json(line)

    async def aclose(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            await self._transport.release(pool, self._response)


class Upgraded:
    """A connection that carries another protocol from now on."""

    def __init__(self, transport: Transport, pool: _Pool, response: httpcore.Response) -> None:
        self._transport = transport
        self._pool = pool
        self._response = response
        self.stream: httpcore.AsyncNetworkStream = response.extensions["network_stream"]

    async def aclose(self) -> None:
        await self._transport.release(self._pool, self._response)


class Transport:
    """Sends calls to one server."""

    def __init__(self, url: str, token: str, tls: ssl.SSLContext | None) -> None:
        self.url = url
        self._target = connect.parse_target(url)
        self._tls = tls
        if self._target.tls and tls is None:
            self._tls = httpcore.default_ssl_context()
        self._headers = [("Host", self._target.authority), ("Connect-Protocol-Version", "1"), ("User-Agent", "tend-client-python")]
        if token:
            self._headers.append(("Authorization", f"Bearer {connect.check_token(token)}"))
        self._urls: dict[str, httpcore.URL] = {}
        self._pool = self._new_pool(64)
        self._fresh = self._new_pool(0)
        self._old: list[_Pool] = []
        self._closed = False
        self.known = False
        """A tend server has answered there."""

    def _new_pool(self, idle: int) -> _Pool:
        return _Pool(
            httpcore.AsyncConnectionPool(
                ssl_context=self._tls,
                max_connections=None,
                max_keepalive_connections=idle,
                keepalive_expiry=90,
                uds=self._target.socket,
                network_backend=OnePiece(),
            )
        )

    async def replace(self) -> None:
        """Makes later calls use new connections: a server that goes away still answers on those that it has."""
        pool, self._pool = self._pool, self._new_pool(64)
        pool.retired = True
        self._old.append(pool)
        await self._sweep()

    async def _sweep(self) -> None:
        for pool in [p for p in self._old if p.used == 0]:
            self._old.remove(pool)
            await pool.http.aclose()

    async def aclose(self) -> None:
        self._closed = True
        for pool in (self._pool, self._fresh, *self._old):
            await pool.http.aclose()

    async def unary(self, method: str, answer: str, body: bytes, *, wait: float, headers: dict[str, str] | None = None, fresh: bool = False) -> Message:
        """A call with one answer. wait: seconds in which the server must say something. fresh: on a connection that no earlier call has used."""
        pool, response = await self._send(method, "application/proto", body, wait, headers, fresh)
        try:
            self._of_type(response, "application/proto")
            self.known = True
            return decode(answer, await self._whole(response, connect.MAX_MESSAGE))
        finally:
            await self.release(pool, response)

    async def stream(self, method: str, answer: str, body: bytes | AsyncIterator[bytes], *, wait: float, headers: dict[str, str] | None = None) -> Stream:
        """A call with a stream of answers. body: its envelopes. Nothing is read ahead but what the socket holds."""
        pool, response = await self._send(method, "application/connect+proto", body, wait, headers, False)
        try:
            self._of_type(response, "application/connect+proto")
        except BaseException:
            await self.release(pool, response)
            raise
        self.known = True
        return Stream(self, pool, response, answer)

    async def plain(self, verb: str, path: str, type_: str, body: bytes | AsyncIterator[bytes], into: IO[bytes] | None, *, wait: float, headers: dict[str, str] | None = None) -> None:
        """A request for files by plain HTTP, beside the protocol. into: where the body of the answer goes."""
        pool, response = await self._send(f"FileService/{path}", type_, body, wait, headers, False, verb)
        try:
            if into is None:
                return
            self._of_type(response, type_)
            async for part in self.body(response):
                into.write(part)
        finally:
            await self.release(pool, response)

    async def lines(self, path: str, *, wait: float, headers: dict[str, str] | None = None) -> Lines:
        """A request for files by plain HTTP whose answer is lines of JSON."""
        pool, response = await self._send(f"FileService/{path}", "application/x-ndjson", b"", wait, headers, False, "GET")
        try:
            self._of_type(response, "application/x-ndjson")
        except BaseException:
            await self.release(pool, response)
            raise
        return Lines(self, pool, response)

    async def upgrade(self, path: str, protocol: str, *, wait: float) -> Upgraded:
        """A request after which the connection is for another protocol."""
        pool, response = await self._send(path, "", b"", wait, {"Connection": "Upgrade", "Upgrade": protocol}, True, "GET")
        if response.status == 101:
            return Upgraded(self, pool, response)
        await self.release(pool, response)
        raise protocol_error(f"an answer of the status {response.status}")

    async def _send(
        self, method: str, type_: str, body: bytes | AsyncIterator[bytes], wait: float, headers: dict[str, str] | None, fresh: bool, verb: str = "POST"
    ) -> tuple[_Pool, httpcore.Response]:
        """The answer, once its head has come. The caller releases it."""
        if self._closed:
            raise ClosedError("the client was closed")
        url = self._urls.get(method)
        if url is None:
            t = self._target
            url = httpcore.URL(scheme=t.scheme, host=t.host, port=t.port, target=f"{t.path}/tend.v1.{method}")
            if verb == "POST":
                self._urls[method] = url
        size = ("Content-Length", str(len(body))) if isinstance(body, bytes) else ("Transfer-Encoding", "chunked")
        all_ = [*self._headers, *([("Content-Type", type_), size] if type_ else []), *(headers or {}).items()]
        request = httpcore.Request(verb, url, headers=all_, content=body, extensions={"timeout": {"connect": min(wait, 10.0), "read": wait, "write": wait, "pool": wait}})
        pool = self._fresh if fresh else self._pool
        pool.used += 1
        try:
            response = await pool.http.handle_async_request(request)
        except BaseException as err:
            pool.used -= 1
            await self._sweep()
            if isinstance(err, connect.BROKEN):
                raise self._broken(err) from err
            raise
        if response.status in (101, 200, 204):
            return pool, response
        try:
            said = await self._whole(response, connect.MAX_ERROR)
            raise connect.refusal(self.url, response.status, _header(response, b"location"), said, self.known)
        finally:
            await self.release(pool, response)

    def _broken(self, err: Exception) -> Exception:
        return ClosedError("the client was closed") if self._closed else connect.lost(err)

    def _of_type(self, response: httpcore.Response, want: str) -> None:
        got = (_header(response, b"content-type") or "").split(";")[0]
        if got != want:
            raise protocol_error(f"an answer of the type {got}")

    async def body(self, response: httpcore.Response) -> AsyncIterator[bytes]:
        """The body of an answer; what breaks it is ConnectionLost."""
        assert isinstance(response.stream, AsyncIterable)
        try:
            async for part in response.stream:
                yield part
        except connect.BROKEN as err:
            raise self._broken(err) from err

    async def _whole(self, response: httpcore.Response, most: int) -> bytes:
        parts: list[bytes] = []
        have = 0
        async for part in self.body(response):
            have += len(part)
            if have > most:
                raise protocol_error(f"more than {most} bytes")
            parts.append(part)
        return b"".join(parts)

    async def release(self, pool: _Pool, response: httpcore.Response) -> None:
        """Closes an answer, and the connection unless the whole of it has come."""
        pool.used -= 1
        try:
            await response.aclose()
        except connect.BROKEN:
            pass  # it was broken already
        finally:
            await self._sweep()


def _header(response: httpcore.Response, name: bytes) -> str | None:
    """The first header of this name, which is in lower case."""
    for key, value in response.headers:
        if key.lower() == name:
            return value.decode("latin-1")
    return None
