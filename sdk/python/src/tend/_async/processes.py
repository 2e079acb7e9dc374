"""Processes of one place: the machine of the server, or a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Unpack

from .. import _messages as m
from .. import _types as t
from .._errors import InvalidError, TendError, UnsupportedError, protocol_error
from .._tail import Tail
from .._wire import Message
from ._io import Background, whole
from .link import Link
from .process import AsyncProcess
from .reader import AsyncReader
from .watcher import AsyncWatcher

_DRAIN = 0.2
"""Seconds that a run waits for descendants that hold its output open."""


class AsyncProcesses:
    """Starts and finds the processes of one place, and no others."""

    def __init__(self, link: Link, headers: dict[str, str] | None = None) -> None:
        self._link = link
        self._headers = headers

    async def start(self, command: t.Command, **options: Unpack[t.SpecOptions]) -> AsyncProcess:
        """Starts a process, and returns when the kernel runs the program.

        command: a text is a line for /bin/sh -c, a sequence is a program and its arguments. options: those of SpecOptions.
        It is safe to repeat with an `id`. StartError: the kernel did not run it; ExistsError: the id is of another spec.
        """
        if self._headers and (options.get("on_exit") or options.get("on_exit_url")):
            raise InvalidError("on_exit", "is for processes of the machine, not for those of a sandbox; wait tells of their end")
        return await self._start(m.to_spec(command, options))

    async def _start(self, spec: Message) -> AsyncProcess:
        said = await self._link.call("ProcessService/Start", {"spec": spec}, headers=self._headers)
        return AsyncProcess(self._link, m.info(said.get("info"), spec["id"]), self._headers)

    async def get(self, any: str | None = None, *, id: str | None = None, pid: int | None = None, tag: str | None = None, name: str | None = None) -> AsyncProcess:
        """A handle to a process that runs or has run, whichever client started it.

        One of: its id, or the newest that has this pid, tag or name; any: for what people type, each of them, or the
        beginning of an id. NotFoundError, AmbiguousError.
        """
        by = m.selector({"any": any, "id": id, "pid": pid, "tag": tag, "name": name})
        said = await self._link.call("ProcessService/Get", {"process": by}, headers=self._headers)
        return AsyncProcess(self._link, m.info(said.get("info"), id), self._headers)

    def attach(self, info: t.Info) -> AsyncProcess:
        """A handle to a process that list told of."""
        return AsyncProcess(self._link, info, self._headers)

    async def list(self, *, live: bool = False, tag: str | None = None, labels: Mapping[str, str] | None = None) -> list[t.Info]:
        """All processes that fit, oldest first. live: only those that have not exited; labels: only those with all of these."""
        request: Message = {"live": live, "tag": m.optional("tag", tag), "labels": m.text_map("labels", labels)}
        return [m.info(p) for p in await self._link.pages("ProcessService/List", request, "processes", headers=self._headers)]

    async def watch(self) -> AsyncWatcher:
        """Starts, exits and removals of all processes from now on, whichever client causes them.

        What is listed after this call has returned, and what it tells from then on, are together all that there is.
        """
        return await AsyncWatcher.open(self._link, self._headers)

    async def run(self, command: t.Command, *, input: bytes | str | None = None, max_output: int = 16 << 20, check: bool = False, **options: Unpack[t.SpecOptions]) -> t.Result:
        """Runs a command to its end, and forgets it.

        input is written to stdin, which is then closed. max_output: newest bytes kept of each stream. check: an exit code
        other than 0 is a CommandError. `timeout` of the options ends the command after so many seconds. Without a descendant
        that holds them open, all output is there; such a one is not waited for. Whatever ends this call early, such as a
        cancellation or Ctrl-C, kills the command.
        """
        if options.get("on_exit") or options.get("on_exit_url"):
            raise InvalidError("on_exit", "is for start: run waits for the end itself, and forgets the process")
        if input is not None:
            options["stdin"] = "pipe"
        spec = m.to_spec(command, options)
        process: AsyncProcess | None = None
        events: AsyncReader | None = None

        async def start() -> None:
            nonlocal process, events
            if self._link.runs:
                events = AsyncReader(self._link, spec["id"], self._headers, None, None, True, True, _DRAIN, None, None, spec)
                try:
                    await events.begin()
                    process = AsyncProcess(self._link, m.info({"id": spec["id"]}), self._headers)
                    return
                except UnsupportedError:
                    self._link.lacks_runs()
            process = await self._start(spec)
            events = process.read(drain=_DRAIN)

        try:
            # A start that is on the way has an end: nobody would kill what it has started else.
            await whole(start)
            assert process is not None and events is not None
            result = await self._finish(process, events, input, max_output)
            # An id that the caller gave may be another process's soon.
            self._link.forget(process.id, self._headers, can_wait=not options.get("id"))
        except BaseException:
            if process is not None:
                await whole(lambda: _give_up(process))
            raise
        if check and not result.success:
            raise t.CommandError(result)
        return result

    async def _finish(self, process: AsyncProcess, events: AsyncReader, input: bytes | str | None, max_output: int) -> t.Result:
        feeding = None if input is None else Background(lambda: _feed(process, input))
        try:
            kept = {"stdout": Tail(max_output), "stderr": Tail(max_output)}
            exit_: t.Exit | None = None
            async with events:
                async for event in events:
                    if isinstance(event, t.Exited):
                        exit_ = event.exit
                    elif isinstance(event, t.Output):
                        kept["stderr" if event.stream == "stderr" else "stdout"].add(event.data)
                    elif isinstance(event, t.Gap):
                        kept["stderr" if event.stream == "stderr" else "stdout"].skip(event.end - event.start)
            if feeding is not None:
                await feeding.result()
        finally:
            if feeding is not None:
                await feeding.stop()
        if exit_ is None:
            raise protocol_error("the end of the output without an exit")
        out, err = kept["stdout"], kept["stderr"]
        return t.Result(exit_, out.bytes(), err.bytes(), out.dropped, err.dropped)


async def _feed(process: AsyncProcess, input: bytes | str) -> None:
    """A process need not read all its input."""
    try:
        await process.write(input)
        await process.close_stdin()
    except TendError as err:
        if err.code not in ("exited", "stdin_closed"):
            raise


async def _give_up(process: AsyncProcess) -> None:
    """Kills and forgets a process that nobody waits for any more."""
    try:
        await process.kill()
        await process.remove()
    except TendError:
        pass
