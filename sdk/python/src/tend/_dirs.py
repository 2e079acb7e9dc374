"""Directories of this machine as tars, and back."""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import IO

from ._errors import UnsupportedError, clean

_LEFT_OUT = "tend-left-out.txt"
"""The owner of the entry of an archive that lists what is left out."""


def pack(local: str | os.PathLike[str]) -> IO[bytes]:
    """What is in a directory, as a file that is gone once it is closed."""

    def keep(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member if member.isfile() or member.isdir() or member.issym() or member.islnk() else None

    file = tempfile.TemporaryFile()
    try:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name in sorted(os.listdir(local)):
                tar.add(os.path.join(local, name), arcname=name, filter=keep)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file


def unpack(archive: IO[bytes], local: str | os.PathLike[str]) -> list[str]:
    """Unpacks what is below the top of an archive, and returns what was left out."""
    if not hasattr(tarfile, "data_filter"):
        raise UnsupportedError("a directory is unpacked safely by Python 3.11.4 or later alone")
    left: list[str] = []
    top = os.fspath(local)
    os.makedirs(top, exist_ok=True)

    def keep(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
        member.name = member.name.partition("/")[2]
        if not member.name:
            return None
        if member.uname == _LEFT_OUT:
            listed = tar.extractfile(member)
            left.extend(clean(listed.read().decode("utf-8", "replace")).splitlines() if listed else [])
            return None
        try:
            kept = tarfile.data_filter(member, path)
        except (tarfile.AbsoluteLinkError, tarfile.LinkOutsideDestinationError):
            left.append(clean(f"{member.name}: a link to {member.linkname}, out of the directory"))
            return None
        if member.isdir():
            return kept.replace(mode=member.mode & 0o755, deep=False)
        there = os.path.join(path, kept.name)
        if os.path.lexists(there):  # it is replaced, not written to
            os.unlink(there)
        return kept

    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        tar.extractall(top, filter=keep)
    return left
