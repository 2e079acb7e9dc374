"""Repairs of services: their types, and how they are read from messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ._errors import clean, protocol_error
from ._messages import HEAL_STATUSES, when, word
from ._wire import Message

HealStatus = Literal["", "running", "suspected", "healing", "verifying", "ready", "broken"]
"""The healer's state of a service; "": the service has no healer. ready: it was repaired; broken: it was not."""


@dataclass(frozen=True)
class HealSignal:
    """An observed fault."""

    kind: str
    """exit, flap, health, stuck, pressure or asked; later versions may add more."""
    text: str
    at: datetime | None


@dataclass(frozen=True)
class HealRemedy:
    """One thing to try."""

    kind: str
    """wait, restart, playbook or model; later versions may add more."""
    name: str
    why: str


@dataclass(frozen=True)
class HealCommand:
    """A command of a playbook that runs."""

    command: str
    begun: datetime | None
    line: str
    """The last of its output, secrets hidden."""


@dataclass(frozen=True)
class HealTry:
    """A remedy that was started."""

    remedy: HealRemedy
    begun: datetime | None
    ended: datetime | None
    failed: str
    """Why it did not help; empty: it helped, or it is still running."""
    text: str
    paths: tuple[str, ...]
    tokens: int
    """Tokens and steps of the model."""
    steps: int
    cost: float
    """Cost of these, by healer.llm.prices; 0: no prices are configured."""
    unreached: bool
    """The model did not answer, so nothing was tried. This does not count as an attempt."""


@dataclass(frozen=True)
class Episode:
    """One repair of one service."""

    id: str
    service: str
    status: HealStatus
    doing: str
    """look, checkpoint, act, verify, review, commit, rollback; over when it has ended."""
    why: str
    """The reason of its end."""
    opened: datetime | None
    ended: datetime | None
    """None: it has not ended."""
    signals: tuple[HealSignal, ...]
    """The observed faults, the earliest first."""
    remedies: tuple[HealRemedy, ...]
    """The candidates."""
    tries: tuple[HealTry, ...]
    commit: str
    """The commit that was made; empty: none."""
    left: tuple[str, ...]
    """Changes that are in no commit, and why."""
    dirty: bool
    """The changes of an attempt could not be taken back."""
    proposal: str
    """What a person could do."""
    dry_run: bool
    """A dry run: nothing was changed."""
    workers: int
    """How many workers it has had, one after the other."""
    unreached: str
    """Why the model does not answer, while the repair waits for it, or if it never answered."""
    diff: bytes = b""
    """Only from `episode`: the changes as a unified diff, at most 256 KiB. Secrets are hidden here and below."""
    transcript: bytes = b""
    """Only from `episode`: the messages to and from a model, and its calls, as JSON lines: the last 4 MiB."""
    takes_back: str = ""
    """The episode whose repair this one takes back: ready means that it did, broken that it did not. Empty: this is a repair."""
    taken_back: str = ""
    """The episode that took this one back; empty: none."""
    changed: tuple[str, ...] = ()
    """The paths that prevent taking the repair back."""
    can_roll_back: bool = False
    """There is something to restore; whether it may be restored, `roll_back` decides."""
    held: str = ""
    """The hash of a change by a model that waits for a person, which `diff` is then; `tend heal apply` applies it. Empty: none waits."""
    held_why: str = ""
    """Why it waits."""
    running: HealCommand | None = None
    """The command of a playbook that runs, such as an install; None: none does."""

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended is not None


def episode(m: Message | None, diff: bytes = b"", transcript: bytes = b"") -> Episode:
    if m is None:
        raise protocol_error("no episode")
    return Episode(
        id=clean(m.get("id", "")),
        service=clean(m.get("service", "")),
        status=word(HEAL_STATUSES, m.get("status", 0), ""),
        doing=clean(m.get("doing", "")),
        why=clean(m.get("why", "")),
        opened=when(m.get("opened")),
        ended=when(m.get("ended")),
        signals=tuple(HealSignal(clean(s.get("kind", "")), clean(s.get("text", "")), when(s.get("at"))) for s in m.get("signals", [])),
        remedies=tuple(_remedy(r) for r in m.get("remedies", [])),
        tries=tuple(_try(t) for t in m.get("tries", [])),
        commit=clean(m.get("commit", "")),
        left=tuple(clean(x) for x in m.get("left", [])),
        dirty=m.get("dirty", False),
        proposal=clean(m.get("proposal", "")),
        dry_run=m.get("dry_run", False),
        workers=m.get("workers", 0),
        unreached=clean(m.get("unreached", "")),
        diff=diff,
        transcript=transcript,
        takes_back=clean(m.get("takes_back", "")),
        taken_back=clean(m.get("taken_back", "")),
        changed=tuple(clean(p) for p in m.get("changed", [])),
        can_roll_back=m.get("can_roll_back", False),
        held=clean(m.get("held", "")),
        held_why=clean(m.get("held_why", "")),
        running=HealCommand(clean(r.get("command", "")), when(r.get("begun")), clean(r.get("line", ""))) if (r := m.get("running")) is not None else None,
    )


def _remedy(m: Message) -> HealRemedy:
    return HealRemedy(clean(m.get("kind", "")), clean(m.get("name", "")), clean(m.get("why", "")))


def _try(m: Message) -> HealTry:
    return HealTry(
        remedy=_remedy(m.get("remedy", {})),
        begun=when(m.get("begun")),
        ended=when(m.get("ended")),
        failed=clean(m.get("failed", "")),
        text=clean(m.get("text", "")),
        paths=tuple(clean(p) for p in m.get("paths", [])),
        tokens=m.get("tokens", 0),
        steps=m.get("steps", 0),
        cost=m.get("cost", 0.0),
        unreached=m.get("unreached", False),
    )
