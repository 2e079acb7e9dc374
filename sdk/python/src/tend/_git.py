"""What the two clients have in common for git: its types, its options, and how its state is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ._errors import InvalidError

ENV = {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}

_AUTH = r'''IFS= read -r TEND_GIT_USERNAME && IFS= read -r TEND_GIT_PASSWORD && export TEND_GIT_USERNAME TEND_GIT_PASSWORD || exit
dir=. past= remote=
[ "$1" != -C ] || dir=$2
for arg; do [ -z "$past" ] || { remote=$arg; break; }; [ "$arg" != -- ] || past=1; done
f='!f() { test "$1" != get || printf "username=%s\npassword=%s\n" "$TEND_GIT_USERNAME" "$TEND_GIT_PASSWORD"; }; f'
for url in "$(git -C "$dir" ls-remote --get-url -- "$remote")" "$(git -C "$dir" remote get-url --push -- "$remote" 2>/dev/null)"; do
  host=$(printf %s "$url" | sed 's|^[^:]*://||; s|[/?#].*||; s|.*@||')
  [ -z "$host" ] || set -- -c "credential.http://$host.helper=$f" -c "credential.https://$host.helper=$f" "$@"
done
exec git -c credential.helper= "$@" </dev/null'''


@dataclass(frozen=True)
class GitFile:
    """A file that is not as in the last commit.

    staged and unstaged are git's letters: M, A, D, R, C, T, U; ".": not changed, "?": git does not know the file.
    """

    path: str
    staged: str
    unstaged: str
    former: str = ""
    """Its former path, of R and C."""


@dataclass(frozen=True)
class GitStatus:
    """The state of a repository's files."""

    branch: str
    """Empty: none is checked out."""
    upstream: str
    """Empty: it has none."""
    ahead: int
    """Commits, compared with upstream."""
    behind: int
    files: tuple[GitFile, ...]


def command(args: Sequence[str], username: str, password: str) -> tuple[list[str], str | None]:
    """The command line, and its input. A shell reads user name and password, and git asks it for
    them: for the host of the remote, and for none that this one redirects to."""
    if not username and not password:
        return ["git", *args], None
    if any(c in username + password for c in "\n\0"):
        raise InvalidError("password", "has an end of line, or user name has")
    return ["sh", "-c", _AUTH, "sh", *args], f"{username}\n{password}\n"


_PASSWORD = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@:]*:[^/?#]*@")


def checked(url: str, field: str = "url") -> str:
    """The URL of another repository, without a password. git takes some that are no URLs to others."""
    if _PASSWORD.match(url):
        raise InvalidError(field, "has a password, which git would show and keep; give it as password")
    return url


def named(branch: str) -> str:
    """A branch, which git takes neither for an option nor for an order to force, delete or rename."""
    if branch[:1] in ("-", "+") or ":" in branch:
        raise InvalidError("branch", f"is {branch[:80]!r}; a name without - or + before it and without : is needed")
    return branch


def status(out: bytes) -> GitStatus:
    """Reads git's format for programs, in which each part ends with NUL."""
    facts: dict[str, str] = {}
    files: list[GitFile] = []
    parts = iter(out.decode(errors="surrogateescape").split("\0"))
    for part in parts:
        kind, _, rest = part.partition(" ")
        fields = {"1": 8, "2": 9, "u": 10}.get(kind, 0)
        if kind == "#":
            name, _, value = rest.partition(" ")
            facts[name] = value
        elif kind == "?":
            files.append(GitFile(rest, "?", "?"))
        elif fields:
            found = rest.split(" ", fields - 1)
            files.append(GitFile(found[-1], found[0][0], found[0][1], next(parts, "") if kind == "2" else ""))
    ahead, behind = (facts.get("branch.ab") or "+0 -0").split()
    branch = facts.get("branch.head", "")
    return GitStatus("" if branch == "(detached)" else branch, facts.get("branch.upstream", ""), int(ahead), -int(behind), tuple(files))
