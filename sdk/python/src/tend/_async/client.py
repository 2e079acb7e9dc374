"""A client of one tend server."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Unpack

from .. import _connect as connect
from .. import _messages as m
from .. import _types as t
from .._errors import InvalidError, NoDaemonError, TendError
from .._home import defaults
from .._retry import Attempts, Retry
from .._usage import Usage, usages
from .._wire import Message
from ._io import sleep
from .files import AsyncFiles
from .images import AsyncImages
from .link import NO_DEADLINE, Link
from .processes import AsyncProcesses
from .sandbox import AsyncSandbox
from .services import AsyncServices
from .templates import AsyncTemplates
from .transport import Transport

_OPENED = "tend.opened"
"""The entry of the metadata of sandboxes that open_sandbox made."""


class AsyncClient(AsyncProcesses):
    """Speaks to one tend server. Its own processes are those of the server's machine.

    It is safe for use by several tasks or threads, and made by connect. Close it, or use it in a `with` statement; processes
    are not touched by that.
    """

    def __init__(self, link: Link) -> None:
        super().__init__(link)
        self.services = AsyncServices(link)
        self.templates = AsyncTemplates(link)
        self.images = AsyncImages(link)
        self.files = AsyncFiles(link, None)
        """Files of the server's machine."""

    @classmethod
    async def connect(
        cls,
        url: str | None = None,
        *,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        retry: Retry = Retry(),
        silence: float = 45.0,
    ) -> AsyncClient:
        """Connects, and says hello. From then on lost connections are replaced.

        url: http://HOST:PORT, https://HOST or unix:///PATH; default: TEND_URL, else where the daemon of the current user
        listens, as the tend command line finds it. token: default none with a url, else TEND_TOKEN: it is not given to a
        server that it is not for. tls: of https URLs; default: the certificates of certifi. silence: seconds in which a server
        must say something; default three of its heartbeats. NoDaemonError: no program listens there;
        PermissionDeniedError: the token is refused, or there is none.
        """
        if not silence > 0:
            raise InvalidError("silence", f"is {silence!r}; seconds are needed, more than 0")
        urls, found = ([url], "") if url is not None else defaults()
        last: TendError | None = None
        for one in urls:
            link = Link(one, Transport(one, token or found, tls), retry, silence)
            try:
                await _greet(link)
                return cls(link)
            except NoDaemonError as err:
                await link.aclose()
                last = err
            except BaseException:
                await link.aclose()
                raise
        if len(urls) < 2 and last is not None:
            raise last
        raise NoDaemonError(f"no daemon listens (tried {', '.join(urls)}); start one: tend serve")

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends all connections of this client. Processes are not touched."""
        await self._link.aclose()

    @property
    def url(self) -> str:
        return self._link.url

    @property
    def server(self) -> t.ServerInfo:
        """The server that said hello."""
        return self._link.server

    async def status(self) -> t.Status:
        """What the daemon says of itself."""
        said = await self._link.call("AdminService/Status", {})
        roles = {name: role.get("pid", 0) for name, role in said.get("roles", {}).items()}
        return t.Status(said.get("version", ""), said.get("url", ""), said.get("state_dir", ""), roles, said.get("processes", 0))

    async def create_sandbox(self, name: str | None = None, **options: Unpack[t.SandboxOptions]) -> AsyncSandbox:
        """Makes a sandbox, and returns when programs can run in it. ExistsError: the name is taken.

        name: unique, 1 to 128 letters, digits, '.', '_' or '-'; default: the server makes one up. It is not repeated when the
        answer is lost: the sandbox may have been made then, and is in sandboxes(). One with a name is better opened.
        """
        spec = m.to_sandbox_spec(name, options)
        await self._needs_sandboxes()
        return AsyncSandbox(self._link, m.sandbox((await self._link.once("SandboxService/Create", {"spec": spec})).get("sandbox")))

    async def open_sandbox(self, name: str, **options: Unpack[t.SandboxOptions]) -> AsyncSandbox:
        """Makes a sandbox, or finds the one of its name as it is and starts it, if it is not ready.

        It is safe to repeat, and is repeated when an answer is lost. The sandbox has an entry `tend.opened` in its metadata.
        """
        if not name:
            raise InvalidError("name", "is missing; a sandbox is opened by its name")
        metadata = {**options.get("metadata", {}), _OPENED: os.urandom(12).hex()}
        spec = m.to_sandbox_spec(name, {**options, "metadata": metadata})
        await self._needs_sandboxes()
        until, delay = time.monotonic() + 60, 0.01
        while True:
            try:
                return AsyncSandbox(self._link, m.sandbox((await self._link.call("SandboxService/Create", {"spec": spec})).get("sandbox")))
            except TendError as err:
                if err.code != "exists":
                    raise
            try:
                sandbox = await self.sandbox(name)
                if sandbox.info.state != "ready":
                    await sandbox.start()
                return sandbox
            except TendError as err:
                # Another one is making it, or it was destroyed in between.
                if err.code != "not_found" or time.monotonic() > until:
                    raise
            await sleep(delay)
            delay = min(2 * delay, 0.5)

    async def sandbox(self, key: str) -> AsyncSandbox:
        """Finds a sandbox by its id or name, in whatever state it is."""
        await self._needs_sandboxes()
        return AsyncSandbox(self._link, m.sandbox((await self._link.call("SandboxService/Get", {"sandbox": m.text("sandbox", key)})).get("sandbox")))

    async def sandboxes(self, *, states: Sequence[t.SandboxState] | None = None, metadata: Mapping[str, str] | None = None) -> list[t.SandboxInfo]:
        """What is known of the sandboxes that are in one of the states and have all of these entries, oldest first."""
        await self._needs_sandboxes()
        wanted = [m.choice("states", m.SANDBOX_STATES, s) for s in states or ()]
        request: Message = {"states": wanted, "metadata": m.text_map("metadata", metadata)}
        return [m.sandbox(s) for s in await self._link.pages("SandboxService/List", request, "sandboxes")]

    async def snapshots(self) -> list[t.SandboxSnapshot]:
        """All snapshots of sandboxes, oldest first."""
        await self._needs_sandboxes()
        return [m.snapshot(s) for s in (await self._link.call("SandboxService/Snapshots", {})).get("snapshots", [])]

    async def delete_snapshot(self, key: str) -> None:
        """Removes a snapshot by its id or name. It is no error if there is none; the code "in_use": sandboxes need it."""
        await self._needs_sandboxes()
        try:
            await self._link.call("SandboxService/DeleteSnapshot", {"snapshot": m.text("snapshot", key)})
        except TendError as err:
            if err.code != "not_found":
                raise

    async def usage(self, *names: str) -> list[Usage]:
        """Measures what is used now, by the machine, each service and each sandbox, or by those that are named.

        names: "machine", a service, a sandbox by its id or name. It takes a second.
        """
        return usages(await self._link.call("OverviewService/Usage", {"names": m.texts("names", names)}))

    async def usage_history(self, since: float, *names: str) -> list[Usage]:
        """What was used in a time until now, in seconds and of at most a day: of an hour or less each minute, else each five minutes."""
        request: Message = {"names": m.texts("names", names), "since": m.duration("since", since)}
        return usages(await self._link.call("OverviewService/Usage", request))

    async def _needs_sandboxes(self) -> None:
        await self._link.needs("sandboxes", "sandboxes")


async def _greet(link: Link) -> None:
    """A server that is being replaced is waited for; one that is not there is not."""
    attempts = Attempts(link.retry)
    while True:
        try:
            return await link.hello()
        except connect.ConnectionLost as err:
            error = connect.final(link.url, err)
            if error.code != "unavailable":
                raise error from None
            await link.again(err, attempts, NO_DEADLINE)
