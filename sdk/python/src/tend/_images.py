"""OCI images: what is known of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from . import _messages as m
from ._errors import clean, protocol_error
from ._wire import Message


@dataclass(frozen=True)
class Image:
    """What is known of an image."""

    id: str
    """"sha256:" and 64 hexadecimal digits, of its configuration."""
    digest: str
    """Of its manifest in a registry; empty: it came from none."""
    names: tuple[str, ...]
    platform: str
    """"linux/amd64"; empty: it does not say."""
    made: datetime | None
    """As the image says."""
    added: datetime | None
    bytes: int
    """Of all its layers, which other images may share, as entries."""
    entries: int
    user: str
    """Default for processes of its sandboxes, as dir and env are."""
    dir: str
    env: Mapping[str, str]
    entrypoint: tuple[str, ...]
    """What a container engine would start, and behind it cmd."""
    cmd: tuple[str, ...]
    ports: tuple[str, ...]
    """"80/tcp"."""
    labels: Mapping[str, str]
    left_out: tuple[str, ...]
    """What of the image is left out, in sentences."""


def image(i: Message | None) -> Image:
    if i is None:
        raise protocol_error("no image")
    run = i.get("run", {})
    return Image(
        id=clean(i.get("id", "")),
        digest=clean(i.get("digest", "")),
        names=tuple(map(clean, i.get("names", []))),
        platform=clean(i.get("platform", "")),
        made=m.when(i.get("made")),
        added=m.when(i.get("added")),
        bytes=m.offset("a size", i.get("bytes", 0)),
        entries=m.offset("a number", i.get("entries", 0)),
        user=clean(run.get("user", "")),
        dir=run.get("dir", ""),
        env=run.get("env", {}),
        entrypoint=tuple(i.get("entrypoint", [])),
        cmd=tuple(i.get("cmd", [])),
        ports=tuple(map(clean, i.get("ports", []))),
        labels=i.get("labels", {}),
        left_out=tuple(map(clean, i.get("left_out", []))),
    )
