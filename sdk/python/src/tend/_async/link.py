"""The way to one server: calls that are repeated while their connection is lost, and streams that go on where they were."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from .. import _connect as connect
from .._errors import TendError, UnsupportedError, protocol_error
from .._retry import Attempts, Deadline, Retry
from .._types import ServerInfo
from .._wire import Message, encode
from ._io import Later, sleep
from .transport import Stream, Transport

log = logging.getLogger("tend")

HELLO_WAIT = 15.0
"""Seconds for the hello of a server."""

_MOMENT = 5.0

_A_WHILE = 0.1
"""Seconds in which the next run may take along what the last one leaves to be removed."""

_MOST_FORGOTTEN = 100
"""Most processes that one run takes along."""

T = TypeVar("T")

NO_DEADLINE = Deadline(None, "")


def names(method: str) -> tuple[str, str]:
    """The messages of a method."""
    service, _, name = method.partition("/")
    if service in ("SandboxService", "ServiceService", "KeyService", "CodeService"):
        name = _LONG.get(method, name)
    return f"{name}Request", f"{name}Response"


# Methods whose messages have a name of their own.
_LONG = {
    **{f"SandboxService/{verb}": f"{verb}Sandbox" for verb in ("Create", "Get", "Update", "Start", "Stop", "Pause", "Resume", "Destroy", "Snapshot", "Fork")},
    **{f"CodeService/{verb}Context": f"{verb}CodeContext" for verb in ("Create", "Restart", "Remove")},
    "CodeService/ListContexts": "ListCodeContexts",
    "SandboxService/List": "ListSandboxes",
    "SandboxService/Snapshots": "ListSnapshots",
    "SandboxService/Metrics": "SandboxMetrics",
    "SandboxService/Access": "SandboxAccess",
    "SandboxService/Templates": "ListTemplates",
    **{f"ServiceService/{verb}": f"{verb}Services" for verb in ("Apply", "Start", "Stop", "Restart", "List", "Watch")},
}


class Link:
    def __init__(self, url: str, transport: Transport, retry: Retry, silence: float) -> None:
        self.url = url
        self.transport = transport
        self.retry = retry
        self.silence = silence
        """Seconds in which a server must say something."""
        self.server = ServerInfo("", "")
        self._said: Message = {}
        self._later = Later()
        self._forgotten: deque[tuple[str, dict[str, str] | None]] = deque()
        self._forgetting = False

    async def hello(self, wait: float = HELLO_WAIT) -> None:
        said = await self.transport.unary("ProcessService/Hello", "HelloResponse", b"", wait=min(wait, HELLO_WAIT, self.silence))
        self._said = said
        self.server = ServerInfo(said.get("version", ""), said.get("instance", ""))

    @property
    def runs(self) -> bool:
        """A command is one call."""
        return bool(self._said.get("runs"))

    def lacks_runs(self) -> None:
        """The server has been replaced by one of a former version."""
        self._said = {**self._said, "runs": False}

    async def needs(self, ability: str, what: str) -> None:
        """Fails on a server of a former version, which would not understand, or pass over, what it is asked for."""
        if not self._said.get(ability):  # it may have been replaced since it said what it knows
            self._said = await self.call("ProcessService/Hello", {})
        if not self._said.get(ability):
            raise UnsupportedError(f"{self.url} has no {what}, or is of a former version: tend upgrade replaces it")

    async def again(self, err: BaseException, attempts: Attempts, deadline: Deadline) -> None:
        """What to do about the error of an attempt: waits until the next may be made, or raises what the caller gets.

        It is the only place that decides it.
        """
        if not isinstance(err, connect.ConnectionLost):
            raise err
        if deadline.over():
            raise deadline.error() from err
        if err.away or err.silent:
            await self.transport.replace()
        wait = attempts.next(err.away or bool(self._said.get("listeners_held")))
        if wait is None:
            raise connect.final(self.url, err) from None
        log.info("%s: try again in %.3f s: %s", self.url, wait, err)
        await sleep(deadline.left(wait))

    async def call(
        self,
        method: str,
        message: Message | Callable[[int], Message],
        *,
        headers: dict[str, str] | None = None,
        deadline: Deadline = NO_DEADLINE,
    ) -> Message:
        """A call that is safe to repeat. The message may be made for each attempt, from its number.

        Each attempt lasts at most `silence`; a server that answers a hello then is there, and what was asked takes that long.
        """
        request, answer = names(method)
        attempts = Attempts(self.retry)
        n = 0
        while True:
            n += 1
            body = encode(request, message(n) if callable(message) else message)
            try:
                return await self.transport.unary(method, answer, body, wait=deadline.left(self.silence), headers=headers)
            except connect.ConnectionLost as err:
                if err.silent and not deadline.over():
                    await self.transport.replace()  # the other idle connections may be as dead as this one
                    try:
                        await self.hello(deadline.left(HELLO_WAIT))
                        attempts.progress()
                        continue
                    except (connect.ConnectionLost, TendError):
                        pass
                await self.again(err, attempts, deadline)

    async def pages(self, method: str, message: Message, field: str, *, headers: dict[str, str] | None = None) -> list[Message]:
        """All of a list that comes in pages."""
        found: list[Message] = []
        after = ""
        while True:
            said = await self.call(method, {**message, "after": after}, headers=headers)
            page = said.get(field, [])
            found += page
            following = said.get("next", "")
            if not following:
                return found
            if not page or following == after:
                raise protocol_error("a list that does not go on")
            after = following

    async def once(self, method: str, message: Message, *, headers: dict[str, str] | None = None) -> Message:
        """A call that may have an effect each time it is made: it is made once, on a new connection."""
        request, answer = names(method)
        body = encode(request, message)
        try:
            return await self.transport.unary(method, answer, body, wait=self.silence, headers=headers, fresh=True)
        except connect.ConnectionLost as err:
            raise connect.final(self.url, err) from None

    async def open(self, method: str, message: Message, *, headers: dict[str, str] | None = None, deadline: Deadline = NO_DEADLINE) -> Stream:
        request, answer = names(method)
        return await self.transport.stream(method, answer, connect.envelope(encode(request, message)), wait=deadline.left(self.silence), headers=headers)

    def later(self, method: str, message: Message, headers: dict[str, str] | None) -> None:
        """A call that nobody waits for, and that need not succeed. It is made once; aclose waits for it, a moment."""
        request, answer = names(method)
        body = encode(request, message)

        async def work() -> None:
            try:
                await self.transport.unary(method, answer, body, wait=_MOMENT, headers=headers)
            except (connect.ConnectionLost, TendError):
                pass

        self._later.add(work)

    def forget(self, id_: str, headers: dict[str, str] | None, can_wait: bool) -> None:
        """Removes a finished process.

        If it can wait, the next run of the same place takes it along, if there is one at once: a call of its own costs as much
        as a run. If that fails, the process is kept until its time is over.
        """
        if not can_wait or not self.runs:
            self.later("ProcessService/Remove", {"process": {"id": id_}}, headers)
            return
        self._forgotten.append((id_, headers))
        if not self._forgetting:
            self._forgetting = True
            self._later.add(self._forget)

    async def _forget(self) -> None:
        await self._later.pause(_A_WHILE)
        self._forgetting = False  # what comes from now on has another
        while self._forgotten:
            try:
                id_, headers = self._forgotten.popleft()
            except IndexError:
                return  # a run of another thread has taken it
            self.later("ProcessService/Remove", {"process": {"id": id_}}, headers)

    def take_forgotten(self, headers: dict[str, str] | None) -> list[str]:
        """What the next run of a place takes along."""
        taken: list[str] = []
        for _ in range(min(len(self._forgotten), _MOST_FORGOTTEN)):
            try:
                one = self._forgotten.popleft()
            except IndexError:
                break
            if one[1] is headers:
                taken.append(one[0])
            else:
                self._forgotten.append(one)
        return taken

    async def aclose(self) -> None:
        await self._later.finish(_MOMENT)
        await self.transport.aclose()


class Following(Generic[T]):
    """Streams, one after the other, until one ends as it should.

    make opens the next from where the last one came to; take turns a message into what is delivered (None: nothing) and says
    whether that is progress. A call of next that is cancelled, or whose time is over, loses nothing: the next one goes on
    from there.
    """

    def __init__(
        self,
        link: Link,
        make: Callable[[], Awaitable[Stream]],
        take: Callable[[Message], tuple[T | None, bool]],
        complete: Callable[[], bool] = lambda: False,
        deadline: Deadline = NO_DEADLINE,
    ) -> None:
        self._link = link
        self._make = make
        self._take = take
        self._complete = complete
        self._deadline = deadline
        self._attempts = Attempts(link.retry)
        self._stream: Stream | None = None
        self._wait = 0.0
        self.ended = False

    async def next(self) -> T | None:
        """What is delivered next; None: that is all."""
        while not self.ended:
            try:
                if self._stream is not None and self._deadline.left(self._wait) < 0.9 * self._wait:
                    await self._drop()  # it would wait for longer than there is time
                if self._stream is None:
                    self._wait = self._deadline.left(self._link.silence)
                    self._stream = await self._make()
                message = await self._stream.next()
                if message is None:
                    await self.aclose()
                    return None
                value, progress = self._take(message)
                if progress:
                    self._attempts.progress()
                if value is not None:
                    return value
            except connect.ConnectionLost as err:
                await self._drop()
                if self._complete():  # whatever became of the connection
                    break
                await self._link.again(err, self._attempts, self._deadline)
            except BaseException:
                await self._drop()
                raise
        self.ended = True
        return None

    async def _drop(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()

    async def aclose(self) -> None:
        self.ended = True
        await self._drop()
