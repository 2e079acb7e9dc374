"""Repairs of services: what is known of them, and how it is read from messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from ._errors import clean, protocol_error
from ._messages import HEAL_STATUSES, when, word
from ._wire import Message

HealStatus = Literal["", "running", "suspected", "healing", "verifying", "ready", "broken"]
"""What the healer knows of a service; "": the healer is not for it. ready: it was repaired; broken: it was not."""


@dataclass(frozen=True)
class HealSignal:
    """A fault that was seen."""

    kind: str
    """exit, flap, health, stuck, pressure or asked; others may come."""
    text: str
    at: datetime | None


@dataclass(frozen=True)
class HealRemedy:
    """One thing to try."""

    kind: str
    """wait, restart, playbook or model; others may come."""
    name: str
    why: str


@dataclass(frozen=True)
class HealTry:
    """A remedy that was begun."""

    remedy: HealRemedy
    begun: datetime | None
    ended: datetime | None
    failed: str
    """Why it did not help; empty: it did, or it is being tried."""
    text: str
    paths: tuple[str, ...]
    tokens: int
    """Tokens and steps that a model has used."""
    steps: int
    cost: float
    """Of these, by healer.llm.prices; 0: there are none."""
    unreached: bool
    """The model did not answer, so that nothing was tried. It is no attempt."""


@dataclass(frozen=True)
class Episode:
    """One repair of one service."""

    id: str
    service: str
    status: HealStatus
    doing: str
    """look, checkpoint, act, verify, review, commit, rollback; over when it has ended."""
    why: str
    """Why it ended as it did."""
    opened: datetime | None
    ended: datetime | None
    """None: it has not."""
    signals: tuple[HealSignal, ...]
    """What was seen, the first of them first."""
    remedies: tuple[HealRemedy, ...]
    """What there is to try."""
    tries: tuple[HealTry, ...]
    commit: str
    """That was made; empty: none."""
    left: tuple[str, ...]
    """What was changed and is in no commit, and why."""
    dirty: bool
    """What was tried could not be taken back."""
    proposal: str
    """What a person might do."""
    dry_run: bool
    """Nothing was to be changed."""
    workers: int
    """Processes that have worked on it, one after the other."""
    unreached: str
    """Why the model does not answer, while it is waited for, and where it did not at all."""
    diff: bytes = b""
    """Of `episode`: what was changed, in the unified form, at most 256 KiB. Secrets are hidden here and below."""
    transcript: bytes = b""
    """Of `episode`: what was said to a model, and what it did, as JSON lines: the last 4 MiB."""
    takes_back: str = ""
    """The episode whose repair this one takes back: ready means that it did, broken that it did not. Empty: it is a repair."""
    taken_back: str = ""
    """The episode that has taken this one back; empty: none has."""
    changed: tuple[str, ...] = ()
    """The paths that keep a repair from being taken back."""
    can_roll_back: bool = False
    """There is something to go back to; whether it may be, `roll_back` says."""

    @property
    def over(self) -> bool:
        """It has ended."""
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
