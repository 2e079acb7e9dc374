"""Input of one process, in order and exactly once, over connections that may be lost.

The name of the writer and an offset show the server what it has taken.
"""

from __future__ import annotations

import os

from .. import _messages as m
from .._errors import TendError, protocol_error
from .._retry import Deadline
from .._wire import Message
from ._io import Lock
from .link import Link

_PART = 256 << 10
"""Most bytes of one request."""


class _ForgottenAtOnce(Exception):
    """A request that was sent once was refused: nothing of it was taken."""


class Writer:
    """One queue of writes to one process."""

    def __init__(self, link: Link, id_: str, headers: dict[str, str] | None) -> None:
        self._link = link
        self._id = id_
        self._headers = headers
        self._turn = Lock()
        self._name = ""  # "": the next write begins anew
        self._offset = 0

    async def write(self, data: bytes, eof: bool, deadline: Deadline) -> None:
        """Returns when the server has taken it, after all that was written before.

        One that fails, or is cancelled, ends the writer's name: what is written later begins anew.
        """
        async with self._turn:
            while True:
                known = self._name != ""
                if not known:
                    self._name, self._offset = os.urandom(16).hex(), 0
                done = 0
                try:
                    while True:
                        part = data[done : done + _PART]
                        last = done + len(part) == len(data)
                        await self._part(part, self._offset + done, not last, eof and last, deadline)
                        done += len(part)
                        if last:
                            break
                    self._offset += len(data)
                    return
                except _ForgottenAtOnce as err:
                    self._name = ""
                    if known and done == 0:
                        continue  # nothing of it was taken, and all before was acknowledged
                    raise (err.__cause__ or err) from None
                except BaseException:
                    name, self._name = self._name, ""
                    if len(data) > _PART:  # other writers would wait for the rest of it
                        end: Message = {"process": {"id": self._id}, "writer": name, "writer_offset": 0}
                        self._link.later("ProcessService/Write", end, self._headers)
                    raise

    async def _part(self, data: bytes, offset: int, more: bool, eof: bool, deadline: Deadline) -> None:
        tries = 0

        def request(n: int) -> Message:
            nonlocal tries
            tries = n
            return {"process": {"id": self._id}, "data": data, "eof": eof, "more": more, "again": n > 1, "writer": self._name, "writer_offset": offset}

        try:
            said = await self._link.call("ProcessService/Write", request, headers=self._headers, deadline=deadline)
        except TendError as err:
            if tries == 1 and err.code == "writer_forgotten":
                raise _ForgottenAtOnce() from err
            if tries > 1 and eof and not data and err.code in ("stdin_closed", "exited"):
                return  # closed by the very request whose answer was lost
            raise
        # A server that is new since the last write has not looked up what was taken when it only closes.
        if m.offset("the bytes of input", said.get("written", offset + len(data))) < offset + len(data) and data:
            raise protocol_error(f"{said['written']} bytes of input as taken when {offset + len(data)} were sent")
