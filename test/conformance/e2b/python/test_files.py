import hashlib
import io
import os
import pwd

import pytest
from e2b import (
    AuthenticationException,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
)

from conftest import ME, call, until

TEXT = "grüß\n世界 🚀\n"


@pytest.fixture
def files(flavor):
    return flavor.sbx.files


async def test_write_makes_parents_and_belongs_to_the_user(flavor, files, scratch, user):
    path = f"{scratch}/a/b/c.txt"
    info = await call(files.write(path, TEXT, user=user))
    assert (info.name, info.path, info.type) == ("c.txt", path, FileType.FILE)
    assert await call(files.read(path, user=user)) == TEXT
    for made in (path, os.path.dirname(path)):
        assert pwd.getpwuid(os.stat(made).st_uid).pw_name == (user or ME)


async def test_relative_paths_start_at_the_home(files, user):
    name = f"tend-e2b-{os.getpid()}.txt"
    info = await call(files.write(name, "here", user=user))
    try:
        assert info.path == f"{pwd.getpwnam(user or ME).pw_dir}/{name}"
        assert await call(files.read(f"~/{name}", user=user)) == "here"
    finally:
        await call(files.remove(name, user=user))
    assert await call(files.exists(name, user=user)) is False


async def test_read_formats(flavor, files, scratch):
    data = os.urandom(300_000)
    path = f"{scratch}/f"
    await call(files.write(path, data))
    assert bytes(await call(files.read(path, format="bytes"))) == data
    stream = await call(files.read(path, format="stream"))
    got = b""
    if flavor.name == "sync":
        for part in stream:
            got += part
    else:
        async for part in stream:
            got += part
    assert got == data
    await call(files.write(path, TEXT))
    assert await call(files.read(path, format="text")) == TEXT


async def test_write_forms(files, scratch):
    for data in (TEXT, TEXT.encode(), io.BytesIO(TEXT.encode()), io.StringIO(TEXT)):
        await call(files.write(f"{scratch}/f", data))
        assert await call(files.read(f"{scratch}/f")) == TEXT
        os.unlink(f"{scratch}/f")


@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize("octets", [None, True])
async def test_gzip_and_octet_stream(files, scratch, gzip, octets):
    path, data = f"{scratch}/f", TEXT * 5000
    assert (await call(files.write(path, data, gzip=gzip, use_octet_stream=octets))).path == path
    assert await call(files.read(path, gzip=gzip)) == data


async def test_metadata_is_kept(files, scratch):
    path = f"{scratch}/f"
    await call(files.write(path, "x", metadata={"author": "ada", "build-id": "7"}))
    assert (await call(files.get_info(path))).metadata == {"author": "ada", "build-id": "7"}


async def test_several_files_at_once(files, scratch):
    entries = [{"path": f"{scratch}/sub{n}/f{n}", "data": f"data {n}"} for n in range(3)]
    infos = await call(files.write_files(entries))
    assert [i.path for i in infos] == [e["path"] for e in entries]
    for e in entries:
        assert await call(files.read(e["path"])) == e["data"]


async def test_48_mib_up_and_down(files, scratch):
    data = b"".join(n.to_bytes(4, "big") * 1024 for n in range(12 * 1024))
    path = f"{scratch}/big"
    await call(files.write(path, data, request_timeout=100))
    with open(path, "rb") as f:
        assert hashlib.sha256(f.read()).digest() == hashlib.sha256(data).digest()
    assert bytes(await call(files.read(path, format="bytes", request_timeout=100))) == data


async def test_info_of_files_directories_and_links(files, scratch):
    path = f"{scratch}/f"
    await call(files.write(path, "12345"))
    os.chmod(path, 0o640)
    os.symlink(path, f"{scratch}/l")
    info = await call(files.get_info(path))
    assert (info.name, info.type, info.path, info.size) == ("f", FileType.FILE, path, 5)
    assert (info.mode, info.permissions, info.owner) == (0o640, "-rw-r-----", ME)
    assert abs(info.modified_time.timestamp() - os.stat(path).st_mtime) < 0.001
    assert (await call(files.get_info(scratch))).type == FileType.DIR
    assert (await call(files.get_info(f"{scratch}/l"))).symlink_target == path


async def test_list_to_a_depth(files, scratch):
    for name in ("a", "d/b", "d/e/c"):
        await call(files.write(f"{scratch}/{name}", ""))

    async def names(**opts):
        return sorted(os.path.relpath(e.path, scratch) for e in await call(files.list(scratch, **opts)))

    assert await names() == ["a", "d"]
    assert await names(depth=2) == ["a", "d", "d/b", "d/e"]
    assert await names(depth=9) == ["a", "d", "d/b", "d/e", "d/e/c"]


async def test_make_rename_remove(files, scratch, user):
    assert await call(files.make_dir(f"{scratch}/x/y", user=user)) is True
    assert await call(files.make_dir(f"{scratch}/x/y", user=user)) is False
    await call(files.write(f"{scratch}/x/y/f", "data", user=user))
    assert (await call(files.rename(f"{scratch}/x/y/f", f"{scratch}/g", user=user))).path == f"{scratch}/g"
    assert await call(files.exists(f"{scratch}/x/y/f", user=user)) is False
    assert await call(files.read(f"{scratch}/g", user=user)) == "data"
    await call(files.remove(f"{scratch}/x", user=user))
    await call(files.remove(f"{scratch}/x", user=user))
    assert not os.path.exists(f"{scratch}/x")


async def test_refusals(files, scratch):
    with pytest.raises(NotFoundException):
        await call(files.read(f"{scratch}/none"))
    with pytest.raises(InvalidArgumentException):
        await call(files.read(scratch))
    with pytest.raises(NotFoundException):
        await call(files.get_info(f"{scratch}/none"))
    with pytest.raises(NotFoundException):
        await call(files.list(f"{scratch}/none"))
    with pytest.raises(NotFoundException):
        await call(files.rename(f"{scratch}/none", f"{scratch}/x"))
    await call(files.write(f"{scratch}/f", ""))
    with pytest.raises(InvalidArgumentException):
        await call(files.list(f"{scratch}/f"))
    with pytest.raises(AuthenticationException):
        await call(files.read(f"{scratch}/f", user="no-such-user"))


class Watch:
    """Events of a watch: the async SDK calls back, the sync one is asked."""

    def __init__(self, flavor, path, **opts):
        self.flavor, self.path, self.opts = flavor, path, opts
        self.events = []

    async def __aenter__(self):
        watch = self.flavor.sbx.files.watch_dir
        if self.flavor.name == "async":
            self.handle = await watch(self.path, on_event=self.events.append, **self.opts)
        else:
            self.handle = watch(self.path, **self.opts)
        return self

    async def __aexit__(self, *_):
        await call(self.handle.stop())

    async def sees(self, kind, name):
        def check():
            if self.flavor.name == "sync":
                self.events += self.handle.get_new_events()
            return next((e for e in self.events if (e.type, e.name) == (kind, name)), None)

        return await until(f"{kind} {name} among {self.events}", check)


async def test_watch_tells_of_every_change(flavor, scratch):
    async with Watch(flavor, scratch) as w:
        path = f"{scratch}/f"
        await call(flavor.sbx.files.write(path, "x"))
        await w.sees(FilesystemEventType.CREATE, "f")
        await w.sees(FilesystemEventType.WRITE, "f")
        os.chmod(path, 0o600)
        await w.sees(FilesystemEventType.CHMOD, "f")
        os.rename(path, f"{scratch}/g")
        await w.sees(FilesystemEventType.RENAME, "f")
        await w.sees(FilesystemEventType.CREATE, "g")
        os.unlink(f"{scratch}/g")
        await w.sees(FilesystemEventType.REMOVE, "g")


async def test_recursive_watch_with_entries(flavor, scratch):
    os.makedirs(f"{scratch}/old/deep")
    async with Watch(flavor, scratch, recursive=True, include_entry=True) as w:
        await call(flavor.sbx.files.write(f"{scratch}/old/deep/f", "x"))
        event = await w.sees(FilesystemEventType.WRITE, "old/deep/f")
        assert event.entry.path == f"{scratch}/old/deep/f"
        os.mkdir(f"{scratch}/new")
        await w.sees(FilesystemEventType.CREATE, "new")
        await call(flavor.sbx.files.write(f"{scratch}/new/f", "x"))
        await w.sees(FilesystemEventType.CREATE, "new/f")


async def test_watch_of_nothing_is_not_found(flavor, scratch):
    with pytest.raises(NotFoundException):
        async with Watch(flavor, f"{scratch}/none"):
            raise AssertionError("it must not open")
