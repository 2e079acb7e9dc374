"""OCI images, from which sandboxes are created."""

from __future__ import annotations

from builtins import list as List
from collections.abc import AsyncIterator, Callable

from .. import _images as i
from .. import _messages as m
from .._errors import clean, protocol_error
from .._wire import Message
from .link import Following, Link
from .transport import Stream


class AsyncImages:
    """The images of the daemon.

    A key is an id, the first 6 digits or more of it, or a name such as "python:3". NotFoundError: there is none.
    UnsupportedError: the daemon has no images, as it isolates nothing.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    async def list(self) -> List[i.Image]:
        """All images, the newest first."""
        await self._link.needs("sandboxes", "sandboxes")
        return [i.image(x) for x in (await self._link.call("ImageService/ListImages", {})).get("images", [])]

    async def get(self, key: str) -> i.Image:
        """Finds one."""
        await self._link.needs("sandboxes", "sandboxes")
        return i.image((await self._link.call("ImageService/GetImage", {"image": m.text("image", key)})).get("image"))

    async def pull(self, name: str, *, say: Callable[[str], None] | None = None, progress: Callable[[int, int], None] | None = None) -> i.Image:
        """Has the server fetch an image from its registry, as far as it is not there.

        It uses the credentials that docker login or podman login have stored on the server's machine. say is called with what
        happens, progress with the bytes that have come and how many there will be. When the call is cancelled, what is complete
        stays, and the next call goes on with the rest.
        """
        request = {"image": m.text("image", name)}
        await self._link.needs("sandboxes", "sandboxes")

        async def make() -> Stream:
            return await self._link.open("ImageService/PullImage", request)

        def take(message: Message) -> tuple[Message | None, bool]:
            if say is not None and message.get("message"):
                say(clean(message["message"]))
            if progress is not None:
                progress(m.offset("a size", message.get("done", 0)), m.offset("a size", message.get("total", 0)))
            return message.get("image"), True

        following: Following[Message] = Following(self._link, make, take)
        try:
            last = await following.next()
            if last is None:
                raise protocol_error("the fetch of an image without its end")
            return i.image(last)
        finally:
            await following.aclose()

    async def export(self, key: str) -> AsyncIterator[bytes]:
        """An archive of an image, in pieces, as `tend image import` and `docker load` read it.

        By a name it has that name alone, by its id all of them. After a lost connection the server makes it again, and what has
        come already is left out.
        """
        request = {"image": m.text("image", key)}
        await self._link.needs("sandboxes", "sandboxes")
        got = at = 0

        async def make() -> Stream:
            nonlocal at
            at = 0
            return await self._link.open("ImageService/ExportImage", request)

        def take(message: Message) -> tuple[bytes | None, bool]:
            nonlocal got, at
            data: bytes = message.get("data", b"")
            fresh = data[max(0, got - at) :]
            at += len(data)
            got += len(fresh)
            return fresh or None, bool(fresh)

        following: Following[bytes] = Following(self._link, make, take)
        try:
            while True:
                piece = await following.next()
                if piece is None:
                    return
                yield piece
        finally:
            await following.aclose()

    async def remove(self, key: str) -> None:
        """Takes a name from an image, and removes the image with its last name, or if the key is its id. Sandboxes and templates stay."""
        await self._link.needs("sandboxes", "sandboxes")
        await self._link.once("ImageService/RemoveImage", {"image": m.text("image", key)})

    async def prune(self, *, all: bool = False) -> List[i.Image]:
        """Removes the images without a name, or with all those that no sandbox and no template uses, and returns them."""
        await self._link.needs("sandboxes", "sandboxes")
        return [i.image(x) for x in (await self._link.once("ImageService/PruneImages", {"all": all})).get("images", [])]
