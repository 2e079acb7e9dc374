"""Directories of this machine as tars, and back."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tarfile
import tempfile
from typing import IO

from ._errors import clean

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
    """Unpacks what is below the top of an archive, and returns what was left out.

    Not by tarfile's own filters, which Python 3.11.2 of Debian 12 lacks.
    """
    left: list[str] = []
    dirs: list[tuple[str, tarfile.TarInfo]] = []
    top = os.fspath(local)
    os.makedirs(top, exist_ok=True)
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for member in tar:
            parts = [part for part in member.name.split("/")[1:] if part not in ("", ".")]
            if member.uname == _LEFT_OUT:
                listed = tar.extractfile(member)
                left.extend(clean(listed.read().decode("utf-8", "replace")).splitlines() if listed else [])
            elif not parts:
                continue
            elif member.isdir():
                dirs.append((_into(top, [*parts, ""]), member))
            elif member.isfile():
                path = _free(top, parts)
                with open(path, "xb") as file:
                    if source := tar.extractfile(member):
                        shutil.copyfileobj(source, file)
                    os.chmod(file.fileno(), member.mode & (0o755 if member.mode & 0o100 else 0o644) | 0o600)
                os.utime(path, (member.mtime, member.mtime))
            elif member.issym():
                path = _free(top, parts)
                if _leads_out(top, path, member.linkname):
                    left.append(clean(f"{'/'.join(parts)}: a link to {member.linkname}, out of the directory"))
                    continue
                os.symlink(member.linkname, path)
            else:
                left.append(clean(f"{'/'.join(parts)}: no file, directory or symbolic link"))
    for path, member in reversed(dirs):  # one may be closed to the files in it
        os.chmod(path, member.mode & 0o755)
        os.utime(path, (member.mtime, member.mtime))
    return left


def _into(top: str, parts: list[str]) -> str:
    """Makes the directories above a file. None of them may be a link."""
    path = top
    for part in parts[:-1]:
        if part == "..":
            raise tarfile.ReadError("a name leads out of the directory: " + clean("/".join(parts)))
        path = os.path.join(path, part)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path)
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "a file or link is in the way", path)
    return path if parts[-1] == "" else os.path.join(path, parts[-1])


def _free(top: str, parts: list[str]) -> str:
    """The path of a file, which replaces one of its name."""
    if parts[-1] == "..":
        raise tarfile.ReadError("a name leads out of the directory: " + clean("/".join(parts)))
    path = _into(top, parts)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    return path


def _leads_out(top: str, path: str, link: str) -> bool:
    real = os.path.realpath(top)
    return os.path.isabs(link) or os.path.commonpath([real, os.path.realpath(os.path.join(os.path.dirname(path), link))]) != real
