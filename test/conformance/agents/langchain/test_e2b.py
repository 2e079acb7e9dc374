"""What langchain-e2b does of its own, and what its sandboxes live through."""

import time

import e2b
import pytest
from langchain_e2b import AsyncE2BSandbox, E2BSandbox

from backends import PATIENCE, on_e2b


@pytest.fixture
def backend():
    with on_e2b() as backend:
        yield backend


def test_a_command_that_takes_too_long(backend):
    result = backend.execute("echo $$ >/tmp/pid; exec sleep 3600", timeout=3)
    assert (result.exit_code, result.output) == (124, "Command timed out after 3 seconds")
    assert backend.execute("while kill -0 $(cat /tmp/pid) 2>/dev/null; do sleep 0.1; done; echo usable", timeout=120).output == "usable\n"


def test_pause_and_connect(backend):
    backend.upload_files([("/home/user/kept", b"1")])
    backend.execute("(sleep 3600 >/dev/null 2>&1 & echo $! >pid)")
    e2b.Sandbox.pause(backend.id)
    again = E2BSandbox(sandbox=e2b.Sandbox.connect(backend.id))
    assert again.execute("cat kept; kill -0 $(cat pid) && pwd").output == "1/home/user\n"


def test_a_command_in_a_sandbox_that_is_gone_fails_at_once(backend):
    e2b.Sandbox.kill(backend.id)
    begun = time.monotonic()
    # E2B's SDK has one exception for both: a sandbox that is gone had a timeout, most of the time.
    assert backend.execute("echo there").exit_code == 124
    assert time.monotonic() - begun < PATIENCE


async def test_asynchronous():
    raw = await e2b.AsyncSandbox.create(timeout=600)
    try:
        backend = AsyncE2BSandbox(sandbox=raw)
        assert (await backend.awrite("/home/user/deep/er/a.txt", "one\ntwo\n")).error is None
        assert (await backend.aread("/home/user/deep/er/a.txt", offset=1)).file_data["content"].rstrip() == "two"
        assert (await backend.aedit("/home/user/deep/er/a.txt", "two", "three")).error is None
        result = await backend.aexecute("cat deep/er/a.txt; id -un; exit 7")
        assert (result.output, result.exit_code) == ("one\nthree\nuser\n", 7)
    finally:
        await raw.kill()
