"""Files of one place: the machine of the server, or a sandbox."""

from __future__ import annotations

import os
import tempfile
from builtins import list as List
from collections.abc import AsyncIterator
from typing import IO, BinaryIO
from urllib.parse import urlencode

from .. import _connect as connect
from .. import _dirs as dirs
from .. import _messages as m
from .. import _types as t
from .._errors import InvalidError, NotFoundError, TendError, protocol_error
from .._retry import Attempts
from .._wire import Message, encode
from ._io import offload
from .link import NO_DEADLINE, Following, Link
from .transport import Stream
from .watcher import AsyncFileWatcher

_PIECE = 256 << 10
"""How much of a file one message has."""


class AsyncFiles:
    """File operations in a sandbox or on the server's machine, with the rights of a user there.

    Paths that are not absolute start at the sandbox's directory, and on the machine at the user's home. No link inside leads
    out of a sandbox. Errors: NotFoundError, ExistsError, PermissionDeniedError, LimitError (no room).
    """

    def __init__(self, link: Link, headers: dict[str, str] | None, user: str = "") -> None:
        self._link = link
        self._headers = headers
        self._user = user

    def as_user(self, user: str) -> AsyncFiles:
        """The same with the rights of another user; "": the sandbox's own, or the daemon's."""
        return AsyncFiles(self._link, self._headers, m.text("user", user))

    async def _call(self, method: str, message: Message) -> Message:
        return await self._link.call(f"FileService/{method}", {**message, "user": self._user}, headers=self._headers)

    async def stat(self, path: str) -> t.FileEntry:
        """Describes a path. It does not follow a last symbolic link."""
        return m.file_entry((await self._call("StatFile", {"path": m.text("path", path)})).get("entry", {}))

    async def exists(self, path: str) -> bool:
        """Whether there is something at a path; a symbolic link counts wherever it leads."""
        try:
            await self.stat(path)
        except NotFoundError:
            return False
        return True

    async def list(self, path: str = ".", depth: int = 1) -> List[t.FileEntry]:
        """What is in a directory, in lexical order, each directory before what is in it, down to depth levels."""
        said = await self._call("ListFiles", {"path": m.text("path", path), "depth": depth})
        return [m.file_entry(e) for e in said.get("entries", [])]

    async def stream(self, path: str, start: int = 0) -> AsyncIterator[bytes]:
        """A file from an offset on, in pieces. A lost connection is replaced, and reading goes on where it was.

        A TendError of the code "changed": the file has another size then.
        """
        at, size = start, -1
        m.text("path", path)

        async def make() -> Stream:
            return await self._link.open("FileService/ReadFile", {"path": path, "user": self._user, "offset": at}, headers=self._headers)

        def take(message: Message) -> tuple[bytes | None, bool]:
            nonlocal at, size
            now = message.get("size", 0)
            if now and size >= 0 and now != size:
                raise TendError(f"{path} was changed while it was read; read it again", "changed")
            size = now or size
            data: bytes = message.get("data", b"")
            at += len(data)
            return data or None, True

        following: Following[bytes] = Following(self._link, make, take)
        try:
            while True:
                piece = await following.next()
                if piece is None:
                    return
                yield piece
        finally:
            await following.aclose()

    async def read(self, path: str) -> bytes:
        """What is in a file."""
        return b"".join([piece async for piece in self.stream(path)])

    async def write(self, path: str, data: bytes | str | BinaryIO) -> t.FileEntry:
        """Makes a file, and the directories above it, or replaces what is in it; one that is there keeps its mode.

        data may be an open binary file, which is read to its end. A write that fails in its first 64 KiB changes nothing; a
        longer one leaves what has come. It is repeated when the connection is lost, unless the file cannot be wound back.
        """
        raw = data.encode() if isinstance(data, str) else data
        begin = -1
        if not isinstance(raw, (bytes, bytearray, memoryview)):
            if not hasattr(raw, "read"):
                raise InvalidError("data", f"is neither bytes, text nor an open file but {type(raw).__name__}")
            begin = raw.tell() if raw.seekable() else -1
        attempts = Attempts(self._link.retry)
        while True:
            try:
                stream = await self._link.transport.stream("FileService/WriteFile", "WriteFileResponse", self._pieces(path, raw), wait=self._link.silence, headers=self._headers)
                try:
                    said = await stream.next()
                finally:
                    await stream.aclose()
                if said is None:
                    raise protocol_error("no answer to a write")
                return m.file_entry(said.get("entry", {}))
            except connect.ConnectionLost as err:
                if not isinstance(raw, (bytes, bytearray, memoryview)):
                    if begin < 0:
                        raise connect.final(self._link.url, err) from None
                    raw.seek(begin)
                await self._link.again(err, attempts, NO_DEADLINE)

    async def _pieces(self, path: str, data: bytes | bytearray | memoryview | BinaryIO) -> AsyncIterator[bytes]:
        head: Message = {"path": m.text("path", path), "user": self._user}
        at = 0
        while True:
            if isinstance(data, (bytes, bytearray, memoryview)):
                piece = bytes(data[at : at + _PIECE])
                at += len(piece)
            else:
                piece = data.read(_PIECE)
            if not piece and not head:
                return
            yield connect.envelope(encode("WriteFileRequest", {**head, "data": piece}))
            head = {}

    async def upload_dir(self, local: str | os.PathLike[str], remote: str) -> None:
        """Copies what is in a directory of this machine into one of the server, which is created if it is missing.

        Files replace those of their names; what else is there stays. Modes, times and symbolic links are kept; devices, sockets
        and FIFOs are left out. A copy that fails leaves what has arrived. It is repeated when the connection is lost.
        """
        with await offload(lambda: dirs.pack(local)) as file:
            await self._archive("PUT", remote, file)

    async def download_dir(self, remote: str, local: str | os.PathLike[str]) -> List[str]:
        """Copies what is in a directory of the server into one of this machine, which is created if it is missing.

        Files replace those of their names; what else is there stays. Returns what was left out, a line for each: what could not
        be read, and symbolic links that lead out of the directory. It is repeated when the connection is lost.
        """
        with tempfile.TemporaryFile() as file:
            await self._archive("GET", remote, file)
            return await offload(lambda: dirs.unpack(file, local))

    async def _archive(self, verb: str, remote: str, file: IO[bytes]) -> None:
        """Sends an archive, or gets one into a file."""
        query = urlencode({"path": m.text("path", remote), "user": self._user})
        attempts = Attempts(self._link.retry)
        while True:
            file.seek(0)
            body, into = (_whole(file), None) if verb == "PUT" else (b"", file)
            try:
                return await self._link.transport.plain(verb, f"Archive?{query}", "application/x-tar", body, into, wait=self._link.silence, headers=self._headers)
            except connect.ConnectionLost as err:
                if into is not None:
                    into.truncate(0)
                await self._link.again(err, attempts, NO_DEADLINE)

    async def watch(self, dir: str = ".", *, recursive: bool = False) -> AsyncFileWatcher:
        """Reports the changes in a directory from its return on, and with recursive in those below it as well, new ones too.

        On network filesystems there is no watch.
        """
        query = urlencode({"path": m.text("dir", dir), "user": self._user, "recursive": str(recursive).lower()})
        return await AsyncFileWatcher.open(self._link, f"Watch?{query}", self._headers)

    async def mkdir(self, path: str) -> t.FileEntry:
        """Makes a directory and those above it. It is not repeated when the answer is lost. ExistsError: it is there."""
        said = await self._link.once("FileService/MakeDir", {"path": m.text("path", path), "user": self._user}, headers=self._headers)
        return m.file_entry(said.get("entry", {}))

    async def move(self, source: str, destination: str) -> t.FileEntry:
        """Gives a file or directory another path. It is not repeated when the answer is lost."""
        request: Message = {"source": m.text("source", source), "destination": m.text("destination", destination), "user": self._user}
        return m.file_entry((await self._link.once("FileService/MoveFile", request, headers=self._headers)).get("entry", {}))

    async def remove(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it. It is no error if there is none."""
        try:
            await self._call("RemoveFile", {"path": m.text("path", path)})
        except TendError as err:
            if err.code != "not_found":
                raise


async def _whole(file: IO[bytes]) -> AsyncIterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece
