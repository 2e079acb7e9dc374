"""What the suites share: each test runs with the sync and with the async SDK.

A test is written once, as a coroutine. Calls go through ``call``, which waits
for what the async SDK returns and passes on what the sync one does.
"""

import asyncio
import inspect
import os
import pwd
import shutil
import tempfile

import pytest
from e2b import AsyncSandbox, PtySize, Sandbox, TimeoutException

# The daemon without a name: by domain, run says it in a variable that no SDK knows.
URL = os.environ.get("TEND_E2B_URL") or os.environ.get("E2B_SANDBOX_URL")
if not URL:
    raise SystemExit("E2B_SANDBOX_URL is not set; run test/conformance/e2b/run python")

ME = pwd.getpwuid(os.getuid()).pw_name
OTHER = os.environ.get("TEND_E2B_USER", ME)
USERS = list(dict.fromkeys([None, ME, OTHER]))
PATIENCE = 120.0  # seconds; it only ends tests that fail


async def call(value):
    return await value if inspect.isawaitable(value) else value


async def until(what, check):
    """Wait until check() is truthy and return what it gave."""
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        value = await call(check())
        if value:
            return value
        if asyncio.get_running_loop().time() > end:
            raise AssertionError(f"waited {PATIENCE} s in vain: {what}")
        await asyncio.sleep(0.02)


async def in_time(seconds, attempt):
    """Calls attempt(seconds) with twice the time until it says that what it wanted to be
    cut off had begun: on a machine that is busy, a start takes its time, too."""
    while not await attempt(seconds):
        seconds *= 2
        assert seconds < PATIENCE, "nothing begins in a minute"


async def begun(start):
    """What a call gives; None if its time was over before it gave anything."""
    try:
        return await start
    except TimeoutException:
        return None


class Flavor:
    """One SDK, and the few things that its two forms say differently."""

    def __init__(self, name, sbx):
        self.name = name
        self.sbx = sbx

    async def run(self, cmd, **opts):
        return await call(self.sbx.commands.run(cmd, **opts))

    async def background(self, cmd, **opts):
        return await call(self.sbx.commands.run(cmd, background=True, **opts))

    async def wait(self, handle, **callbacks):
        """The end of a command; the sync form blocks, so it gets a thread."""
        if self.name == "async":
            return await handle.wait()
        return await asyncio.to_thread(lambda: handle.wait(**callbacks))

    async def alive(self, pid):
        try:
            with open(f"/proc/{pid}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] != "Z"
        except (FileNotFoundError, ProcessLookupError):
            return False

    async def terminal(self, size=PtySize(rows=24, cols=80), **opts):
        opts.setdefault("timeout", 0)
        seen = Terminal(self)
        if self.name == "async":
            seen.handle = await self.sbx.pty.create(size, on_data=seen.take, **opts)
        else:
            seen.handle = self.sbx.pty.create(size, **opts)
        seen.follow()
        return seen

    async def reconnect(self, terminal):
        seen = Terminal(self)
        if self.name == "async":
            seen.handle = await self.sbx.pty.connect(terminal.handle.pid, on_data=seen.take, timeout=0)
        else:
            seen.handle = self.sbx.pty.connect(terminal.handle.pid, timeout=0)
        seen.follow()
        return seen


class Terminal:
    def __init__(self, flavor):
        self.flavor = flavor
        self.handle = None
        self.data = b""
        self.end = None

    def take(self, data):
        self.data += data

    def follow(self):
        if self.flavor.name == "async":
            self.end = asyncio.ensure_future(self.handle.wait())
        else:
            self.end = asyncio.ensure_future(asyncio.to_thread(lambda: self.handle.wait(on_pty=self.take)))

    async def ends(self):
        return await asyncio.wait_for(self.end, PATIENCE)

    async def type(self, text):
        await call(self.flavor.sbx.pty.send_stdin(self.handle.pid, text.encode()))

    async def sees(self, text):
        await until(f"{text!r} in {self.data[-400:]!r}", lambda: text.encode() in self.data)


@pytest.fixture(params=["sync", "async"])
async def flavor(request):
    sbx = Sandbox.create() if request.param == "sync" else await AsyncSandbox.create()
    return Flavor(request.param, sbx)


@pytest.fixture(params=USERS, ids=lambda u: u or "default user")
def user(request):
    return request.param


@pytest.fixture
def scratch():
    """A directory that every user may write to."""
    path = tempfile.mkdtemp(prefix="tend-e2b-py-")
    os.chmod(path, 0o777)
    yield path
    shutil.rmtree(path, ignore_errors=True)
