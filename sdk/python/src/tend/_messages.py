"""The messages of the API as the types of this package, and back. What a server may send is checked here."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from . import _types as t
from ._errors import InvalidError, clean, protocol_error
from ._wire import Message

STREAMS = {"stdout": 1, "stderr": 2, "pty": 3}
SCOPES = {"tree": 0, "leader": 1, "group": 2}
_STREAM_NAMES = (None, "stdout", "stderr", "pty")
_CAUSES = ("exited", "signalled", "timeout", "oom", "shutdown", "killed", "no_readers", "lost")
_STATES = ("running", "stopped", "exited")
_INPUTS = ("none", "likely", "certain", "password")
_OMITTED = ("", "middle", "long_line", "freed")
_INHERITS = {"user": 0, "daemon": 1, "none": 2}
_POLICIES = {"drop_oldest": 0, "block": 1}
_STDINS = {"null": 0, "pipe": 1}
_FILE_TYPES = ("other", "file", "dir")
_PHASES = ("unknown", "idle", "waiting", "starting", "running", "stopping", "killing", "pausing", "completed", "failed")
HEAL_STATUSES = ("", "running", "suspected", "healing", "verifying", "ready", "broken")

SANDBOX_STATES = ("starting", "ready", "stopped", "failed", "paused")
_ISOLATIONS = ("default", "none", "full")
_MODES = ("", "none", "host", "own")
_ACTIONS = ("destroy", "pause")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_MOST_SECONDS = 10 * 365 * 86400


def word(words: Sequence[Any], n: int, default: Any) -> Any:
    """The word of a number; a later server may send others than are known."""
    return words[n] if 0 <= n < len(words) else default


def choice(field: str, words: Mapping[str, int] | Sequence[str], value: object) -> int:
    """The number of a word."""
    known = list(words)
    if value not in known:
        raise InvalidError(field, f"is {value!r}; {', '.join(w for w in known if w)} are known")
    return words[value] if isinstance(words, Mapping) else known.index(value)


def known(what: str, value: Mapping[str, Any], fields: frozenset[str]) -> None:
    """A misspelt field would leave out what it asks for: isolation, perhaps."""
    for name in value:
        if name not in fields:
            raise InvalidError(f"{what}.{name}", f"is not known; {', '.join(sorted(fields))} are")


def text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidError(field, f"is no text but {type(value).__name__}")
    if "\0" in value:
        raise InvalidError(field, "has a NUL byte")
    return value


def optional(field: str, value: object) -> str | None:
    return None if value is None else text(field, value)


def texts(field: str, value: Sequence[str] | None) -> list[str] | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes)):
        raise InvalidError(field, "is one text where a sequence is needed")
    return [text(field, v) for v in value]


def text_map(field: str, value: Mapping[str, str | None] | None) -> dict[str, str] | None:
    """Entries that are None are left out."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise InvalidError(field, "is no mapping")
    return {text(field, k): text(field, v) for k, v in value.items() if v is not None}


def duration(field: str, seconds: float | None) -> Message | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not abs(seconds) <= _MOST_SECONDS:
        raise InvalidError(field, f"is {seconds!r}; seconds are needed, at most 10 years")
    nanos = round(seconds * 1e9)
    sign = -1 if nanos < 0 else 1
    whole, rest = divmod(abs(nanos), 10**9)
    return {"seconds": sign * whole, "nanos": sign * rest}


def seconds(m: Message | None) -> float:
    return m.get("seconds", 0) + m.get("nanos", 0) / 1e9 if m else 0.0


def when(m: Message | None) -> datetime | None:
    if m is None:
        return None
    try:
        return _EPOCH + timedelta(seconds=m.get("seconds", 0), microseconds=m.get("nanos", 0) // 1000)
    except OverflowError:
        raise protocol_error("a time that is none") from None


def offset(what: str, n: int) -> int:
    if n < 0:
        raise protocol_error(f"{n} as {what}")
    return n


def stream(n: int) -> t.OutputStream:
    name = word(_STREAM_NAMES, n, None)
    if name is None:
        raise protocol_error(f"output of the stream {n}")
    return name  # type: ignore[no-any-return]


def _dir(what: str, o: t.SpecOptions | t.SandboxOptions | t.SandboxChange) -> str | None:
    """Other libraries call dir cwd, and so may a caller."""
    if "dir" in o and "cwd" in o:
        raise InvalidError(f"{what}.cwd", "is another name of dir; give one of them")
    return o.get("dir", o.get("cwd"))


def to_spec(command: t.Command, options: t.SpecOptions) -> Message:
    known("spec", options, t.SpecOptions.__optional_keys__)
    argv: list[str] | None = None
    shell: str | None = None
    if isinstance(command, str):
        shell = text("command", command)
    else:
        argv = texts("command", command)
    if not shell and not argv:
        raise InvalidError("command", "is empty; give a line for a shell, or a program and its arguments")
    limits, retention, pty = options.get("limits"), options.get("retention"), options.get("pty")
    m: Message = {
        "id": text("id", options.get("id") or new_id()),
        "name": optional("name", options.get("name")),
        "tag": optional("tag", options.get("tag")),
        "argv": argv,
        "shell": shell,
        "env": text_map("env", options.get("env")),
        "inherit": choice("inherit", _INHERITS, options.get("inherit", "user")),
        "dir": optional("dir", _dir("spec", options)),
        "user": optional("user", options.get("user")),
        "stdin": choice("stdin", _STDINS, options.get("stdin", "null")),
        "timeout": duration("timeout", options.get("timeout") or None),
        "timeout_scope": choice("timeout_scope", SCOPES, options.get("timeout_scope", "tree")),
        "kill_without_readers": duration("kill_without_readers", options.get("kill_without_readers") or None),
        "labels": text_map("labels", options.get("labels")),
    }
    if pty is not None:
        m["pty"] = size(pty)
    if limits is not None:
        known("limits", limits, t.Limits.__optional_keys__)
        m["limits"] = dict(limits)
    if retention is not None:
        known("retention", retention, t.Retention.__optional_keys__)
        m["retention"] = {
            "limit": retention.get("limit"),
            "policy": choice("retention.policy", _POLICIES, retention.get("policy", "drop_oldest")),
            "ttl": duration("retention.ttl", retention.get("ttl") or None),
            "pin": retention.get("pin"),
        }
    _on_exit(m, options)
    return m


ON_EXIT, ON_EXIT_URL, ON_EXIT_PIN = "tend.on-exit", "tend.on-exit-url", "tend.on-exit-pin"


def _on_exit(m: Message, options: t.SpecOptions) -> None:
    """What is asked for at the end is in labels, which are journaled with the process. It is pinned: nothing else keeps it until then."""
    line, url = options.get("on_exit"), options.get("on_exit_url")
    if not line and not url:
        return
    labels = dict(m["labels"] or {})
    if line:
        labels[ON_EXIT] = text("on_exit", line)
    if url:
        if not re.match(r"https?://[^/?#]", text("on_exit_url", url)):
            raise InvalidError("on_exit_url", "is no URL of http or https")
        labels[ON_EXIT_URL] = url
    retention = m.get("retention") or {}
    if retention.get("pin"):
        labels[ON_EXIT_PIN] = "1"
    m["labels"], m["retention"] = labels, {**retention, "pin": True}


def size(value: tuple[int, int]) -> Message:
    try:
        cols, rows = value
    except (TypeError, ValueError):
        raise InvalidError("pty", "is no pair of columns and rows") from None
    for n in (cols, rows):
        if isinstance(n, bool) or not isinstance(n, int) or not 0 <= n <= 65535:
            raise InvalidError("pty", f"has {n!r}; columns and rows are 0 to 65535")
    return {"cols": cols, "rows": rows}


def _raw(m: Message, name: str) -> Any:
    """What is no UTF-8 comes as bytes: as in os.fsdecode."""
    raw = m.get("raw_" + name)
    if isinstance(raw, list):
        return [r.decode(errors="surrogateescape") for r in raw]
    return raw.decode(errors="surrogateescape") if raw else m.get(name)


def _from_spec(m: Message) -> t.Spec:
    pty = m.get("pty")
    return t.Spec(
        id=m.get("id", ""),
        name=m.get("name", ""),
        tag=m.get("tag", ""),
        argv=tuple(_raw(m, "argv") or ()),
        shell=_raw(m, "shell") or "",
        env=m.get("env", {}),
        dir=_raw(m, "dir") or "",
        user=m.get("user", ""),
        stdin="pipe" if m.get("stdin") == 1 else "null",
        pty=(pty.get("cols", 0), pty.get("rows", 0)) if pty is not None else None,
        timeout=seconds(m["timeout"]) if "timeout" in m else None,
        labels=m.get("labels", {}),
    )


def exit_of(m: Message) -> t.Exit:
    signal = m.get("signal", 0)
    if not 0 <= signal <= 127:
        raise protocol_error(f"an exit with the signal {signal}")
    return t.Exit(
        code=m.get("code", 0),
        signal=signal,
        core_dumped=m.get("core_dumped", False),
        cause=word(_CAUSES, m.get("cause", 0), "exited"),
        time=when(m.get("time")),
        user_time=seconds(m.get("user_time")),
        system_time=seconds(m.get("system_time")),
        max_rss=m.get("max_rss", 0),
        lost=m.get("lost", False),
    )


def _maybe_exit(m: Message) -> t.Exit | None:
    return exit_of(m["exit"]) if "exit" in m else None


def streams(all_: list[Message]) -> tuple[t.StreamInfo, ...]:
    return tuple(t.StreamInfo(stream(m.get("stream", 0)), offset("a base", m.get("base", 0)), offset("an end", m.get("end", 0)), m.get("eof", False)) for m in all_)


_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


def info(m: Message | None, want: str | None = None) -> t.Info:
    """want: the id that was asked for, if it was."""
    if m is None:
        raise protocol_error("no process")
    id_ = m.get("id", "")
    if not _ID.fullmatch(id_):
        raise protocol_error("a process whose id is none")
    if want is not None and want != id_:
        raise protocol_error(f"the process {id_} when it was asked for {want}")
    stdin = m.get("stdin", {})
    return t.Info(
        id=id_,
        pid=m.get("pid", 0),
        spec=_from_spec(m.get("spec", {})),
        state=word(_STATES, m.get("state", 0), "running"),
        started=when(m.get("started")),
        exit=_maybe_exit(m),
        tree_gone=m.get("tree_gone", False),
        streams=streams(m.get("streams", [])),
        stdin_open=stdin.get("open", False),
        stdin_accepted=offset("the bytes of input", stdin.get("accepted", 0)),
        pinned=m.get("pinned", False),
        spec_cut=m.get("spec_cut", False),
        damaged=clean(m.get("damaged", "")),
    )


def selector(by: Mapping[str, Any]) -> Message:
    """by: one of id, pid, tag, name and any."""
    given = {k: v for k, v in by.items() if v is not None}
    if len(given) != 1:
        raise InvalidError("selector", "has one of id, pid, tag, name and any")
    (name, value), = given.items()
    return {name: value if name == "pid" else text(name, value)}


def read_request(id_: str, streams_: Sequence[str] | None, starts: Mapping[t.OutputStream, int], follow: bool, ordered: bool, drain: float | None, max_chunk: int | None) -> Message:
    return {
        "process": {"id": id_},
        "streams": [choice("streams", STREAMS, s) for s in streams_] if streams_ is not None else None,
        "from": offsets(starts),
        "no_follow": not follow,
        "unordered": not ordered,
        "drain": duration("drain", drain or None),
        "max_chunk": max_chunk,
    }


def offsets(starts: Mapping[t.OutputStream, int] | None) -> list[Message]:
    return [{"stream": choice("start", STREAMS, s), "offset": at} for s, at in (starts or {}).items()]


def wait_result(m: Message) -> t.WaitResult:
    found = m.get("stream", 0)
    return t.WaitResult(
        met=m.get("met", False),
        exit=_maybe_exit(m),
        match=m.get("match", b""),
        stream=stream(found) if found else None,
        offset=offset("the offset of a match", m.get("offset", 0)),
        listening=tuple(t.Listener(clean(x.get("address", "")), x.get("pid", 0)) for x in m.get("listening", [])),
        input=word(_INPUTS, m.get("input", 0), "none"),
        streams=streams(m.get("streams", [])),
    )


def amount(field: str, lines: int | None, bytes_: int | None) -> Message | None:
    if lines is not None and bytes_ is not None:
        raise InvalidError(field, "is given in lines and in bytes; one of them is possible")
    if lines is None and bytes_ is None:
        return None
    return {"lines": lines, "bytes": bytes_}


def piece(m: Message) -> t.Piece:
    return t.Piece(
        stream(m.get("stream", 0)), offset("an offset", m.get("from", 0)), offset("an offset", m.get("to", 0)), m.get("text", b""), word(_OMITTED, m.get("omitted", 0), "middle")
    )


def match(m: Message) -> t.Match:
    return t.Match(
        stream(m.get("stream", 0)),
        offset("an offset", m.get("from", 0)),
        offset("an offset", m.get("to", 0)),
        m.get("line", 0),
        m.get("text", b""),
        m.get("cut", False),
        m.get("context", False),
    )


def file_event(m: Message) -> t.FileEvent:
    return t.FileEvent(str(m.get("path", "")), str(m.get("kind", "")), bool(m.get("dir", False)))


def file_entry(m: Message) -> t.FileEntry:
    return t.FileEntry(
        name=m.get("name", ""),
        path=m.get("path", ""),
        type=word(_FILE_TYPES, m.get("type", 0), "other"),
        size=offset("a size", m.get("size", 0)),
        mode=m.get("mode", 0) & 0o7777,
        owner=m.get("owner", ""),
        group=m.get("group", ""),
        modified=when(m.get("modified")),
        target=m.get("target", ""),
    )


def service(m: Message) -> t.Service:
    return t.Service(
        name=clean(m.get("name", "")),
        phase=word(_PHASES, m.get("phase", 0), "unknown"),
        up=m.get("up", False),
        ready=m.get("ready", False),
        why=clean(m.get("why", "")),
        process=m.get("process", ""),
        pid=m.get("pid", 0),
        runs=m.get("run", 0),
        restarts=m.get("restarts", 0),
        exit=_maybe_exit(m),
        sandbox=clean(m.get("sandbox", "")),
        healing=word(HEAL_STATUSES, m.get("healing", 0), ""),
        episode=clean(m.get("episode", "")),
        adopted=m.get("adopted", False),
        adopted_pid_file=clean(m.get("adopted_pid_file", "")),
        adopted_port=m.get("adopted_port", 0),
        project=clean(m.get("project", "")),
    )


def process_event(m: Message) -> t.ProcessEvent | None:
    """None: it is of the server itself, or of a later version."""
    at = when(m.get("time"))
    event: t.Started | t.Exited | t.TreeGone | t.Removed
    if "started" in m:
        event = t.Started(m["started"].get("pid", 0), at)
    elif "exited" in m:
        event = t.Exited(exit_of(m["exited"]), at)
    elif "tree_gone" in m:
        event = t.TreeGone(at)
    elif "removed" in m:
        event = t.Removed(at)
    else:
        return None
    id_ = m.get("process_id", "")
    if not _ID.fullmatch(id_):
        raise protocol_error("an event of a process whose id is none")
    return t.ProcessEvent(id_, event)


# Sandboxes.


def _network(n: t.SandboxNetwork | None) -> Message | None:
    if n is None:
        return None
    known("network", n, t.SandboxNetwork.__optional_keys__)
    return {"mode": choice("network.mode", _MODES, n.get("mode", "")), "allow": texts("network.allow", n.get("allow")), "deny": texts("network.deny", n.get("deny")), "public": n.get("public")}


def size_of_sandbox(s: t.SandboxSize | None) -> Message | None:
    if s is None:
        return None
    known("size", s, t.SandboxSize.__optional_keys__)
    return dict(s)


def _shares(all_: Sequence[t.SandboxShare] | None) -> list[Message] | None:
    if all_ is None:
        return None
    for s in all_:
        known("shares", s, t.SandboxShare.__optional_keys__)
    return [{"source": text("shares.source", s.get("source")), "target": optional("shares.target", s.get("target")), "read_only": s.get("read_only"), "copy": s.get("copy")} for s in all_]


def _run(what: str, o: t.SandboxOptions | t.SandboxChange) -> Message:
    return {"user": optional("user", o.get("user")), "dir": optional("dir", _dir(what, o)), "env": text_map("env", o.get("env"))}


def to_sandbox_spec(name: str | None, o: t.SandboxOptions) -> Message:
    known("spec", o, t.SandboxOptions.__optional_keys__)
    return {
        "name": optional("name", name),
        "snapshot": optional("snapshot", o.get("snapshot")),
        "template": optional("template", o.get("template")),
        "image": optional("image", o.get("image")),
        "isolation": choice("isolation", _ISOLATIONS, o.get("isolation", "default")),
        "run": _run("spec", o),
        "disposable": o.get("disposable"),
        "idle_ttl": duration("idle_ttl", o.get("idle_ttl")),
        "delete_after_stop": duration("delete_after_stop", o.get("delete_after_stop")),
        "timeout": duration("timeout", o.get("timeout")),
        "at_timeout": choice("at_timeout", _ACTIONS, o.get("at_timeout", "destroy")),
        "wake": o.get("wake"),
        "size": size_of_sandbox(o.get("size")),
        "network": _network(o.get("network")),
        "shares": _shares(o.get("shares")),
        "metadata": text_map("metadata", o.get("metadata")),
    }


def to_update(id_: str, c: t.SandboxChange) -> Message:
    known("change", c, t.SandboxChange.__optional_keys__)
    at_timeout = c.get("at_timeout")
    return {
        "sandbox": id_,
        "name": optional("name", c.get("name")),
        "idle_ttl": duration("idle_ttl", c.get("idle_ttl")),
        "delete_after_stop": duration("delete_after_stop", c.get("delete_after_stop")),
        "timeout": duration("timeout", c.get("timeout")),
        "extend": duration("extend", c.get("extend")),
        "at_timeout": None if at_timeout is None else choice("at_timeout", _ACTIONS, at_timeout),
        "network": _network(c.get("network")),
        "run": _run("change", c) if {"user", "dir", "cwd", "env"} & set(c) else None,
        "metadata": text_map("metadata", c.get("metadata")),
    }


def sandbox(m: Message | None, want: str | None = None) -> t.SandboxInfo:
    """want: the id that was asked for, if it was. Its id becomes a header."""
    if m is None:
        raise protocol_error("no sandbox")
    id_ = m.get("id", "")
    if not _ID.fullmatch(id_):
        raise protocol_error("a sandbox whose id is none")
    if want is not None and want != id_:
        raise protocol_error(f"the sandbox {id_} when it was asked for {want}")
    run, limits, net = m.get("run", {}), m.get("size", {}), m.get("network", {})
    network: t.SandboxNetwork = {"allow": tuple(net.get("allow", ())), "deny": tuple(net.get("deny", ())), "public": net.get("public", False)}
    if mode := word(_MODES, net.get("mode", 0), ""):
        network["mode"] = mode
    return t.SandboxInfo(
        id=id_,
        name=clean(m.get("name", "")),
        state=word(SANDBOX_STATES, m.get("state", 0), "failed"),
        reason=clean(m.get("reason", "")),
        user=clean(run.get("user", "")),
        dir=m.get("dir", ""),
        env=run.get("env", {}),
        disposable=m.get("disposable", False),
        snapshot=clean(m.get("snapshot", "")),
        template=clean(m.get("template", "")),
        image=clean(m.get("image", "")),
        isolation=word(_ISOLATIONS, m.get("isolation", 0), "default"),
        idle_ttl=seconds(m.get("idle_ttl")),
        delete_after_stop=seconds(m.get("delete_after_stop")),
        deadline=when(m.get("deadline")),
        at_timeout=word(_ACTIONS, m.get("at_timeout", 0), "destroy"),
        wake=m.get("wake", False),
        size={"cpus": limits.get("cpus", 0.0), "memory": limits.get("memory", 0), "disk": limits.get("disk", 0), "tasks": limits.get("tasks", 0)},
        network=network,
        shares=tuple({"source": s.get("source", ""), "target": s.get("target") or s.get("source", ""), "read_only": s.get("read_only", False), **({"copy": True} if s.get("copy") else {})} for s in m.get("shares", [])),
        metadata=m.get("metadata", {}),
        created=when(m.get("created")),
        updated=when(m.get("updated")),
        stopped=when(m.get("stopped")),
        paused=when(m.get("paused")),
        copied=m.get("copied", 0),
        to_copy=m.get("to_copy", 0),
    )


def snapshot(m: Message | None) -> t.SandboxSnapshot:
    if m is None:
        raise protocol_error("no snapshot")
    return t.SandboxSnapshot(
        clean(m.get("id", "")),
        clean(m.get("name", "")),
        word(SANDBOX_STATES, m.get("state", 0), "failed"),
        clean(m.get("reason", "")),
        clean(m.get("sandbox", "")),
        offset("a size", m.get("bytes", 0)),
        when(m.get("created")),
    )


def metric(m: Message) -> t.SandboxMetric:
    return t.SandboxMetric(
        time=when(m.get("time")),
        cpus=m.get("cpus", 0.0),
        cpu_percent=m.get("cpu_percent", 0.0),
        mem_used=m.get("mem_used", 0),
        mem_cache=m.get("mem_cache", 0),
        mem_total=m.get("mem_total", 0),
        disk_used=m.get("disk_used", 0),
        disk_total=m.get("disk_total", 0),
        tasks=m.get("tasks", 0),
        oom_kills=m.get("oom_kills", 0),
    )


_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id() -> str:
    """A fresh process id: 48 bits of time and 80 random ones, so that ids sort by age."""
    n = time.time_ns() // 10**6 << 80 | int.from_bytes(os.urandom(10), "big")
    return "".join(_ALPHABET[n >> shift & 31] for shift in range(125, -1, -5))
