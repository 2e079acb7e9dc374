"""Code in a sandbox by cells, as a notebook runs it."""

from __future__ import annotations

import secrets
from builtins import list as List
from collections.abc import Callable, Mapping
from typing import Any

from .. import _connect as connect
from .. import _messages as m
from .. import _types as t
from .._errors import InvalidError, NotFoundError, TendTimeoutError, clean, protocol_error
from .._retry import Deadline
from .._wire import Message
from .link import NO_DEADLINE, Following, Link
from .transport import Stream


class AsyncCodeContexts:
    """The contexts of one sandbox: places for cells that see each other's variables."""

    def __init__(self, link: Link, headers: dict[str, str]) -> None:
        self._link = link
        self._headers = headers

    async def list(self) -> List[t.CodeContext]:
        """All, first those for cells that name none."""
        said = await self._link.call("CodeService/ListContexts", {}, headers=self._headers)
        return [_context(c) for c in said.get("contexts", [])]

    async def create(self, language: str = "python", *, dir: str = "") -> t.CodeContext:
        """Makes one; default: in the home of the sandbox's user. LimitError: there are too many.

        It is not repeated when the answer is lost.
        """
        request: Message = {"language": m.text("language", language), "dir": m.text("dir", dir)}
        return _context((await self._link.once("CodeService/CreateContext", request, headers=self._headers)).get("context", {}))

    async def restart(self, context: str) -> None:
        """Ends the kernel of a context; its next cell begins afresh."""
        await self._link.call("CodeService/RestartContext", {"context": m.text("context", context)}, headers=self._headers)

    async def remove(self, context: str) -> None:
        """Ends the kernel of a context, and forgets the context. It is no error if there is none."""
        try:
            await self._link.call("CodeService/RemoveContext", {"context": m.text("context", context)}, headers=self._headers)
        except NotFoundError:
            pass

    async def run(
        self,
        code: str,
        *,
        context: str = "",
        language: str = "",
        env: Mapping[str, str | None] | None = None,
        timeout: float | None = None,
        on_event: Callable[[dict[str, Any]], object] | None = None,
    ) -> t.CodeResult:
        """Runs a cell: see the sandbox's `code`."""
        if context and language:
            raise InvalidError("language", "is given with a context, which has its own; give one of the two")
        request: Message = {
            "code": m.text("code", code),
            "context": m.text("context", context),
            "language": m.text("language", language),
            "env": m.text_map("env", env),
            "cell": secrets.token_hex(13),
        }
        known, again, execution = 0, False, ""

        async def make() -> Stream:
            nonlocal again
            asked = {**request, "from": known, "again": again}
            again = True
            return await self._link.open("CodeService/RunCell", asked, headers=self._headers)

        def take(message: Message) -> tuple[dict[str, Any] | None, bool]:
            nonlocal known, execution
            if message.get("going_away"):
                raise connect.ConnectionLost("the server went away again and again", away=True)
            execution = message.get("execution") or execution
            if not message.get("event"):
                return None, True
            known += 1
            return _event(message["event"]), True

        out = t.CodeResult()
        following: Following[dict[str, Any]] = Following(self._link, make, take, deadline=Deadline(timeout, "the cell"))
        try:
            while True:
                try:
                    event = await following.next()
                except TendTimeoutError:
                    if out.timed_out:
                        raise
                    out.timed_out = True
                    await self._link.call("CodeService/CancelCell", {"execution": execution}, headers=self._headers)
                    await following.aclose()
                    following = Following(self._link, make, take, deadline=NO_DEADLINE)
                    continue
                if event is None:
                    raise protocol_error("a cell without an end")
                _add(out, event)
                if on_event is not None:
                    on_event(event)
                if event.get("type") == "end_of_execution":
                    return out
        except BaseException:
            if execution:
                self._link.later("CodeService/CancelCell", {"execution": execution}, self._headers)
            raise
        finally:
            await following.aclose()


def _context(c: Message) -> t.CodeContext:
    return t.CodeContext(clean(c.get("id", "")), clean(c.get("language", "")), clean(c.get("dir", "")))


def _event(data: bytes) -> dict[str, Any]:
    event = connect.parse_json(data)
    if not isinstance(event.get("type"), str):
        raise protocol_error("an event of a cell that cannot be read")
    return event


def _add(out: t.CodeResult, event: dict[str, Any]) -> None:
    kind = event["type"]
    if kind == "number_of_executions":
        out.count = event.get("execution_count", 0)
    elif kind == "stdout":
        out.stdout += event.get("text", "")
    elif kind == "stderr":
        out.stderr += event.get("text", "")
    elif kind == "error":
        out.error = t.CodeError(event.get("name", ""), event.get("value", ""), event.get("traceback", ""))
    elif kind == "result":
        out.values.append({k: v for k, v in event.items() if k != "type"})
        if event.get("is_main_result"):
            out.text = event.get("text")
