"""The errors, as classes. Each has a `code`; errors with data have attributes for it."""

from __future__ import annotations

import re


class TendError(Exception):
    """The error of all methods of this package; `code` is its kind."""

    code: str = "internal"

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code


class NotFoundError(TendError):
    """No process, sandbox or file matches."""

    code = "not_found"


class AmbiguousError(TendError):
    """Several processes match; `ids` are their ids."""

    code = "ambiguous"

    def __init__(self, message: str, ids: list[str] | None = None) -> None:
        super().__init__(message)
        self.ids = ids or []


class ExistsError(TendError):
    """The id or name is already in use."""

    code = "exists"


class ExitedError(TendError):
    """The process has ended."""

    code = "exited"


class RunningError(TendError):
    """The process has not ended."""

    code = "running"


class LaggedError(TendError):
    """Events may have been missed: list the processes, and watch again."""

    code = "lagged"


class StdinClosedError(TendError):
    """No more input is accepted."""

    code = "stdin_closed"


class UnsupportedError(TendError):
    """The machine or the server does not support it; the server may be older."""

    code = "unsupported"


class LimitError(TendError):
    """The server has no room, or the request is too large."""

    code = "limit"


class PermissionDeniedError(TendError):
    """The token or the user is refused."""

    code = "permission"


class SandboxStoppedError(TendError):
    """The sandbox is stopped; `start` makes it ready."""

    code = "sandbox_stopped"


class SandboxPausedError(TendError):
    """The sandbox is paused; `resume` continues it."""

    code = "sandbox_paused"


class UnavailableError(TendError):
    """The server does not answer. The request may have taken effect."""

    code = "unavailable"


class NoDaemonError(UnavailableError):
    """No program listens there."""

    code = "no_daemon"


class ClosedError(TendError):
    """The client, or the reader, was closed."""

    code = "closed"


class TendTimeoutError(TendError, TimeoutError):
    """The `timeout` of a call is over. The request may still take effect."""

    code = "timeout"


class InvalidError(TendError, ValueError):
    """A field of a request that is refused, and why."""

    code = "invalid"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field = field
        self.reason = reason


class StartError(TendError):
    """The kernel did not run the program.

    `reason` is one of not_found, permission, format, bad_dir, bad_user, too_long, resources, limits, pty and other;
    `what` is the program, directory or user it concerned; `system_error` and `errno` are the system's (0: none).
    """

    code = "start"

    def __init__(self, message: str, reason: str = "other", what: str = "", system_error: str = "", errno: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.what = what
        self.system_error = system_error
        self.errno = errno


class GapError(TendError):
    """The bytes `start` to `end` (exclusive) of `stream` were freed before they were read."""

    code = "gap"

    def __init__(self, stream: str, start: int, end: int) -> None:
        super().__init__(f"bytes {start} to {end} of {stream} were freed before they were read; read on from {end}, or start it with a larger retention")
        self.stream = stream
        self.start = start
        self.end = end


class RedirectError(TendError):
    """The server redirects to another address. The client does not follow, because it would send the token there."""

    code = "redirect"

    def __init__(self, url: str, location: str) -> None:
        super().__init__(f"{url} sends its callers to {location}; that is not followed, as the token would go along: give that URL instead, if it is meant")
        self.location = location


CLASSES: dict[str, type[TendError]] = {
    c.code: c
    for c in (NotFoundError, ExistsError, ExitedError, RunningError, LaggedError, StdinClosedError, UnsupportedError, LimitError, PermissionDeniedError, SandboxStoppedError, SandboxPausedError, UnavailableError)
}


def error_of(code: str, message: str) -> TendError:
    """The error for a code without data, as its class."""
    found = CLASSES.get(code)
    return found(message) if found else TendError(message, code)


def protocol_error(what: str) -> TendError:
    return TendError(f"the server sent {clean(what)}; it is damaged, or no tend server", "protocol")


_MAX_TEXT = 16 << 10

# What could move the cursor of a terminal, change what is shown or turn the direction of writing.
_active = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\u2028\u2029\ufeff]")


def clean(text: str) -> str:
    """A text of the server, safe for a terminal."""
    return _active.sub("\ufffd", text if len(text) <= _MAX_TEXT else text[:_MAX_TEXT] + "…")
