"""What happens to all processes of one place, and to the files of a directory."""

from __future__ import annotations

from types import TracebackType

from .. import _connect as connect
from .. import _messages as m
from .. import _types as t
from .._errors import LaggedError, TendError
from .._retry import Attempts
from .link import NO_DEADLINE, Link
from .transport import Lines, Stream


class AsyncWatcher:
    """The lifecycle facts of all processes of one place from its beginning on, one after the other.

    LaggedError: facts may have been missed, as the connection was lost, the server was replaced or more than 4,096 were not
    taken: list, and watch again. So does a wait for the next that was cancelled. It belongs to one task or thread at a time;
    close it, or use it in a `with` statement.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream: Stream | None = stream

    @classmethod
    async def open(cls, link: Link, headers: dict[str, str] | None) -> AsyncWatcher:
        attempts = Attempts(link.retry)
        while True:
            stream: Stream | None = None
            try:
                stream = await link.open("ProcessService/Events", {}, headers=headers)
                message = await stream.next()
                if "hello" in (message or {}).get("event", {}):
                    return cls(stream)
                raise connect.ConnectionLost("the server is being replaced", away=True)
            except connect.ConnectionLost as err:
                if stream is not None:
                    await stream.aclose()
                await link.again(err, attempts, NO_DEADLINE)
            except BaseException:
                if stream is not None:
                    await stream.aclose()
                raise

    def __aiter__(self) -> AsyncWatcher:
        return self

    async def __anext__(self) -> t.ProcessEvent:
        while self._stream is not None:
            try:
                message = await self._stream.next()
            except connect.ConnectionLost:
                message = None
            except BaseException:
                await self.aclose()
                raise
            event = (message or {"event": {"going_away": {}}}).get("event", {})
            if "going_away" in event:
                break
            found = m.process_event(event)
            if found is not None:
                return found
        await self.aclose()
        raise LaggedError("the stream of events ended, and some may have been missed; list the processes, and watch again")

    async def __aenter__(self) -> AsyncWatcher:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends it, and its connection."""
        stream, self._stream = self._stream, None
        if stream is not None:
            await stream.aclose()


class AsyncFileWatcher:
    """The changes in a directory, one after the other.

    LaggedError: changes may be missing, as the server kept no more of them, it went away, or the connection was lost: list the
    directory, and watch again. So does a wait for the next that was cancelled. NotFoundError: the directory is gone. It belongs
    to one task or thread at a time; close it, or use it in a `with` statement.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines: Lines | None = lines
        self._error: BaseException | None = None

    @classmethod
    async def open(cls, link: Link, path: str, headers: dict[str, str] | None) -> AsyncFileWatcher:
        attempts = Attempts(link.retry)
        while True:
            lines: Lines | None = None
            try:
                lines = await link.transport.lines(path, wait=link.silence, headers=headers)
                await lines.next()  # it is open
                return cls(lines)
            except connect.ConnectionLost as err:
                if lines is not None:
                    await lines.aclose()
                await link.again(err, attempts, NO_DEADLINE)
            except BaseException:
                if lines is not None:
                    await lines.aclose()
                raise

    def __aiter__(self) -> AsyncFileWatcher:
        return self

    async def __anext__(self) -> t.FileEvent:
        while self._lines is not None:
            try:
                line = await self._lines.next()
                if line.get("goingAway"):
                    raise connect.ConnectionLost("the server goes away")
                if isinstance(line.get("error"), dict):
                    raise connect.wire_error(line["error"])
            except connect.ConnectionLost as err:
                self._error = LaggedError(f"the watch ended, and changes may be missing; list the directory, and watch again: {err}")
                await self.aclose()
            except BaseException as err:
                self._error = err
                await self.aclose()
                raise
            else:
                if "kind" in line:
                    return m.file_event(line)
        if self._error is None:
            raise StopAsyncIteration
        if not isinstance(self._error, TendError):
            raise LaggedError("a wait for the next change was given up; list the directory, and watch again")
        raise self._error

    async def __aenter__(self) -> AsyncFileWatcher:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends it, and its connection."""
        lines, self._lines = self._lines, None
        if lines is not None:
            await lines.aclose()
