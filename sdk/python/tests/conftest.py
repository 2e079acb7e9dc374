"""What the tests share: a daemon, and coroutines as tests."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = os.environ.get("TEND_BIN", str(ROOT / "bin/tend"))
PATIENCE = 120.0
"""Seconds; it only ends tests that fail."""


def until(what: str, check: Callable[[], Any]) -> Any:
    """Waits for what must happen."""
    end = time.monotonic() + PATIENCE
    while not (value := check()):
        if time.monotonic() > end:
            raise AssertionError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.05)
    return value


class Daemon:
    """A tend of the tests' own, with a socket and a port."""

    def __init__(self, *flags: str) -> None:
        self.dir = Path(tempfile.mkdtemp(prefix="tend-py-"))
        places = ["--listen", "127.0.0.1:0", "--socket", str(self.dir / "s.sock"), "--state-dir", str(self.dir / "state"), "--port-file", str(self.dir / "url")]
        with open(self.dir / "log", "wb") as log:
            self._child = subprocess.Popen([BIN, "serve", *places, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until("the daemon serves", lambda: (self.dir / "url").exists() or self._child.poll() is not None)
        if self._child.poll() is not None:
            raise AssertionError((self.dir / "log").read_text())
        self.socket = f"unix://{self.dir}/s.sock"
        self.url = (self.dir / "url").read_text().strip()

    def role(self, name: str) -> int | None:
        """The pid of anchor, keeper or server: descendants of the launcher, by their command lines."""
        anchor = self._child_of(self._child.pid, "anchor")
        if name == "anchor" or anchor is None:
            return anchor
        return self._child_of(anchor, name) or self._child_of(self._child.pid, name)

    @staticmethod
    def _child_of(pid: int, role: str) -> int | None:
        for task in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                for child in map(int, task.read_text().split()):
                    args = Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0")
                    mine = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                    # A child of a role looks like its parent until it runs its own program.
                    if role.encode() in args and args != mine and "tend" in os.readlink(f"/proc/{child}/exe"):
                        return child
            except OSError:
                pass  # it has ended
        return None

    def kill(self, name: str) -> None:
        """Kills a role with SIGKILL, and waits until there is another one."""
        pid = until(f"there is a {name}", lambda: self.role(name))
        os.kill(pid, signal.SIGKILL)
        until(f"there is another {name}", lambda: self.role(name) not in (None, pid))

    def stop(self) -> None:
        self._child.terminate()
        self._child.wait(PATIENCE)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    d = Daemon()
    yield d
    d.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A coroutine is a test, too."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    args = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    asyncio.run(pyfuncitem.obj(**args))
    return True
