"""Templates of sandboxes: what they are built from, their state, and how local files become an archive."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypedDict, Union

from . import _messages as m
from ._errors import InvalidError, TendError, clean
from ._types import SandboxSize
from ._wire import Message

_PIECE = 256 << 10


@dataclass(frozen=True)
class TemplateStep:
    """One step of a build. Create one with copy, run, workdir, user or env."""

    kind: str
    args: tuple[str, ...]
    files: Union[bytes, "os.PathLike[str]", None] = None
    """For a copy: a path of this machine, or a tar (or tar.gz) with the source in it."""

    @classmethod
    def copy(cls, source: str | os.PathLike[str], destination: str, *, user: str = "", mode: str = "") -> TemplateStep:
        """Copies a file or directory of this machine.

        Of a directory, what is in it goes into the destination; a file goes to it, or into it if it is a directory or ends
        with "/". A destination that is not absolute is below the working directory. mode: octal digits; default: the source's.
        """
        path = Path(source)
        return cls("COPY", (path.resolve().name if path.name in ("", "..") else path.name, destination, user, mode), path)

    @classmethod
    def run(cls, line: str, *, user: str = "") -> TemplateStep:
        """Runs a line of the shell. If it fails, the build fails."""
        return cls("RUN", (line, user) if user else (line,))

    @classmethod
    def workdir(cls, dir: str) -> TemplateStep:
        """Later steps, and processes of the sandboxes, begin there."""
        return cls("WORKDIR", (dir,))

    @classmethod
    def as_user(cls, name: str) -> TemplateStep:
        """Later steps, and processes of the sandboxes, run as this user."""
        return cls("USER", (name,))

    @classmethod
    def env(cls, values: Mapping[str, str]) -> TemplateStep:
        """Sets variables of later steps and of processes of the sandboxes."""
        return cls("ENV", tuple(x for pair in values.items() for x in pair))


class TemplateOptions(TypedDict, total=False):
    """Options of a template besides its name and steps. A field that is not set has its default."""

    tags: Sequence[str]
    """Default: "default"."""
    base: str
    """The base template. Default: the server's."""
    base_dir: str
    """A directory of the server's machine that is the whole root; not with base."""
    image: str
    """The image that it begins with, which is fetched if it is not there; not with base."""
    start: str
    """A line of the shell that runs in each sandbox created from it."""
    ready: str
    """A line of the shell that ends with 0 when `start` is up."""
    size: SandboxSize
    """The size of sandboxes created from it."""
    force: bool
    """No step is taken from the cache."""


@dataclass(frozen=True)
class Template:
    """The state of a template."""

    id: str
    name: str
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    build: str
    """The id of its build."""
    size: SandboxSize
    user: str
    dir: str
    env: Mapping[str, str]
    start: str
    ready: str
    bytes: int
    created: datetime | None
    updated: datetime | None
    last_used: datetime | None
    """None: never."""
    used: int
    """How many sandboxes were created from it."""


@dataclass(frozen=True)
class BuildLog:
    """A line of the log of a build."""

    time: datetime | None
    level: str
    message: str
    step: str
    """"base", the number of a step from 1, or "finalize"."""


@dataclass(frozen=True)
class TemplateBuild:
    """A successful build."""

    id: str
    template_id: str
    name: str
    tags: tuple[str, ...]


class BuildError(TendError):
    """A build failed: `step` (as in BuildLog) and `reason`."""

    code = "build"

    def __init__(self, step: str, reason: str) -> None:
        super().__init__(f"the build failed: {reason}" if step in ("", "base", "finalize") else f"step {step} failed: {reason}")
        self.step = step
        self.reason = reason


def to_template(name: str, steps: Sequence[TemplateStep], o: TemplateOptions) -> Message:
    m.known("template", o, TemplateOptions.__optional_keys__)
    for i, s in enumerate(steps):
        if not isinstance(s, TemplateStep):
            raise InvalidError(f"steps[{i}]", f"is no TemplateStep but {type(s).__name__}")
        if (s.files is not None) != (s.kind == "COPY"):
            raise InvalidError(f"steps[{i}].files", "is for COPY, and each COPY needs it")
        if not isinstance(s.files, (bytes, type(None))) and not os.path.exists(s.files):
            raise InvalidError(f"steps[{i}].files", f"is {os.fspath(s.files)!r}, which is not there")
    return {
        "name": m.text("name", name),
        "tags": m.texts("tags", o.get("tags")),
        "from": m.optional("base", o.get("base")),
        "from_dir": m.optional("base_dir", o.get("base_dir")),
        "from_image": m.optional("image", o.get("image")),
        "steps": [{"kind": s.kind, "args": m.texts("args", s.args)} for s in steps],
        "start": m.optional("start", o.get("start")),
        "ready": m.optional("ready", o.get("ready")),
        "size": m.size_of_sandbox(o.get("size")),
        "force": o.get("force"),
    }


def archive(step: TemplateStep) -> Iterator[bytes]:
    """The files of a step as a tar, in pieces: the same bytes whenever the files are the same, so that it is found in the cache."""
    if isinstance(step.files, bytes):
        for at in range(0, len(step.files), _PIECE):
            yield step.files[at : at + _PIECE]
        return
    assert step.files is not None
    yield from _pack(Path(step.files).resolve(), step.args[0])
    yield bytes(2 * tarfile.BLOCKSIZE)


def _pack(path: Path, name: str) -> Iterator[bytes]:
    s = path.lstat()
    head = tarfile.TarInfo(name)
    head.mode = stat.S_IMODE(s.st_mode)
    if stat.S_ISDIR(s.st_mode):
        head.type = tarfile.DIRTYPE
        yield head.tobuf(tarfile.PAX_FORMAT)
        for one in sorted(path.iterdir()):
            yield from _pack(one, f"{name}/{one.name}")
    elif stat.S_ISLNK(s.st_mode):
        head.type, head.linkname = tarfile.SYMTYPE, os.readlink(path)
        yield head.tobuf(tarfile.PAX_FORMAT)
    elif stat.S_ISREG(s.st_mode):
        head.size = s.st_size
        yield head.tobuf(tarfile.PAX_FORMAT)
        left = head.size
        with open(path, "rb") as f:
            while left > 0:
                piece = f.read(min(left, _PIECE))
                if not piece:
                    raise TendError(f"{path} became shorter while it was read; build again", "changed")
                left -= len(piece)
                yield piece
        yield bytes(-head.size % tarfile.BLOCKSIZE)
    else:
        raise InvalidError("files", f"has {path}, which is neither a file, a directory nor a symbolic link")


def template(t: Message) -> Template:
    run, size = t.get("run", {}), t.get("size", {})
    return Template(
        id=clean(t.get("id", "")),
        name=clean(t.get("name", "")),
        aliases=tuple(map(clean, t.get("aliases", []))),
        tags=tuple(map(clean, t.get("tags", []))),
        build=clean(t.get("build", "")),
        size={"cpus": size.get("cpus", 0.0), "memory": size.get("memory", 0), "disk": size.get("disk", 0), "tasks": size.get("tasks", 0)},
        user=clean(run.get("user", "")),
        dir=run.get("dir", ""),
        env=run.get("env", {}),
        start=t.get("start", ""),
        ready=t.get("ready", ""),
        bytes=m.offset("a size", t.get("bytes", 0)),
        created=m.when(t.get("created")),
        updated=m.when(t.get("updated")),
        last_used=m.when(t.get("last_used")),
        used=t.get("used", 0),
    )


def build_log(l: Message) -> BuildLog:
    return BuildLog(m.when(l.get("time")), clean(l.get("level", "")), clean(l.get("message", "")), clean(l.get("step", "")))


def build(b: Message) -> TemplateBuild:
    """BuildError: it has failed."""
    if not b.get("ready"):
        raise BuildError(clean(b.get("failed_step", "")), clean(b.get("reason", "")))
    return TemplateBuild(clean(b.get("id", "")), clean(b.get("template_id", "")), clean(b.get("name", "")), tuple(map(clean, b.get("tags", []))))
