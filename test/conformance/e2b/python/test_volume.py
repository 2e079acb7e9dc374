"""Volumes: what the SDK makes, mounts in sandboxes, and reads and writes from outside."""

import os
import time

import pytest
from e2b import AsyncSandbox, AsyncVolume, Sandbox, Volume
from e2b.exceptions import NotFoundException, SandboxException
from e2b.volume.types import VolumeFileType

from conftest import URL, call


class Plane:
    """One form of the SDK. What it makes is ended after the test."""

    def __init__(self, name):
        self.volume = Volume if name == "sync" else AsyncVolume
        self.sandbox = Sandbox if name == "sync" else AsyncSandbox
        self.tag = f"py-{name}-{os.getpid()}-{time.time_ns()}"
        self.sandboxes, self.volumes = [], []

    async def make(self, name="v"):
        volume = await call(self.volume.create(f"{self.tag}-{name}"))
        self.volumes.append(volume.volume_id)
        return volume

    async def create(self, mounts):
        sbx = await call(self.sandbox.create("base", timeout=300, volume_mounts=mounts))
        self.sandboxes.append(sbx)
        return sbx


@pytest.fixture(params=["sync", "async"])
async def plane(request, monkeypatch):
    monkeypatch.delenv("E2B_DEBUG", raising=False)
    if "E2B_DOMAIN" not in os.environ:
        monkeypatch.setenv("E2B_API_URL", URL)
        monkeypatch.setenv("E2B_VOLUME_API_URL", URL)
    p = Plane(request.param)
    yield p
    for sbx in p.sandboxes:
        await call(sbx.kill())
    for v in p.volumes:
        await call(p.volume.destroy(v))


async def test_a_volume_is_made_found_listed_and_destroyed(plane):
    v = await plane.make()
    assert v.name.endswith("-v")
    assert any(i.volume_id == v.volume_id and i.name == v.name for i in await call(plane.volume.list()))
    assert (await call(plane.volume.get_info(v.volume_id))).token == v.token
    again = await call(plane.volume.connect(v.volume_id))
    await call(v.write_file("/a", "1"))
    assert await call(again.read_file("/a")) == "1"
    assert await call(plane.volume.destroy(v.volume_id)) is True
    assert await call(plane.volume.destroy(v.volume_id)) is False
    with pytest.raises(NotFoundException):
        await call(plane.volume.get_info(v.volume_id))


async def test_files_of_a_volume(plane):
    v = await plane.make()
    stat = await call(v.write_file("/t.txt", "Hello"))
    assert (stat.name, stat.type, stat.path, stat.size) == ("t.txt", VolumeFileType.FILE, "/t.txt", 5)
    assert abs(stat.mtime.timestamp() - time.time()) < 600
    assert await call(v.read_file("/t.txt")) == "Hello"
    data = bytes(range(256)) * 1000
    await call(v.write_file("/b", data))
    assert bytes(await call(v.read_file("/b", format="bytes"))) == data
    with pytest.raises(Exception, match="already exists"):
        await call(v.write_file("/t.txt", "other", force=False))
    await call(v.write_file("/t.txt", "other", force=True))
    assert await call(v.read_file("/t.txt")) == "other"
    owner = 1000 if os.getuid() == 0 else 0
    stat = await call(v.write_file("/owned", "x", uid=owner, gid=owner, mode=0o640))
    assert (stat.uid, stat.gid, stat.mode) == (owner, owner, 0o640)
    stat = await call(v.update_metadata("/owned", mode=0o755))
    assert (stat.uid, stat.mode) == (owner, 0o755)
    await call(v.make_dir("/a/b", force=True))
    with pytest.raises(NotFoundException):
        await call(v.make_dir("/x/y"))
    await call(v.write_file("/a/b/f", "deep"))
    assert [e.path for e in await call(v.list("/a", depth=2))] == ["/a/b", "/a/b/f"]
    assert (await call(v.get_info("/a"))).type == VolumeFileType.DIRECTORY
    await call(v.remove("/a"))
    assert await call(v.exists("/a/b/f")) is False
    with pytest.raises(NotFoundException):
        await call(v.read_file("/a/b/f"))


async def test_sandboxes_share_a_volume_that_outlives_them(plane):
    v = await plane.make()
    await call(v.write_file("/from-outside", "hello\n"))
    one = await plane.create({"/mnt/shared": v})
    two = await plane.create({"/data/vol": v.name})
    out = await call(one.commands.run("cat /mnt/shared/from-outside && echo inside > /mnt/shared/from-inside"))
    assert out.stdout == "hello\n"
    assert (await call(two.commands.run("cat /data/vol/from-inside"))).stdout == "inside\n"
    await call(two.files.write("/data/vol/by-files", "by files"))
    assert await call(v.read_file("/by-files")) == "by files"
    info = await call(one.get_info())
    assert [(m["name"], m["path"]) if isinstance(m, dict) else (m.name, m.path) for m in info.volume_mounts] == [(v.name, "/mnt/shared")]
    with pytest.raises(Exception, match="in use|409"):
        await call(plane.volume.destroy(v.volume_id))
    for sbx in (one, two):
        await call(sbx.kill())
    later = await plane.create({"/v": v})
    assert (await call(later.commands.run("cat /v/by-files"))).stdout == "by files"
    with pytest.raises(SandboxException, match=r"volumeMounts\[0\]\.name"):
        await plane.create({"/v": "there-is-none"})
