"""The Connect protocol (connectrpc.com/docs/protocol) without its input and output: targets, envelopes, errors.

Calls and streams are binary messages over HTTP/1.1; one connection carries one of them at a time.
"""

from __future__ import annotations

import base64
import errno
import json
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import httpcore

from . import _errors as e
from ._wire import decode

MAX_MESSAGE = 32 << 20
"""Largest message that a server may send, in bytes."""
MAX_ERROR = 1 << 20
"""Largest body of an error, in bytes."""

_FORMS = "write http://HOST:PORT, https://HOST or unix:///PATH"


@dataclass(frozen=True)
class Target:
    """Where a URL points to."""

    scheme: str
    host: str
    port: int | None = None
    path: str = ""
    socket: str | None = None

    @property
    def tls(self) -> bool:
        return self.scheme == "https"

    @property
    def authority(self) -> str:
        """The header Host."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"


def parse_target(raw: str) -> Target:
    """Refuses what it would otherwise ignore, and repeats no password."""
    if not isinstance(raw, str):
        raise e.InvalidError("url", f"is no text but {type(raw).__name__}")
    if raw.startswith("unix:"):
        socket = raw[len("unix:") :].removeprefix("//")
        if not socket:
            raise e.InvalidError("url", "names no socket; write unix:///run/tend.sock")
        return Target("http", "tend", socket=socket)
    try:
        u = urlsplit(raw)
        host, port = u.hostname or "", u.port
        if not host.isascii():
            host = host.encode("idna").decode()
    except ValueError:
        raise e.InvalidError("url", f"cannot be read; {_FORMS}") from None
    if u.username is not None or u.password is not None:
        raise e.InvalidError("url", "has a user name or a password, and the server knows none; give the token apart from it (TEND_TOKEN, token=)")
    if u.scheme not in ("http", "https") or not host:
        raise e.InvalidError("url", f"has no form that is known; {_FORMS}")
    if "?" in raw:
        raise e.InvalidError("url", f"has a query, which has no meaning here; {_FORMS}")
    if "#" in raw:
        raise e.InvalidError("url", f"has a fragment, which has no meaning here; {_FORMS}")
    return Target(u.scheme, host, port, quote(u.path.rstrip("/"), safe="/%:@!$&'()*+,;=~"))


def check_token(token: str) -> str:
    if re.search(r"[^\x21-\x7e]", token):
        raise e.InvalidError("token", "has a character that no token has")
    return token


class ConnectionLost(Exception):
    """An error that another connection may not have.

    away: the server said that it goes away; silent: it said nothing for too long; dial: no connection was made, and the
    system's error; foreign: what answers is no tend server.
    """

    def __init__(self, message: str, *, away: bool = False, silent: bool = False, dial: int | None = None, foreign: bool = False) -> None:
        super().__init__(message)
        self.away = away
        self.silent = silent
        self.dial = dial
        self.foreign = foreign


BROKEN = (httpcore.TimeoutException, httpcore.NetworkError, httpcore.ProtocolError)
"""What httpcore raises about a connection."""


def lost(err: Exception) -> ConnectionLost:
    """What broke a connection."""
    message = str(err) or type(err).__name__
    if isinstance(err, httpcore.ConnectError):
        return ConnectionLost(message, dial=_errno(err))
    if isinstance(err, httpcore.ConnectTimeout):
        return ConnectionLost("no connection was made in time", dial=errno.ETIMEDOUT)
    if isinstance(err, (httpcore.ReadTimeout, httpcore.WriteTimeout)):
        return ConnectionLost("the server has gone silent", silent=True)
    foreign = isinstance(err, httpcore.RemoteProtocolError) and not re.search("disconnected|closed|incomplete", message)
    return ConnectionLost(message, foreign=foreign)


def _errno(err: BaseException | None) -> int:
    """The system's error below one of httpcore; of each address of a host name the first."""
    seen = 0
    while err is not None and seen < 10:
        for one in getattr(err, "exceptions", (err,)):
            if isinstance(one, OSError) and one.errno is not None:
                return one.errno
            if m := re.search(r"\[Errno (\d+)\]", str(one)):
                return int(m[1])
        err = err.__cause__ or err.__context__
        seen += 1
    return errno.ECONNREFUSED if err is None else 0


def envelope(data: bytes) -> bytes:
    return b"\0" + len(data).to_bytes(4, "big") + data


class Envelopes:
    """Splits the body of a stream: one byte of flags, four of length, the data."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._at = 0

    def add(self, data: bytes) -> None:
        if self._at:
            del self._held[: self._at]
            self._at = 0
        self._held += data

    def next(self) -> tuple[int, bytes] | None:
        """Flags and data of the next; None: it is not whole yet."""
        at = self._at
        have = len(self._held) - at
        if have < 5:
            return None
        size = int.from_bytes(self._held[at + 1 : at + 5], "big")
        if size > MAX_MESSAGE:
            raise e.protocol_error(f"a message of {size} bytes")
        if have < 5 + size:
            return None
        self._at = at + 5 + size
        return self._held[at], bytes(memoryview(self._held)[at + 5 : self._at])

    @property
    def torn(self) -> bool:
        return len(self._held) > self._at


def parse_json(data: bytes) -> dict[str, Any]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def refusal(url: str, status: int, location: str | None, body: bytes, known: bool) -> Exception:
    """The error of an answer that is no success. known: a tend server has answered there before."""
    if location and 300 <= status < 400:
        return e.RedirectError(url, e.clean(location))
    said = parse_json(body)
    if isinstance(said.get("code"), str):
        return wire_error(said)
    # Not an answer of the API: a proxy that cannot reach its server, or something else.
    text = f"{url} answers with HTTP status {status}"
    if status in (401, 403):
        return e.PermissionDeniedError(f"the server refuses the token, or wants one: {text}; give token=, or set TEND_TOKEN")
    if status in (404, 405) and known:
        return unsupported(text)
    if status in (408, 429, 502, 503, 504):
        return ConnectionLost(text)
    return e.TendError(f"{text}; it is no tend server", "protocol")


def unsupported(text: str) -> e.UnsupportedError:
    return e.UnsupportedError(f"the server does not know this call: it is of a former version, and tend upgrade replaces it ({text})")


_KINDS = {
    1: "not_found", 2: "ambiguous", 3: "exists", 4: "exited", 5: "running", 6: "lagged", 7: "stdin_closed", 8: "pty", 9: "no_pty", 10: "offset", 11: "unavailable",
    12: "unsupported", 13: "limit", 14: "permission", 15: "invalid", 16: "start", 17: "gap", 19: "writer_forgotten", 24: "damaged", 25: "sandbox_stopped",
    26: "sandbox_paused", 27: "in_use", 28: "changed",
}  # fmt: skip
_CODES = {"unauthenticated": "permission", "permission_denied": "permission", "not_found": "not_found", "resource_exhausted": "limit", "invalid_argument": "invalid"}
_START_REASONS = ("other", "not_found", "permission", "format", "bad_dir", "bad_user", "too_long", "resources", "limits", "pty", "other")
_STREAMS = ("stdin", "stdout", "stderr", "pty")


def wire_error(said: dict[str, Any]) -> Exception:
    """An error that the server itself sent. It is final, unless it is "unavailable"."""
    code, message = said.get("code"), said.get("message")
    message = e.clean(message) if isinstance(message, str) else ""
    if code == "unavailable":
        return ConnectionLost(message or "the server is unavailable")
    details = said.get("details")
    for d in details if isinstance(details, list) else []:
        if not isinstance(d, dict) or d.get("type") != "tend.v1.ErrorDetail" or not isinstance(d.get("value"), str):
            continue
        try:
            raw = d["value"]
            found = _detail(decode("ErrorDetail", base64.b64decode(raw + "=" * (-len(raw) % 4))), message)
        except (ValueError, e.TendError):
            continue  # a detail that cannot be read: the code has to do
        if found is not None:
            return found
    if code == "unimplemented":
        return unsupported(message or "unimplemented")
    if code in ("unauthenticated", "permission_denied"):
        return e.PermissionDeniedError(f"the server refuses the token, or wants one: {message}; give token=, or set TEND_TOKEN")
    return e.error_of(_CODES.get(str(code), "internal"), message or str(code))


def _detail(d: dict[str, Any], message: str) -> Exception | None:
    code = _KINDS.get(d.get("kind", 0))
    if code is None:
        return None
    if code == "invalid":
        return e.InvalidError(e.clean(d.get("field", "")), e.clean(d.get("reason", "")))
    if code == "start":
        reason = d.get("start_reason", 0)
        return e.StartError(message, _START_REASONS[reason] if reason < len(_START_REASONS) else "other", e.clean(d.get("what", "")), e.clean(d.get("system_error", "")), d.get("errno", 0))
    if code == "ambiguous":
        return e.AmbiguousError(message, [e.clean(i) for i in d.get("ids", [])])
    if code == "gap":
        gap = d.get("gap", {})
        n = gap.get("stream", 0)
        return e.GapError(_STREAMS[n] if n < len(_STREAMS) else "a stream", gap.get("from", 0), gap.get("to", 0))
    if code == "unavailable":
        return ConnectionLost(message)
    return e.error_of(code, message)


def final(url: str, err: ConnectionLost) -> e.TendError:
    """The error of a connection, as callers get it."""
    if err.dial in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR):
        return e.NoDaemonError(f"{url}: no daemon listens there ({err}); start one: tend serve")
    if err.dial == errno.EACCES:
        return e.PermissionDeniedError(f"{url}: the socket admits the user of the server and root alone")
    if err.foreign:
        return e.TendError(f"{url} answers, but it is no tend server ({err})", "protocol")
    return e.UnavailableError(f"{url}: {err}")
