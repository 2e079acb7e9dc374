"""One process of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

from .. import _connect as connect
from .. import _messages as m
from .. import _types as t
from .._errors import GapError, InvalidError, TendError, protocol_error
from .._retry import Deadline
from .._wire import Message
from .link import Following, Link
from .reader import AsyncReader
from .transport import Stream
from .writer import Writer

T = TypeVar("T")


class AsyncProcess:
    """A handle to a process.

    It holds nothing but the id: any number of handles, of any client, may be to one process, which outlives them all.
    `info` is what was known when the handle was made.
    """

    def __init__(self, link: Link, info: t.Info, headers: dict[str, str] | None = None) -> None:
        self._link = link
        self._headers = headers
        self.info = info
        self._writer = Writer(link, info.id, headers)

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def pid(self) -> int:
        """The kernel's number, which it may give to another process after the exit."""
        return self.info.pid

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} pid {self.pid}>"

    @property
    def _selector(self) -> Message:
        return {"id": self.info.id}

    async def refresh(self) -> t.Info:
        """What is known of it now. NotFoundError: it was removed."""
        said = await self._link.call("ProcessService/Get", {"process": self._selector}, headers=self._headers)
        return m.info(said.get("info"), self.id)

    def read(
        self,
        *,
        streams: Sequence[t.OutputStream] | None = None,
        start: Mapping[t.OutputStream, int] | None = None,
        follow: bool = True,
        ordered: bool = True,
        drain: float = 0,
        max_chunk: int | None = None,
        timeout: float | None = None,
    ) -> AsyncReader:
        """Its output and facts, by default all from the beginning to the end.

        streams: default all. start: the offset of the first byte of each stream; default 0, -1: what comes from now on.
        follow: False ends with what there is at the time of the call. ordered: False gives up the order between streams, for
        speed. drain: seconds to go on after the exit while a descendant holds a stream open; negative: for as long as it
        does. max_chunk: largest piece of output, in bytes, 1 to 1 MiB. timeout: seconds after which TendTimeoutError is
        raised.
        """
        return AsyncReader(self._link, self.id, self._headers, streams, start, follow, ordered, drain, max_chunk, timeout)

    async def output(self, stream: t.OutputStream = "stdout", start: int = 0, *, follow: bool = True, drain: float = 0, timeout: float | None = None) -> AsyncIterator[bytes]:
        """The bytes of one stream, in pieces. GapError: bytes were freed before they were read."""
        reader = self.read(streams=[stream], start={stream: start}, follow=follow, drain=drain, timeout=timeout)
        try:
            async for event in reader:
                if isinstance(event, t.Gap):
                    raise GapError(stream, event.start, event.end)
                if isinstance(event, t.Output):
                    yield event.data
        finally:
            await reader.aclose()

    async def write(self, data: bytes | str, *, timeout: float | None = None) -> None:
        """Sends input, of which each byte arrives once, and after all that this handle has sent before.

        It returns when the server has taken it, which waits while the process does not read. TendTimeoutError: not within
        timeout seconds (default: no bound); part of it may have been taken then. ExitedError, StdinClosedError: nobody
        reads it.
        """
        raw = data.encode() if isinstance(data, str) else bytes(data)
        if raw:
            await self._writer.write(raw, False, Deadline(timeout, f"input of process {self.id}"))

    async def close_stdin(self, *, timeout: float | None = None) -> None:
        """Closes stdin after what was written."""
        await self._writer.write(b"", True, Deadline(timeout, f"the end of the input of process {self.id}"))

    async def wait(
        self,
        *,
        quiet: float | None = None,
        match: str | None = None,
        start: Mapping[t.OutputStream, int] | None = None,
        port: int | None = None,
        input: bool = False,
        tree_gone: bool = False,
        eof: bool = False,
        timeout: float | None = None,
    ) -> t.WaitResult:
        """Waits for the exit, or one condition; the exit ends every wait. It may be called any number of times.

        quiet: so many seconds without output. match: a regular expression (RE2, at most 4 KiB) in the output, from the
        offsets of start on. port: somebody of the tree listens there. input: it waits for input. tree_gone: no descendant
        is left. eof: each stream is at its end. timeout: seconds after which TendTimeoutError is raised; default: none.
        """
        request: Message = {"process": self._selector}
        conditions: Message = {
            "quiet": m.duration("quiet", quiet),
            "match": None if match is None else {"pattern": m.text("match", match), "from": m.offsets(start)},
            "port": port,
            "input": input or None,
            "tree_gone": tree_gone or None,
            "eof": eof or None,
        }
        given = {k: v for k, v in conditions.items() if v is not None}
        if len(given) > 1:
            raise InvalidError("wait", f"has {' and '.join(given)}; one condition is possible")
        if start is not None and match is None:
            raise InvalidError("start", "is for match alone")
        request.update(given)
        deadline = Deadline(timeout, f"waiting for process {self.id}")

        async def make() -> Stream:
            return await self._link.open("ProcessService/Wait", request, headers=self._headers, deadline=deadline)

        def take(message: Message) -> tuple[t.WaitResult | None, bool]:
            if "going_away" in message:
                raise connect.ConnectionLost("the server went away again and again", away=True)
            return (m.wait_result(message["result"]), True) if "result" in message else (None, True)

        following: Following[t.WaitResult] = Following(self._link, make, take, deadline=deadline)
        try:
            result = await following.next()
        finally:
            await following.aclose()
        if result is None:
            raise protocol_error("no result of a wait")
        return result

    async def kill(self) -> t.KillResult:
        """Ends the process and all its descendants, and returns when they are gone.

        A kill whose answer was lost is sent again: it names this very process.
        """
        tries = 0

        def request(n: int) -> Message:
            nonlocal tries
            tries = n
            return {"process": self._selector}

        try:
            said = await self._link.call("ProcessService/Kill", request, headers=self._headers)
            return t.KillResult(True, tuple(said.get("survivors", ())))
        except TendError as err:
            if err.code != "exited":
                raise
        if tries == 1:
            return t.KillResult(False)
        # By one whose answer was lost, or by itself before.
        exit_ = (await self.refresh()).exit
        return t.KillResult(exit_ is not None and exit_.cause == "killed")

    async def signal(self, number: int, scope: t.Scope = "tree") -> None:
        """Sends a signal, 1 to 64. It is not repeated: a signal may have an effect each time it is sent."""
        await self._link.once("ProcessService/Signal", {"process": self._selector, "signal": int(number), "scope": m.choice("scope", m.SCOPES, scope)}, headers=self._headers)

    async def resize(self, cols: int, rows: int) -> None:
        """Changes the size of the terminal."""
        await self._link.call("ProcessService/Resize", {"process": self._selector, "size": m.size((cols, rows))}, headers=self._headers)

    async def trim(self, stream: t.OutputStream, before: int) -> None:
        """Frees output before an offset, for the retention policy "block"."""
        await self._link.call("ProcessService/Trim", {"process": self._selector, "stream": m.choice("stream", m.STREAMS, stream), "before": before}, headers=self._headers)

    async def pin(self, pinned: bool = True) -> None:
        """Keeps it when it has finished, until it is unpinned or removed."""
        await self._link.call("ProcessService/Pin", {"process": self._selector, "pinned": pinned}, headers=self._headers)

    async def remove(self) -> None:
        """Forgets it, once it has finished, and frees its output. RunningError: it has not."""
        tries = 0

        def request(n: int) -> Message:
            nonlocal tries
            tries = n
            return {"process": self._selector}

        try:
            await self._link.call("ProcessService/Remove", request, headers=self._headers)
        except TendError as err:
            if not (err.code == "not_found" and tries > 1):
                raise

    async def view(
        self,
        *,
        head_lines: int | None = None,
        head_bytes: int | None = None,
        tail_lines: int | None = None,
        tail_bytes: int | None = None,
        streams: Sequence[t.OutputStream] | None = None,
        start: Mapping[t.OutputStream, int] | None = None,
        strip: bool = False,
        max_line: int = 0,
    ) -> list[t.Piece]:
        """What it has written until now: the beginning and the end, in the order of arrival, with what lies between told.

        head and tail are of all streams together, in lines (up to 1 Mi) or bytes (up to 16 MiB); neither: everything. strip
        takes terminal escape sequences away. max_line cuts lines after so many bytes, 16 to 16 MiB; 0: whole lines.
        """
        request: Message = {
            "process": self._selector,
            "streams": [m.choice("streams", m.STREAMS, s) for s in streams or ()],
            "from": m.offsets(start),
            "head": m.amount("head", head_lines, head_bytes),
            "tail": m.amount("tail", tail_lines, tail_bytes),
            "strip_ansi": strip,
            "max_line": max_line,
        }
        return await self._collect("ViewService/View", request, m.piece)

    async def grep(
        self,
        pattern: str,
        *,
        streams: Sequence[t.OutputStream] | None = None,
        start: Mapping[t.OutputStream, int] | None = None,
        limit: int = 0,
        invert: bool = False,
        before: int = 0,
        after: int = 0,
        strip: bool = False,
        max_line: int = 0,
    ) -> list[t.Match | t.Gap]:
        """The lines of what it has written until now that match (RE2, at most 4 KiB). A Gap was freed, and not searched.

        limit: end after so many matches; 0: never. invert: the lines that do not match. before, after: lines of the same
        stream around a match, 0 to 1,000. max_line cuts the text of a match; 0: 64 KiB.
        """
        if invert or before or after:
            await self._link.needs("grep_options", "invert, before and after of a search")
        request: Message = {
            "process": self._selector,
            "pattern": m.text("pattern", pattern),
            "streams": [m.choice("streams", m.STREAMS, s) for s in streams or ()],
            "from": m.offsets(start),
            "limit": limit,
            "strip_ansi": strip,
            "max_line": max_line,
            "invert": invert,
            "before": before,
            "after": after,
        }

        def read(found: Message) -> t.Match | t.Gap | None:
            if "freed" in found:
                gap = found["freed"]
                return t.Gap(m.stream(gap.get("stream", 0)), m.offset("a gap", gap.get("from", 0)), m.offset("a gap", gap.get("to", 0)))
            return m.match(found["match"]) if "match" in found else None

        return await self._collect("ViewService/Grep", request, read)

    async def _collect(self, method: str, request: Message, read: Callable[[Message], T | None]) -> list[T]:
        """All of a stream whose messages have no place to go on from: a broken one is asked for again, from its beginning."""
        found: list[T] = []

        async def make() -> Stream:
            found.clear()
            return await self._link.open(method, request, headers=self._headers)

        def take(message: Message) -> tuple[T | None, bool]:
            value = read(message)
            return value, False

        following: Following[T] = Following(self._link, make, take)
        try:
            while True:
                one = await following.next()
                if one is None:
                    return found
                found.append(one)
        finally:
            await following.aclose()
