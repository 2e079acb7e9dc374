"""The output and the facts of one process, each byte and each fact once, whatever happens to connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType

from .. import _connect as connect
from .. import _messages as m
from .. import _types as t
from .._errors import protocol_error
from .._retry import Deadline
from .._wire import Message
from .link import Following, Link
from .transport import Stream

_MAX_DATA = 4 << 20
"""Largest piece of output that a server may send, in bytes."""


class AsyncReader:
    """The events of a process, one after the other.

    Nothing is read ahead but what the socket holds: while you do not ask for more, the rest waits at the server. A lost
    connection is made anew from the offsets reached. A reader belongs to one task or thread at a time; close it, or use it in a
    `with` statement, if you leave it before its end.
    """

    def __init__(
        self,
        link: Link,
        id_: str,
        headers: dict[str, str] | None,
        streams: Sequence[t.OutputStream] | None,
        start: Mapping[t.OutputStream, int] | None,
        follow: bool,
        ordered: bool,
        drain: float | None,
        max_chunk: int | None,
        timeout: float | None,
        spec: Message | None = None,
    ) -> None:
        """spec: of a process that it starts, too."""
        self._id = id_
        self._begun = False
        self._first: t.Event | None = None
        # What was delivered.
        self._from: dict[t.OutputStream, int] = {"stdout": 0, "stderr": 0, "pty": 0, **(start or {})}
        self._eof: set[t.OutputStream] = set()
        self._facts: set[str] = set()
        self._streams = streams
        deadline = Deadline(timeout, f"reading process {id_}")

        def request() -> Message:
            return m.read_request(id_, streams, self._from, follow, ordered, drain, max_chunk)

        request()  # what is wrong with the arguments is said at once

        forget = link.take_forgotten(headers) if spec is not None else []

        async def make() -> Stream:
            # Once it has begun, it may be gone again: it is not to be started a second time.
            if spec is not None and not self._begun:
                run = {"spec": spec, "read": {**request(), "process": None}, "forget": forget}
                return await link.open("ProcessService/Run", run, headers=headers, deadline=deadline)
            return await link.open("ProcessService/Read", request(), headers=headers, deadline=deadline)

        self._following: Following[t.Event] = Following(link, make, self._take, self._complete, deadline)

    @property
    def offsets(self) -> Mapping[t.OutputStream, int]:
        """How far each stream was delivered: where another reader may start."""
        return dict(self._from)

    def __aiter__(self) -> AsyncReader:
        return self

    async def begin(self) -> None:
        """Returns when the first event has come: the process runs, or has run."""
        self._first = await self._following.next()

    async def __anext__(self) -> t.Event:
        event, self._first = self._first, None
        if event is None:
            event = await self._following.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> AsyncReader:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Ends it, and its connection."""
        await self._following.aclose()

    def _take(self, message: Message) -> tuple[t.Event | None, bool]:
        event = message.get("event", {})
        self._begun = True
        if event.get("process_id", self._id) not in ("", self._id):
            raise protocol_error(f"an event of the process {event['process_id']} on a stream of {self._id}")
        if "output" in event:
            return self._output(event["output"], event.get("time"))
        if "hello" in event:
            # Where "now" was is settled: a second try must not skip what came in between.
            for at in event["hello"].get("from", []):
                stream, offset = m.stream(at.get("stream", 0)), m.offset("an offset", at.get("offset", 0))
                if 0 <= self._from[stream] != offset:
                    raise protocol_error(f"{stream} from {offset} on when it was asked for {self._from[stream]}")
                self._from[stream] = offset
            return None, False
        if "going_away" in event:
            raise connect.ConnectionLost("the server went away again and again", away=True)
        if "gap" in event:
            gap = event["gap"]
            stream, start, end = m.stream(gap.get("stream", 0)), m.offset("a gap", gap.get("from", 0)), m.offset("a gap", gap.get("to", 0))
            self._check(stream, start)
            if end <= start:
                raise protocol_error(f"a gap from {start} to {end}")
            self._from[stream] = end
            return t.Gap(stream, start, end), True
        if "eof" in event:
            stream = m.stream(event["eof"].get("stream", 0))
            if stream in self._eof:
                return None, False
            self._eof.add(stream)
            return t.Eof(stream, m.offset("an end", event["eof"].get("offset", 0))), True
        for fact in ("started", "exited", "tree_gone"):
            if fact not in event:
                continue
            if fact in self._facts:
                return None, False
            time = m.when(event.get("time"))
            value: t.Event
            if fact == "exited":
                value = t.Exited(m.exit_of(event[fact]), time)
            else:
                value = t.Started(event[fact].get("pid", 0), time) if fact == "started" else t.TreeGone(time)
            self._facts.add(fact)
            return value, True
        return None, "heartbeat" in event  # or of a later version

    def _output(self, output: Message, time: Message | None) -> tuple[t.Event | None, bool]:
        stream, offset, data = m.stream(output.get("stream", 0)), m.offset("an offset", output.get("offset", 0)), output.get("data", b"")
        if len(data) > _MAX_DATA:
            raise protocol_error(f"{len(data)} bytes of output at once")
        self._check(stream, offset)
        if not data:
            return None, False
        event = t.Output(stream, offset, data, m.when(time))
        self._from[stream] = offset + len(data)
        return event, True

    def _check(self, stream: t.OutputStream, offset: int) -> None:
        """Refuses what does not follow what was delivered: the stream is asked for from there on."""
        at = self._from[stream]
        if at < 0:
            return
        if stream in self._eof:
            raise protocol_error(f"output of {stream} after its end")
        if offset != at:
            raise protocol_error(f"output of {stream} at {offset} when {at} was next")

    def _complete(self) -> bool:
        """Nothing can follow, though the end of the stream was lost: there may be no server to ask for it."""
        if "exited" not in self._facts:
            return False
        if self._streams:
            return all(s in self._eof for s in self._streams)
        return "pty" in self._eof or {"stdout", "stderr"} <= self._eof
