"""What the suites share: one client and one box for each test."""

import os
import subprocess
import time

import pytest
from langsmith.sandbox import AsyncSandboxClient, SandboxClient

if "TEND_LANGSMITH_URL" not in os.environ:
    raise SystemExit("TEND_LANGSMITH_URL is not set; run test/conformance/langsmith/run python")

ENDPOINT = os.environ["TEND_LANGSMITH_URL"] + "/v2/sandboxes"
KEY = os.environ["TEND_LANGSMITH_API_KEY"]
PATIENCE = 120.0  # seconds; it only ends tests that fail


@pytest.fixture
def client():
    return SandboxClient(api_endpoint=ENDPOINT, api_key=KEY, timeout=PATIENCE)


@pytest.fixture
def sandbox(client):
    box = client.create_sandbox()
    yield box
    box.delete()


@pytest.fixture
async def async_sandbox():
    client = AsyncSandboxClient(api_endpoint=ENDPOINT, api_key=KEY, timeout=PATIENCE)
    box = await client.create_sandbox()
    yield box
    await box.delete()


def upgrade():
    subprocess.run([os.environ["TEND_BIN"], "upgrade"], check=True, timeout=PATIENCE)


def kill_server():
    subprocess.run([os.environ["TEND_KILL_ROLE"], "server"], check=True, timeout=PATIENCE)


def until(what, check):
    """Wait until check() is truthy and return what it gave."""
    end = time.monotonic() + PATIENCE
    while True:
        value = check()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE} s in vain: {what}")
        time.sleep(0.05)


def drain(handle, stdout=0, stderr=0, on_chunk=lambda chunk: None):
    """Read to the end and hold the offsets to the contract: within a stream a
    chunk starts where the one before ended, counted in bytes of UTF-8."""
    at = {"stdout": stdout, "stderr": stderr}
    text = {"stdout": "", "stderr": ""}
    for chunk in handle:
        assert chunk.offset == at[chunk.stream], chunk.stream
        at[chunk.stream] += len(chunk.data.encode())
        text[chunk.stream] += chunk.data
        on_chunk(chunk)
    return text["stdout"], text["stderr"]
