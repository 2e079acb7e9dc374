"""What the machine, its services and its sandboxes use, and have used."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from . import _messages as m
from ._errors import clean
from ._wire import Message


@dataclass(frozen=True)
class UsagePoint:
    """What was used for some time."""

    time: datetime | None
    """The end of that time."""
    cpu: float
    """Processors; 0.5 is a half of one."""
    memory: int
    """Bytes; of five minutes the most."""
    received: int | None
    """Bytes a second; None: not known, as of a service on the machine."""
    sent: int | None


@dataclass(frozen=True)
class Usage:
    """What the machine, a sandbox or a service uses, or has used."""

    kind: str
    """"machine", "sandbox" or "service"."""
    id: str
    """Of a sandbox."""
    name: str
    cpus: float
    """Processors that it may use; 0: not known, as of the past."""
    memory_total: int
    """Bytes that it may use; 0: not known, as of the past."""
    points: tuple[UsagePoint, ...]
    """The oldest first. A time without one was not measured: nothing ran, or no server did."""


def usages(answer: Message) -> list[Usage]:
    return [
        Usage(u.get("kind", ""), u.get("id", ""), clean(u.get("name", "")), u.get("cpus", 0.0), u.get("memory_total", 0), tuple(map(_point, u.get("points", []))))
        for u in answer.get("usages", [])
    ]


def _point(p: Message) -> UsagePoint:
    return UsagePoint(m.when(p.get("time")), p.get("cpu", 0) / 1000, p.get("memory", 0), p.get("received"), p.get("sent"))
