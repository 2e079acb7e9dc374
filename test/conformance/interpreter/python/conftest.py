"""What the tests share: one sandbox."""

import os
import time
from pathlib import Path

import pytest
from e2b_code_interpreter import Sandbox

if "E2B_SANDBOX_URL" not in os.environ:
    raise SystemExit("E2B_SANDBOX_URL is not set; run test/conformance/interpreter/run python")

PATIENCE = 500.0  # seconds; it only ends tests that fail


def create(**options):
    return Sandbox.create(timeout=3600, **options)


def eventually(what, ok):
    end = time.monotonic() + PATIENCE
    while True:
        if found := ok():
            return found
        assert time.monotonic() < end, f"waited {PATIENCE} s in vain: {what}"
        time.sleep(0.05)


def role(name):
    """The pid of a role, if it runs now."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if line.read_text().split("\0")[1:4] == [name, "--state-dir", os.environ["TEND_STATE"]]:
                return int(line.parent.name)
        except OSError:  # it has just died
            pass
    return None


def token(sandbox):
    """The header that the SDKs show to run code."""
    return {"X-Access-Token": sandbox._envd_access_token} if sandbox._envd_access_token else {}


@pytest.fixture(scope="session")
def sandbox():
    with create(envs={"OF_THE_SANDBOX": "yes"}) as s:
        yield s
