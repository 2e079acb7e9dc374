"""Templates: what sandboxes are made from."""

from __future__ import annotations

from builtins import list as List
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Unpack

from .. import _connect as connect
from .. import _messages as m
from .. import _templates as t
from .._errors import protocol_error
from .._wire import Message, encode
from .link import Following, Link
from .transport import Stream


class AsyncTemplates:
    """The templates of the daemon. UnsupportedError: it has none, as it isolates nothing."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def list(self) -> List[t.Template]:
        """All templates, oldest first."""
        await self._link.needs("sandboxes", "sandboxes")
        return [t.template(x) for x in (await self._link.call("SandboxService/Templates", {})).get("templates", [])]

    async def delete(self, key: str) -> None:
        """Removes a template and its tags, by its name, "name:tag" or id. Sandboxes stay. NotFoundError: there is none."""
        await self._link.needs("sandboxes", "sandboxes")
        await self._link.once("SandboxService/DeleteTemplate", {"template": m.text("template", key)})

    async def build(self, name: str, steps: Sequence[t.TemplateStep] = (), *, log: Callable[[t.BuildLog], None] | None = None, **options: Unpack[t.TemplateOptions]) -> t.TemplateBuild:
        """Builds a template, and calls log with each line until it is done. BuildError says which step failed, and why.

        name: 1 to 128 of [a-z0-9_-], with one namespace and "/" before them or none. steps: at most 1,000; what was done
        before, and did not change, is taken from the server's cache. A build goes on when this call is cancelled. It does not
        outlive the server (NotFoundError), and is not repeated.
        """
        spec = t.to_template(name, steps, options)
        await self._link.needs("sandboxes", "sandboxes")
        try:
            stream = await self._link.transport.stream("SandboxService/BuildTemplate", "BuildTemplateResponse", _pieces(spec, steps), wait=self._link.silence)
            try:
                said = await stream.next()
            finally:
                await stream.aclose()
        except connect.ConnectionLost as err:
            raise connect.final(self._link.url, err) from None
        if not said or not said.get("build"):
            raise protocol_error("a build without an id")
        return await self._follow(said["build"], log)

    async def _follow(self, id_: str, log: Callable[[t.BuildLog], None] | None) -> t.TemplateBuild:
        at = 0

        async def make() -> Stream:
            return await self._link.open("SandboxService/FollowBuild", {"build": id_, "from": at})

        def take(message: Message) -> tuple[Message | None, bool]:
            nonlocal at
            at = message.get("next", at)
            return message, True

        following: Following[Message] = Following(self._link, make, take)
        try:
            while True:
                message = await following.next()
                if message is None:
                    raise protocol_error("the log of a build without its end")
                for line in message.get("logs", []):
                    if log is not None:
                        log(t.build_log(line))
                if "build" in message:
                    return t.build(message["build"])
        finally:
            await following.aclose()


async def _pieces(spec: Message, steps: Sequence[t.TemplateStep]) -> AsyncIterator[bytes]:
    yield connect.envelope(encode("BuildTemplateRequest", {"spec": spec}))
    for n, step in enumerate(steps):
        if step.kind == "COPY":
            for piece in t.archive(step):
                yield connect.envelope(encode("BuildTemplateRequest", {"step": n, "data": piece}))
