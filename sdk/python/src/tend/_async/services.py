"""Services: programs that are kept running as a tend.yaml declares them."""

from __future__ import annotations

import os
from builtins import list as List
from collections.abc import AsyncIterator, Mapping

from .. import _connect as connect
from .. import _episodes as e
from .. import _messages as m
from .. import _types as t
from .._errors import clean
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

    async def heal(self, service: str = "", *, dry_run: bool = False) -> str:
        """Begins to repair a service, whatever is known of it, and returns the id of the episode.

        service: default the one that the healer is for. dry_run: only find out what would be tried. It is not repeated when
        the answer is lost.
        """
        await self._needed()
        return clean((await self._link.once("ServiceService/Heal", {"service": m.text("service", service), "dry_run": dry_run})).get("episode", ""))

    async def cancel_heal(self, id: str = "") -> None:
        """Ends a repair, and has what it has changed taken back; default: the one that is under way.

        It returns when that is written down.
        """
        await self._needed()
        await self._link.call("ServiceService/CancelHeal", {"id": m.text("id", id)})

    async def roll_back(self, id: str) -> str:
        """Takes back what a repair has changed for good, restarts the service, and returns the id of the episode that does it.

        Exactly its files become what they were, by one new commit where there was one. It returns once it is known that this may
        be; it is safe to repeat. TendError with the code `changed`, and nothing is done: one of them has changed since; its words
        name them. `running`: the service is being repaired. `unsupported`: there is nothing to go back to.
        """
        await self._needed()
        return clean((await self._link.call("ServiceService/RollBackEpisode", {"id": m.text("id", id)})).get("episode", ""))

    async def episodes(self, service: str = "") -> List[e.Episode]:
        """The newest repairs of a service, default of all, the newest first: at most 100, without diff and transcript."""
        await self._needed()
        return [e.episode(x) for x in (await self._link.call("ServiceService/ListEpisodes", {"service": m.text("service", service)})).get("episodes", [])]

    async def episode(self, id: str = "") -> e.Episode:
        """One repair, default the newest, with diff and transcript. NotFoundError."""
        await self._needed()
        said = await self._link.call("ServiceService/GetEpisode", {"id": m.text("id", id)})
        return e.episode(said.get("episode"), said.get("diff", b""), said.get("transcript", b""))

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
