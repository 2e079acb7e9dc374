"""Services: programs that are kept running as a tend.yaml declares them."""

from __future__ import annotations

import os
from builtins import list as List
from collections.abc import AsyncIterator, Mapping

from .. import _connect as connect
from .. import _messages as m
from .. import _types as t
from .._wire import Message
from .link import Following, Link
from .transport import Stream


class AsyncServices:
    """The services of the daemon. NotFoundError: a name is not declared."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def _needed(self) -> None:
        await self._link.needs("services", "services")

    async def apply(self, text: str | bytes, *, dir: str | None = None, name: str = "tend.yaml", env: Mapping[str, str] | None = None, env_files: Mapping[str, bytes] | None = None) -> None:
        """Declares the services of a tend.yaml. What differs from before is changed, and nothing else.

        dir: the absolute directory that relative paths in it are below; default: the current one. name: what errors call the
        file. env: for services that inherit the environment of whoever applies. env_files: what env_file names in it, with
        the contents. InvalidError says what is wrong with the file.
        """
        await self._needed()
        raw = text.encode() if isinstance(text, str) else text
        request: Message = {"text": raw, "name": name, "dir": dir or os.getcwd(), "env": m.text_map("env", env), "env_files": None if env_files is None else dict(env_files)}
        await self._link.call("ServiceService/Apply", request)

    async def start(self, *names: str) -> None:
        """Asks for services, and for those that they depend on; no names: for all that are not disabled.

        It returns when that is written down; watch tells what becomes of them.
        """
        await self._needed()
        await self._link.call("ServiceService/Start", {"names": m.texts("names", names)})

    async def stop(self, *names: str) -> None:
        """Ends services, those that depend on them first; no names: all."""
        await self._needed()
        await self._link.call("ServiceService/Stop", {"names": m.texts("names", names)})

    async def restart(self, *names: str) -> None:
        """Ends services and starts them again. It is not repeated when the answer is lost."""
        await self._needed()
        await self._link.once("ServiceService/Restart", {"names": m.texts("names", names)})

    async def list(self) -> List[t.Service]:
        """All services, each after those that it depends on."""
        await self._needed()
        return [m.service(s) for s in (await self._link.call("ServiceService/List", {})).get("services", [])]

    async def watch(self) -> AsyncIterator[List[t.Service]]:
        """All services, and again after changes; changes that follow each other closely come together."""
        await self._needed()

        async def make() -> Stream:
            return await self._link.open("ServiceService/Watch", {})

        def take(message: Message) -> tuple[List[t.Service] | None, bool]:
            if message.get("going_away"):
                raise connect.ConnectionLost("the server went away again and again", away=True)
            if message.get("heartbeat"):
                return None, True
            return [m.service(s) for s in message.get("services", [])], True

        following: Following[List[t.Service]] = Following(self._link, make, take)
        try:
            while True:
                found = await following.next()
                if found is None:
                    return
                yield found
        finally:
            await following.aclose()
