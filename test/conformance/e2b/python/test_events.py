"""Events of sandboxes that the SDK makes, as E2B's documentation asks for them."""

import json
import os

import pytest
from e2b import AsyncSandbox, Sandbox

from conftest import URL, call
from test_control import ask


@pytest.mark.parametrize("form", [Sandbox, AsyncSandbox])
async def test_what_becomes_of_a_sandbox(form, monkeypatch):
    monkeypatch.delenv("E2B_DEBUG", raising=False)
    if "E2B_DOMAIN" not in os.environ:
        monkeypatch.setenv("E2B_API_URL", URL)
    sbx = await call(form.create("base", timeout=300, metadata={"who": "me"}))
    await call(sbx.set_timeout(600))
    await call(sbx.pause())
    await call(sbx.connect())
    await call(sbx.create_snapshot())
    await call(sbx.kill())
    key = {"X-API-Key": os.environ["E2B_API_KEY"]}
    status, text = ask(f"/events/sandboxes/{sbx.sandbox_id}?limit=100", key)
    events = json.loads(text)
    assert status == 200
    kinds = [e["type"].removeprefix("sandbox.lifecycle.") for e in events]
    assert kinds == ["killed", "checkpointed", "resumed", "paused", "updated", "created"]
    assert all(e["eventData"]["sandbox_metadata"] == {"who": "me"} for e in events)
    assert events[0]["eventData"]["kill_reason"] == "request"
