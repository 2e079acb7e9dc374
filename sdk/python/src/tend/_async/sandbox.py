"""One sandbox of the server."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, Unpack
from urllib.parse import urlencode, urlsplit

from .. import _connect as connect
from .. import _messages as m
from .. import _types as t
from .._errors import InvalidError, TendError, UnsupportedError, clean
from .._retry import Attempts
from .._wire import Message
from .code import AsyncCodeContexts
from .files import AsyncFiles
from .git import AsyncGit
from .link import NO_DEADLINE, Link
from .port import AsyncPortConnection
from .processes import AsyncProcesses


class AsyncSandbox:
    """A place on the server with files and processes of its own.

    How far it is isolated from the server's machine is what was asked for and `info` tells: what was known when the handle
    was made. Any number of handles, of any client, may be to one sandbox, which outlives them all. What a sandbox that was
    destroyed is asked for is a NotFoundError.
    """

    def __init__(self, link: Link, info: t.SandboxInfo) -> None:
        self._link = link
        self.info = info
        headers = {"Tend-Sandbox": info.id}
        self.processes = AsyncProcesses(link, headers)
        """Its processes, and no others. They do not start it: SandboxStoppedError, SandboxPausedError."""
        self.files = AsyncFiles(link, headers)
        self.code_contexts = AsyncCodeContexts(link, headers)
        """Those of its cells."""

    def git(self, path: str) -> AsyncGit:
        """The git repository in a directory of the sandbox, which init or clone makes."""
        return AsyncGit(self.processes, m.text("path", path))

    @property
    def id(self) -> str:
        return self.info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.info.name or self.id}>"

    async def _call(self, verb: str, ignored: str = "") -> None:
        try:
            await self._link.call(f"SandboxService/{verb}", {"sandbox": self.id})
        except TendError as err:
            if err.code != ignored:
                raise

    async def code(
        self,
        code: str,
        *,
        context: str = "",
        language: str = "",
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        on_event: Callable[[dict[str, Any]], object] | None = None,
    ) -> t.CodeResult:
        """Runs a cell, as a notebook does, and returns when it has ended; a cell that fails raises nothing.

        The sandbox is from the template code-interpreter-v1, or one that begins with it: otherwise UnsupportedError. context: the
        id of one; or language: the one whose own context it is (python, javascript, typescript, bash, or one whose kernel of Jupyter is
        installed in the sandbox, such as r and java). env: for this cell alone.
        timeout: seconds until it is interrupted, as by Ctrl-C; its context keeps its variables. on_event: called with each event
        as it comes. A lost connection, or a server that is replaced, loses nothing.
        """
        return await self.code_contexts.run(code, context=context, language=language, env=env, timeout=timeout, on_event=on_event)

    async def refresh(self) -> t.SandboxInfo:
        """What is known of it now."""
        return m.sandbox((await self._link.call("SandboxService/Get", {"sandbox": self.id})).get("sandbox"), self.id)

    async def update(self, **change: Unpack[t.SandboxChange]) -> t.SandboxInfo:
        """Changes what can be changed, in whatever state it is."""
        return m.sandbox((await self._link.call("SandboxService/Update", m.to_update(self.id, change))).get("sandbox"), self.id)

    async def start(self) -> None:
        """Makes a stopped sandbox ready again, with its files, and resumes one that is paused. It is no error if it is ready."""
        await self._call("Start")

    async def stop(self) -> None:
        """Ends all its processes and keeps its files, unless it is disposable."""
        await self._call("Stop")

    async def pause(self) -> None:
        """Lets its processes stand still. It is no error if they do. UnsupportedError: it cannot; stop keeps its files."""
        await self._call("Pause", "sandbox_paused")

    async def resume(self) -> None:
        """Lets a paused sandbox go on. It is no error if it is ready."""
        await self._call("Resume")

    async def destroy(self) -> None:
        """Ends all its processes and removes all that belongs to it. It is no error if that was done."""
        await self._call("Destroy", "not_found")

    async def snapshot(self, name: str = "") -> t.SandboxSnapshot:
        """Keeps its files under a name, for later sandboxes; without one the server makes it up.

        It is not repeated when the answer is lost.
        """
        return m.snapshot((await self._link.once("SandboxService/Snapshot", {"sandbox": self.id, "name": m.text("name", name)})).get("snapshot"))

    async def fork(self, count: int = 1, *, timeout: float = 0) -> list[AsyncSandbox | TendError]:
        """Makes count sandboxes (1 to 100) with the files that this one has now, without its processes.

        timeout: seconds until they are destroyed; 0: never. An element is an error where a copy was not made. It is not
        repeated when the answer is lost.
        """
        if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 100:
            raise InvalidError("count", f"is {count!r}; 1 to 100 copies can be made")
        request: Message = {"sandbox": self.id, "count": count, "timeout": m.duration("timeout", timeout or None)}
        said = await self._link.once("SandboxService/Fork", request)
        return [AsyncSandbox(self._link, m.sandbox(f["sandbox"])) if "sandbox" in f else TendError(f.get("error", "")) for f in said.get("forks", [])]

    async def access(self) -> t.SandboxAccess:
        """What opens this sandbox alone, for clients of other protocols and for its ports, if they are not public."""
        said = await self._link.call("SandboxService/Access", {"sandbox": self.id})
        return t.SandboxAccess(said.get("token", ""), said.get("traffic_token", ""), tuple(clean(d) for d in said.get("domains", [])))

    async def metrics(self) -> list[t.SandboxMetric]:
        """What it used in the last minutes, oldest first."""
        return [m.metric(x) for x in (await self._link.call("SandboxService/Metrics", {"sandbox": self.id})).get("metrics", [])]

    async def dial(self, port: int) -> AsyncPortConnection:
        """Connects to a TCP port that a program in the sandbox listens on, through the server, which needs no port for that."""
        query = urlencode({"sandbox": self.id, "port": _port(port)})
        attempts = Attempts(self._link.retry)
        while True:
            try:
                upgraded = await self._link.transport.upgrade(f"SandboxService/Dial?{query}", "tend-port", wait=min(_DIAL, self._link.silence))
                return AsyncPortConnection(self._link.transport, upgraded)
            except connect.ConnectionLost as err:
                await self._link.again(err, attempts, NO_DEADLINE)

    async def download_url(self, path: str, *, user: str = "", expires: float = 3600) -> str:
        """A URL with which anybody may get one file until it expires, by GET and without a token.

        path: absolute. user: one inside; default: the sandbox's own. expires: seconds from now, 1 to 7 days. UnsupportedError: the
        server has no port.
        """
        return await self._signed("read", path, user, expires)

    async def upload_url(self, path: str, *, user: str = "", expires: float = 3600) -> str:
        """A URL like that of download_url with which anybody may write one file by POST.

        The content is sent as application/octet-stream, or in a form.
        """
        return await self._signed("write", path, user, expires)

    async def _signed(self, op: str, path: str, user: str, expires: float) -> str:
        """The URL that E2B's protocol has for a file. Its token is the sandbox's alone."""
        if not m.text("path", path).startswith("/"):
            raise InvalidError("path", "is not absolute")
        if not 1 <= expires <= _MAX_SIGNED:
            raise InvalidError("expires", f"is {expires!r}; 1 to {_MAX_SIGNED} seconds are allowed")
        base = self._link.url
        if base.startswith("unix:"):
            base = (await self._link.call("AdminService/Status", {})).get("url", "")
        if not base.startswith(("http://", "https://")):
            raise UnsupportedError("the server has no TCP port, as with tend serve")
        until = str(int(time.time() + expires))
        signed = ":".join([path, op, m.text("user", user), (await self.access()).token, until])
        signature = "v1_" + base64.b64encode(hashlib.sha256(signed.encode()).digest()).decode().rstrip("=")
        query = {"path": path, "username": user, "signature": signature, "signature_expiration": until}
        return f"{base.rstrip('/')}/files?{urlencode(query)}"

    async def port_url(self, port: int, *, domain: str | None = None) -> str | None:
        """Where a port inside is served over HTTP and WebSocket; without a token of the sandbox only if its network is public.

        domain is the server's (tend serve --domain); default: localhost, for programs on the server's machine that can
        resolve such names. None: the server has no port, or is elsewhere, and there is no domain.
        """
        _port(port)
        url = self._link.url
        if url.startswith("unix:"):
            url = (await self._link.call("AdminService/Status", {})).get("url", "")
        u = urlsplit(url)
        if u.scheme not in ("http", "https") or not u.hostname:
            return None
        if domain is None and not re.fullmatch(r"localhost|127\..*|::1", u.hostname):
            return None
        return f"{u.scheme}://{port}-{self.id}.{domain or 'localhost'}" + (f":{u.port}" if u.port else "")


_MAX_SIGNED = 7 * 24 * 3600
"""The longest that a signed URL is good for, in seconds."""

_DIAL = 30.0
"""Seconds that the server and the program may take to answer together."""


def _port(port: int) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 1 <= port <= 65535:
        raise InvalidError("port", f"is {port!r}; 1 to 65535 are ports")
    return port
