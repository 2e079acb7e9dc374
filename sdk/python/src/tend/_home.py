"""Where the daemon of the current user listens, by the rules of the tend command line (internal/lib/home).

The only place that reads the environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ._errors import NoDaemonError


def defaults(env: Mapping[str, str] = os.environ) -> tuple[list[str], str]:
    """URLs to try, the likeliest first, and the token of TEND_TOKEN ("": none)."""
    token = env.get("TEND_TOKEN", "")
    if url := env.get("TEND_URL"):
        return [url], token
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    directory = _state_dir(env, root)
    socket = os.path.join(directory, "tend.sock")
    if not env.get("TEND_STATE_DIR"):
        runtime = env.get("XDG_RUNTIME_DIR", "")
        if root:
            socket = "/run/tend/tend.sock"
        elif os.path.isabs(runtime) and os.path.isdir(runtime):
            socket = os.path.join(runtime, "tend", "tend.sock")
    urls = [f"unix://{socket}"]
    try:
        with open(os.path.join(directory, "url"), encoding="utf-8") as file:
            said = file.read(64 << 10).strip()  # what the daemon says of itself
    except (OSError, ValueError):
        said = ""  # no daemon has run there, or it is not ours to read
    if said and said != urls[0]:
        urls.insert(0, said)
    return urls, token


def _state_dir(env: Mapping[str, str], root: bool) -> str:
    if named := env.get("TEND_STATE_DIR"):
        return os.path.abspath(named)
    if root:
        return "/var/lib/tend"
    state = env.get("XDG_STATE_HOME", "")
    if os.path.isabs(state):
        return os.path.join(state, "tend")
    home = env.get("HOME", "")
    if not os.path.isabs(home):
        raise NoDaemonError("no state directory: HOME is not set; give a url, or set TEND_URL")
    return os.path.join(home, ".local", "state", "tend")
