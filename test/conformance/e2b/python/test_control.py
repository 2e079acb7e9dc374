"""The control plane: sandboxes that the SDK makes, finds and ends."""

import asyncio
import json
import os
import socket
import time
import urllib.error
import urllib.request

import pytest
from e2b import AsyncSandbox, AsyncSecret, AsyncTemplate, NotFoundException, Sandbox, SandboxQuery, SandboxState, Secret, SecretException, Template
from e2b.exceptions import SandboxException, SandboxNotFoundException

from conftest import URL, call, until

BOOT = "/proc/sys/kernel/random/boot_id"


class Plane:
    """One form of the SDK. What it makes is ended after the test."""

    def __init__(self, name):
        self.name = name
        self.sandbox = Sandbox if name == "sync" else AsyncSandbox
        self.template = Template if name == "sync" else AsyncTemplate
        self.secret = Secret if name == "sync" else AsyncSecret
        self.tag = f"py-{name}-{os.getpid()}-{time.time_ns()}"
        self.made = []

    async def create(self, template="base", metadata=None, **opts):
        opts.setdefault("timeout", 300)
        sbx = await call(self.sandbox.create(template, metadata={"tag": self.tag, **(metadata or {})}, **opts))
        self.made.append(sbx)
        return sbx

    async def run(self, sbx, cmd):
        return (await call(sbx.commands.run(cmd))).stdout


@pytest.fixture(params=["sync", "async"])
async def plane(request, monkeypatch):
    monkeypatch.delenv("E2B_DEBUG", raising=False)  # with it no sandbox is made
    if "E2B_DOMAIN" not in os.environ:
        monkeypatch.setenv("E2B_API_URL", URL)
    p = Plane(request.param)
    yield p
    for sbx in p.made:
        await call(sbx.kill())


def ask(path, headers=None, method="GET", body=None):
    """What a path of the server, or a link, answers, without an SDK."""
    req = urllib.request.Request(path if "://" in path else URL + path, headers=headers or {}, method=method, data=body)
    try:
        with urllib.request.urlopen(req, timeout=120) as res:
            return res.status, res.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


async def test_a_sandbox_runs_commands_and_is_apart(plane):
    one = await plane.create(envs={"FROM_CREATE": "1"})
    two = await plane.create()
    assert await plane.run(one, 'echo "$FROM_CREATE"') == "1\n"
    path = f"/tmp/tend-control-{plane.tag}"
    await call(two.files.write(path, "of the other"))
    assert await call(two.files.read(path)) == "of the other"
    assert not os.path.exists(path)
    assert not await call(one.files.exists(path))
    assert await call(one.is_running())


async def test_info_lists_and_pages(plane):
    sbx = await plane.create(metadata={"odd key": "a=b&c d/ž+%"}, lifecycle={"on_timeout": "pause"})
    info = await call(sbx.get_info())
    assert (info.sandbox_id, info.template_id, info.state) == (sbx.sandbox_id, "base", SandboxState.RUNNING)
    assert info.metadata == {"tag": plane.tag, "odd key": "a=b&c d/ž+%"}
    left = info.end_at.timestamp() - time.time()
    assert 10 < left < 301 and info.cpu_count > 0 and info.memory_mb > 0

    async def find(**query):
        return [s.sandbox_id for s in await call(plane.sandbox.list(query=SandboxQuery(**query)).next_items())]

    assert await find(metadata={"tag": plane.tag, "odd key": "a=b&c d/ž+%"}, state=[SandboxState.RUNNING, SandboxState.PAUSED]) == [sbx.sandbox_id]
    assert await find(metadata={"tag": plane.tag}, state=[SandboxState.PAUSED]) == []
    assert await find(metadata={"tag": "another"}) == []
    for _ in range(2):
        await plane.create()
    pages, ids = plane.sandbox.list(limit=2, query=SandboxQuery(metadata={"tag": plane.tag})), []
    while pages.has_next:
        ids += [s.sandbox_id for s in await call(pages.next_items())]
    assert sorted(ids) == sorted(s.sandbox_id for s in plane.made)


async def test_timeouts(plane):
    sbx = await plane.create()

    async def left():
        return (await call(sbx.get_info())).end_at.timestamp() - time.time()

    await call(sbx.set_timeout(600))
    assert await left() > 500
    await call(plane.sandbox.connect(sbx.sandbox_id, timeout=30))
    assert await left() > 400
    await call(sbx.set_timeout(300))
    assert await left() < 301
    short = await plane.create(timeout=1)

    async def gone():
        try:
            await call(short.get_info())
        except NotFoundException:
            return True

    await until("it is gone", gone)
    assert not await call(short.is_running())


async def test_pause_and_connect(plane):
    sbx = await plane.create()
    handle = await call(sbx.commands.run("n=0; while sleep 0.05; do n=$((n+1)); echo $n > next; mv next count; done", background=True, timeout=0))

    async def count():
        return int(await call(sbx.files.read("count"))) if await call(sbx.files.exists("count")) else 0

    await until("it counts", count)
    boot = await call(sbx.files.read(BOOT))
    assert await call(sbx.pause()) is True
    assert await call(sbx.pause()) is False
    assert (await call(plane.sandbox.get_info(sbx.sandbox_id))).state == SandboxState.PAUSED
    again = await call(plane.sandbox.connect(sbx.sandbox_id, timeout=120))
    assert handle.pid in [p.pid for p in await call(again.commands.list())]
    was = await count()

    async def goes_on():
        return await count() > was

    await until("it counts on", goes_on)
    assert await call(again.files.read(BOOT)) == boot


async def test_links_and_ports(plane):
    sbx = await plane.create()
    await call(sbx.files.write("signed.txt", "by a link"))
    link = await call(sbx.download_url("signed.txt", use_signature_expiration=60))
    domain = os.environ.get("E2B_DOMAIN")
    assert link.startswith(f"https://49983-{sbx.sandbox_id}.{domain}/" if domain else URL)
    assert ask(link) == (200, "by a link")
    assert ask(link.replace("signed.txt", "other.txt"))[0] == 401
    with socket.socket() as s:  # a sandbox may have the machine's network
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    where = {"E2b-Sandbox-Id": sbx.sandbox_id, "E2b-Sandbox-Port": str(port)}
    code, text = ask("/", where)
    assert (code, json.loads(text)["message"]) == (502, "The sandbox is running but port is not open")
    await call(sbx.commands.run(f"exec python3 -m http.server -b 127.0.0.1 {port}", background=True, timeout=0))

    async def served():
        return (await asyncio.to_thread(ask, "/signed.txt", where)) == (200, "by a link")

    await until("the port is open", served)
    assert sbx.get_host(port) == f"{port}-{sbx.sandbox_id}.{domain or 'localhost:' + URL.rpartition(':')[2]}"


async def test_metrics(plane):
    sbx = await plane.create()
    metrics = await call(sbx.get_metrics())
    assert metrics and all(m.mem_total > 0 and m.cpu_count > 0 for m in metrics)


async def test_kill_and_what_is_gone(plane):
    sbx = await plane.create()
    assert await call(sbx.kill()) is True
    assert await call(sbx.kill()) is False
    assert not await call(sbx.is_running())
    with pytest.raises(SandboxNotFoundException):
        await call(plane.sandbox.connect(sbx.sandbox_id))
    mark = f"/tmp/tend-escape-{plane.tag}"
    with pytest.raises(SandboxException):
        await call(sbx.commands.run(f"touch {mark}"))
    assert not os.path.exists(mark)


async def test_templates_that_there_are(plane):
    assert await call(plane.template.exists("base")) is True
    assert await call(plane.template.exists("nobody-built-this")) is False
    with pytest.raises(SandboxException, match="404.*not found"):
        await plane.create("nobody-built-this")


async def test_what_runs_when_a_sandbox_is_killed_says_so(plane):
    sbx = await plane.create()
    h = await call(sbx.commands.run("sleep 1000", background=True, timeout=0))
    await call(sbx.kill())
    with pytest.raises(SandboxException, match="killed or reached its end of life"):
        await call(h.wait())


async def test_a_pause_at_its_time_can_keep_the_files_alone(plane):
    sbx = await plane.create(lifecycle={"on_timeout": {"action": "pause", "keep_memory": False}})
    await call(sbx.files.write("kept", "files"))
    boot = await call(sbx.files.read(BOOT))
    h = await call(sbx.commands.run("sleep 1000", background=True, timeout=0))
    await call(sbx.set_timeout(0))
    await until("it is paused", lambda: paused(sbx))
    again = await call(sbx.connect(timeout=60))
    assert await call(again.files.read("kept")) == "files"
    assert await call(again.files.read(BOOT)) != boot
    assert not [p for p in await call(again.commands.list()) if p.pid == h.pid and "sleep 1000" in str(p)]


async def paused(sbx):
    return (await call(sbx.get_info())).state == SandboxState.PAUSED


async def test_mcp_is_started_by_the_sdk_which_cleans_up(plane):
    with pytest.raises(SandboxException, match="Failed to start MCP gateway"):
        await plane.create(mcp={"anything": {}})
    assert await call(plane.sandbox.list(query=SandboxQuery(metadata={"tag": plane.tag})).next_items()) == []


RULES = {"api.example.com": [{"transform": {"headers": {"Authorization": "Bearer x"}}}]}


async def test_rules_that_put_headers_into_requests_are_refused_by_name(plane):
    with pytest.raises(SandboxException, match="network.rules is not supported by this server"):
        await plane.create(network={"rules": RULES, "deny_out": ["0.0.0.0/0"], "allow_out": lambda ctx: list(ctx.rules)})
    assert await call(plane.sandbox.list(query=SandboxQuery(metadata={"tag": plane.tag})).next_items()) == []
    sbx = await plane.create(network={"deny_out": ["192.0.2.1"]})
    with pytest.raises(SandboxException, match="network.rules is not supported by this server"):
        await call(sbx.update_network({"rules": RULES, "deny_out": ["192.0.2.2"]}))
    assert (await call(sbx.get_info())).network["deny_out"] == ["192.0.2.1"]  # no part of it counts


async def test_secrets_are_refused_by_name(plane):
    for ask in [
        lambda: plane.secret.create("key", "value", metadata={"a": "b"}),
        lambda: plane.secret.update("key", "value"),
        lambda: plane.secret.get_info("key"),
        lambda: plane.secret.exists("key"),  # not False: nobody has looked
        lambda: plane.secret.list(limit=1).next_items(),
        lambda: plane.secret.destroy("key"),
    ]:
        with pytest.raises(SecretException, match="/secrets is not supported by this server; give variables"):
            await call(ask())
