"""The client with a real tend. test_sync.py is generated from this by gen.py."""

from __future__ import annotations

import base64
import http.server
import io
import json
import os
import shutil
import signal
import subprocess
import tarfile
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import tend
from conftest import Daemon
from proxy import Cutting
from registry import Registry
from tend import AsyncClient, AsyncProcess
from tend._async._io import sleep


async def whole(pieces: AsyncIterator[bytes]) -> bytes:
    return b"".join([piece async for piece in pieces])


async def test_a_command_its_output_status_input_environment_and_directory(daemon: Daemon) -> None:
    for url in (daemon.socket, daemon.url):
        async with await AsyncClient.connect(url) as client:
            result = await client.run('cat; echo "$A" >&2; pwd; exit 3', env={"A": "x y", "B": None}, dir="/usr", input="in ", labels={"of": "run"})
            assert (result.text, result.stderr, result.exit_code, result.success) == ("in /usr\n", b"x y\n", 3, False)
            assert (await client.run(["printf", "%s", "$A; ü"])).text == "$A; ü"
            assert client.server.version and client.server.instance
            assert set((await client.status()).roles) >= {"anchor", "keeper", "server"}
        async with await AsyncClient.connect(url) as other:
            assert await other.list(labels={"of": "run"}) == [], "what run started is forgotten when the client is closed"


async def test_signals_timeouts_and_what_is_kept(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        assert (await client.run("kill -SEGV $$")).exit_code == 139
        late = await client.run('trap "" TERM; sleep 60 & wait; sleep 60', timeout=0.3)
        assert (late.exit_code, late.exit.cause) == (124, "timeout")
        newest = await client.run("seq 1 10000", max_output=100)
        assert newest.stdout.endswith(b"9999\n10000\n") and (len(newest.stdout), newest.stdout_dropped) == (100, 48_894 - 100)
        with pytest.raises(tend.CommandError, match="status 3: no such thing") as failed:
            await client.run("echo out; echo no such thing >&2; exit 3", check=True)
        assert failed.value.result.stdout == b"out\n"


async def test_a_write_that_is_given_up_holds_nobody_up(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client, await AsyncClient.connect(daemon.url) as other:
        first = await client.start(["cat"], stdin="pipe")
        second = await other.get(first.id)
        await second.signal(signal.SIGSTOP)
        with pytest.raises(tend.TendTimeoutError):
            await first.write(b"a" * (8 << 20), timeout=1)
        assert (await second.refresh()).stdin_accepted > 0
        await second.signal(signal.SIGCONT)
        await second.write(b"b", timeout=8)  # else it waits for ten seconds
        await second.close_stdin()
        out = await whole(second.output())
        assert out.strip(b"a") == b"b"


async def test_one_id_starts_once_and_any_client_finds_it(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        id_ = tend.new_id()
        a = await client.start(["sleep", "600"], id=id_, name="napper-" + id_, labels={"mine": id_})
        b = await client.start(["sleep", "600"], id=id_, name="napper-" + id_, labels={"mine": id_})
        assert a.pid == b.pid
        with pytest.raises(tend.ExistsError):
            await client.start(["sleep", "601"], id=id_)
        assert [i.id for i in await client.list(labels={"mine": id_})] == [id_]
        for found in (await client.get(id_), await client.get(name="napper-" + id_), await client.get(pid=a.pid), client.attach(a.info)):
            assert found.id == id_
        with pytest.raises(tend.RunningError):
            await a.remove()
        assert await a.kill() == tend.KillResult(True)
        assert await b.kill() == tend.KillResult(False)
        await a.remove()
        with pytest.raises(tend.NotFoundError):
            await a.refresh()


async def test_what_is_wrong_is_said_and_nothing_is_started(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        with pytest.raises(tend.StartError) as missing:
            await client.start(["/no/such"])
        assert (missing.value.reason, missing.value.what) == ("not_found", "/no/such")
        with pytest.raises(tend.StartError) as nowhere:
            await client.start("true", dir="/no/such")
        assert nowhere.value.reason == "bad_dir"
        before = len(await client.list())
        wrong: list[tuple[str, object, dict[str, object]]] = [
            ("command", "", {}),
            ("command", ["a\0b"], {}),
            ("command", [1], {}),
            ("spec.tiemout", "true", {"tiemout": 1}),
            ("spec.cwd", "true", {"dir": "/", "cwd": "/"}),
            ("timeout", "true", {"timeout": "1h"}),
            ("timeout", "true", {"timeout": float("nan")}),
            ("stdin", "true", {"stdin": "open"}),
            ("pty", "true", {"pty": (1, 70_000)}),
            ("env", "true", {"env": {"A": 1}}),
            ("name", "true", {"name": 7}),
            ("name", "true", {"name": "\ud800"}),
            ("memory_max", "true", {"limits": {"memory_max": 1.5}}),
            ("limits.memory", "true", {"limits": {"memory": 1}}),
        ]
        for field, command, options in wrong:
            with pytest.raises(tend.InvalidError) as invalid:
                await client.start(command, **options)  # type: ignore[arg-type]
            assert invalid.value.field == field
        assert len(await client.list()) == before
        with pytest.raises(tend.InvalidError):
            await client.get(id="a", name="b")


async def test_waits_for_text_silence_a_port_input_and_the_end(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        serve = 'import socket; s = socket.create_server(("127.0.0.1", 0)); print("on", s.getsockname()[1], flush=True); s.accept()'
        p = await client.start(["python3", "-c", serve])
        on = await p.wait(match=r"on \d+")
        assert on.met and on.stream == "stdout" and on.offset == 0
        assert [x.pid for x in (await p.wait(port=int(on.match.split()[1]))).listening] == [p.pid]
        assert (await p.wait(quiet=0.05)).met
        with pytest.raises(TimeoutError, match="not within 0.2 s"):
            await p.wait(timeout=0.2)
        with pytest.raises(tend.TendTimeoutError):
            await whole(p.output(start=-1, timeout=0.2))
        with pytest.raises(tend.InvalidError):
            await p.wait(port=1, input=True)
        await p.kill()
        end = await p.wait()
        assert end.met and end.exit is not None and (end.exit.signal, end.exit.cause) == (9, "killed")
        assert not (await p.wait(match="never")).met
        asks = await client.start("read -r x; echo got $x", pty=(80, 24))
        assert (await asks.wait(input=True)).met
        await asks.resize(100, 30)
        await asks.write("it\n")
        assert b"got it\r\n" in await whole(asks.output("pty"))


async def test_output_from_any_place_and_views(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        p = await client.start(r"seq 1 1000; printf '\033[31mred\033[0m\n' >&2; exit 4")
        await p.wait(eof=True)
        want = b"".join(b"%d\n" % i for i in range(1, 1001))
        assert await whole(p.output()) == want
        assert await whole(p.output(start=100)) == want[100:]
        facts = []
        async with p.read() as events:
            async for event in events:
                facts.append(type(event).__name__)
                if isinstance(event, tend.Exited):
                    assert event.exit.code == 4
        assert {"Started", "Output", "Exited", "Eof"} <= {*facts} and facts.count("Exited") == 1 and facts.count("Eof") == 2
        head, left, tail = await p.view(head_lines=1, tail_lines=1, streams=["stdout"])
        assert (head.text, left.omitted, tail.text) == (b"1\n", "middle", b"1000\n")
        assert (left.start, left.end) == (head.end, tail.start)
        assert b"".join(x.text for x in await p.view(streams=["stderr"], strip=True)) == b"red\n"
        found = await p.grep("^99[89]$", before=1)
        assert [(x.text, x.context, x.line) for x in found if isinstance(x, tend.Match)] == [(b"997", True, 997), (b"998", False, 998), (b"999", False, 999)]
        with pytest.raises(tend.InvalidError):
            await p.grep("(")
        with pytest.raises(tend.InvalidError):
            await p.view(head_lines=1, head_bytes=1)


async def test_bytes_that_retention_freed_are_a_gap(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        p = await client.start("head -c 8000000 /dev/zero", retention={"limit": 1 << 20})
        await p.wait(eof=True)
        while (await p.refresh()).streams[0].base == 0:
            await sleep(0.05)
        with pytest.raises(tend.GapError) as gap:
            await whole(p.output())
        assert gap.value.start == 0 and 0 < gap.value.end < 8_000_000
        assert len(await whole(p.output(start=gap.value.end))) == 8_000_000 - gap.value.end


async def test_input_has_an_end(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        p = await client.start("true", stdin="pipe")
        await p.wait()
        with pytest.raises(tend.ExitedError):
            await p.write("x")
        q = await client.start(["sleep", "600"])
        with pytest.raises(tend.StdinClosedError):
            await q.write("x")
        r = await client.start(["sleep", "600"], stdin="pipe")
        with pytest.raises(TimeoutError):
            await r.write(bytes(8 << 20), timeout=0.3)
        for one in (q, r):
            await one.kill()


async def test_cut_connections_lose_and_double_no_byte(daemon: Daemon) -> None:
    """Each connection is cut after some of its bytes, in either direction."""
    data = os.urandom(3 << 20)
    with Cutting(daemon.url, 400_000) as proxy:
        async with await AsyncClient.connect(proxy.url, retry=tend.Retry(first=0.001, attempts=50)) as client:
            p = await client.start(["cat"], stdin="pipe")
            for at in range(0, len(data), 100_003):
                await p.write(data[at : at + 100_003])
            await p.close_stdin()
            assert await whole(p.output()) == data
            assert (await p.refresh()).stdin_accepted == len(data)
        assert proxy.cuts > 10


async def test_a_server_of_another_version(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.url) as client:
        for method in ("ProcessService/Teleport", "TimeService/Travel"):
            request = b"\xba\x3e\x03new"  # the field 999
            with pytest.raises(tend.UnsupportedError, match="tend upgrade"):
                await client._link.transport.unary(method, "HelloResponse", request, wait=30.0)
        said = await client._link.transport.unary("ProcessService/Hello", "HelloResponse", b"\xba\x3e\x03new", wait=30.0)
        assert said["version"] == client.server.version, "what a later client asks besides is passed over"


def tree(top: Path) -> list[tuple[str, int, object]]:
    """What is in a directory: modes, contents and targets."""
    return [(str(p.relative_to(top)), p.lstat().st_mode, os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else "") for p in sorted(top.rglob("*"))]


async def test_files_of_the_machine_and_directories(daemon: Daemon, tmp_path: Path) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        files = client.files
        path = tmp_path / "m" / "f"
        assert not await files.exists(str(path))
        await files.write(str(path), "of the machine")
        assert path.read_text() == "of the machine" and await files.exists(str(path))
        assert not await files.exists(str(path / "below"))
        with pytest.raises(tend.InvalidError):
            await files.exists("")

        local = tmp_path / "local"
        (local / "src" / "empty").mkdir(parents=True)
        (local / "src" / "run.sh").write_text("#!/bin/sh")
        (local / "src" / "run.sh").chmod(0o755)
        (local / ("long" * 50)).write_bytes(os.urandom(3_000_000))
        (local / "link").symlink_to("src/run.sh")
        box = await client.open_sandbox("py-dirs-" + tend.new_id(), isolation="none")
        for place, remote in ((files, str(tmp_path / "remote")), (box.files, "a/remote")):
            back = tmp_path / f"back-{place is files}"
            await place.upload_dir(local, remote)
            assert await place.download_dir(remote, back) == []
            assert tree(back) == tree(local) and len(tree(back)) == 5
        await box.destroy()

        remote_dir, back = tmp_path / "remote", tmp_path / "back-True"
        (remote_dir / "absolute").symlink_to("/etc/passwd")
        (remote_dir / "src" / "up").symlink_to("../..")
        (remote_dir / "tend-left-out.txt").write_text("a file of this name")
        (remote_dir / "src" / "run.sh").write_text("new")
        os.mkfifo(remote_dir / "fifo")
        left = await files.download_dir(str(remote_dir), back)
        assert len(left) == 3 and "absolute: a link to /etc/passwd" in left[0] and "src/up: a link" in left[1] and '/fifo"' in left[2]
        assert (back / "src" / "run.sh").read_text() == "new" and (back / "tend-left-out.txt").read_text() == "a file of this name"
        shutil.rmtree(back / "src")
        (tmp_path / "outside").mkdir()
        (back / "src").symlink_to(tmp_path / "outside")
        with pytest.raises(NotADirectoryError):
            await files.download_dir(str(remote_dir), back)
        assert not list((tmp_path / "outside").iterdir())

        with pytest.raises(tend.NotFoundError):
            await files.download_dir(str(tmp_path / "none"), tmp_path / "x")
        with pytest.raises(FileNotFoundError):
            await files.upload_dir(tmp_path / "none", str(tmp_path / "x"))
        with pytest.raises(tend.TendError, match="not a directory"):
            await files.upload_dir(local, str(path))


async def test_a_watch_of_files(daemon: Daemon, tmp_path: Path) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        files, top = client.files, tmp_path / "watched"
        with pytest.raises(tend.NotFoundError):
            await files.watch(str(top))
        top.mkdir()
        async with await files.watch(str(top), recursive=True) as watcher:

            async def until(kind: str, path: str) -> tend.FileEvent:
                while True:
                    event = await anext(watcher)
                    if (event.kind, event.path) == (kind, path):
                        return event

            await files.write(str(top / "a"), "x")
            await until("create", "a")
            await until("write", "a")
            (top / "new").mkdir()
            assert (await until("create", "new")).dir
            (top / "new" / "b").write_text("")
            await until("create", "new/b")
            (top / "a").rename(top / "c")
            await until("rename", "a")
            await until("create", "c")
            (top / "c").chmod(0o640)
            await until("chmod", "c")
            shutil.rmtree(top)
            await until("remove", ".")
            with pytest.raises(tend.NotFoundError, match="gone"):
                await anext(watcher)

        names = [tmp_path / (letter * 250) for letter in "ab"]
        for name in names:
            name.write_text("")
        async with await files.watch(str(tmp_path)) as watcher:
            for n in range(150_000):  # more than the connection and the server keep together
                names[n % 2].chmod(0o600)
            with pytest.raises(tend.LaggedError, match="faster than they were read"):
                async for _ in watcher:
                    pass
            with pytest.raises(tend.LaggedError):
                await anext(watcher)
        with pytest.raises(StopAsyncIteration):
            closed = await files.watch(str(tmp_path))
            await closed.aclose()
            await anext(closed)


async def test_a_port_of_a_sandbox(daemon: Daemon) -> None:
    # It echoes in upper case until the other side sends no more, and then says goodbye.
    program = """
import socket
s = socket.create_server(("127.0.0.1", 0))
print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(65536):
        c.sendall(data.upper())
    c.sendall(b"bye")
    c.close()
"""
    for url in (daemon.socket, daemon.url):
        async with await AsyncClient.connect(url) as client:
            box = await client.open_sandbox("py-port-" + tend.new_id(), isolation="none")
            server = await box.processes.start(["python3", "-c", program])
            port = int((await server.wait(match="[0-9]+")).match)
            async with await box.dial(port) as conn:
                await conn.write("hello")
                assert await conn.read() == b"HELLO"
                data = b"x" * 1_000_000
                await conn.write(data[:100_000])
                got = b""
                while len(got) < 100_000:
                    got += await conn.read()
                assert got == data[:100_000].upper()
                await conn.close_write()
                assert await conn.read() == b"bye" and await conn.read() == b""
            await server.kill()
            with pytest.raises(tend.TendError, match="start a program there that listens on it"):
                await box.dial(port)
            with pytest.raises(tend.InvalidError):
                await box.dial(0)
            await box.destroy()
            with pytest.raises(tend.NotFoundError):
                await box.dial(port)


async def test_signed_urls_of_files(daemon: Daemon) -> None:
    def ask(url: str, data: bytes | None = None) -> tuple[int, bytes]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/octet-stream"} if data else {})) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as err:
            with err:
                return err.code, b""

    async with await AsyncClient.connect(daemon.socket) as client:
        box = await client.open_sandbox("py-signed-" + tend.new_id(), isolation="none")
        path = (await box.files.stat(".")).path + "/a file"
        up = await box.upload_url(path)
        assert ask(up, b"by URL")[0] == 200 and await box.files.read(path) == b"by URL"
        down = await box.download_url(path)
        assert ask(down) == (200, b"by URL")
        for url in (up, down.replace("+file", "+other"), down.replace("username=", "username=root"), down + "9"):
            assert ask(url)[0] == 401
        assert ask(down, b"x")[0] == 401
        with pytest.raises(tend.InvalidError, match="path"):
            await box.download_url("a")
        with pytest.raises(tend.InvalidError, match="expires"):
            await box.upload_url(path, expires=1e9)
        await box.destroy()


async def test_git(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        box = await client.open_sandbox("py-git-" + tend.new_id(), isolation="none")
        place = (await box.files.stat(".")).path
        repo, other, theirs = box.git("a repo"), box.git("other"), place + "/theirs.git"
        await repo.init()
        await repo.run("init", "--quiet", "--bare", "--initial-branch=main", theirs)
        await repo.run("remote", "add", "origin", theirs)
        await box.files.write("a repo/one file", b"1")
        await box.files.write("a repo/-two\nlines", b"2")
        state = await repo.status()
        assert (state.branch, state.upstream, {f.path: f.staged + f.unstaged for f in state.files}) == ("main", "", {"one file": "??", "-two\nlines": "??"})
        await repo.add()
        first = await repo.commit("-m is no flag", author="A Person", email="a@example.org")
        assert await repo.run("log", "-1", "--format=%H %an %ae %s") == f"{first} A Person a@example.org -m is no flag\n"
        await repo.push()
        await other.clone(theirs, branch="main")
        await repo.checkout("next", create=True)
        await repo.run("mv", "one file", "moved")
        assert (await repo.status()).files == (tend.GitFile("moved", "R", ".", "one file"),)
        await repo.commit("second", author="A Person", email="a@example.org")
        assert await repo.branches() == ["main", "next"]
        await repo.checkout("main")
        await repo.run("merge", "--quiet", "next")
        state = await repo.status()
        assert (state.upstream, state.ahead, state.behind, state.files) == ("origin/main", 1, 0, ())
        await repo.push(branch="main")
        await other.pull()
        assert await box.files.read("other/moved") == b"1"
        with pytest.raises(tend.CommandError, match="invalid reference: nowhere") as failed:
            await repo.checkout("nowhere")
        assert failed.value.result.exit_code == 128
        with pytest.raises(tend.InvalidError, match="url"):
            await repo.clone("https://me:secret@example.org/r")
        with pytest.raises(tend.InvalidError, match="password"):
            await repo.pull(username="a", password="b\nc")
        with pytest.raises(tend.InvalidError, match="remote"):
            await repo.push(remote="https://me:sec%ret@example.org/r")
        for branch in ("--discard-changes", "+main", ":main", "main:other"):
            for asked in (lambda b: repo.clone("x", branch=b), lambda b: repo.checkout(b), lambda b: repo.pull(branch=b), lambda b: repo.push(branch=b)):
                with pytest.raises(tend.InvalidError, match="branch"):
                    await asked(branch)
        await box.destroy()


async def test_passwords_of_git(daemon: Daemon) -> None:
    seen: list[str] = []

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            sent = self.headers.get("Authorization", "")
            seen.append(base64.b64decode(sent.removeprefix("Basic ")).decode())
            self.send_response(404 if sent else 401)
            if not sent:
                self.send_header("WWW-Authenticate", 'Basic realm="x"')
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with await AsyncClient.connect(daemon.socket) as client:
            box = await client.open_sandbox("py-git-" + tend.new_id(), isolation="none")
            with pytest.raises(tend.CommandError, match="not found"):
                await box.git("repo").clone(f"http://127.0.0.1:{server.server_port}/r.git", username="me", password="p'\"$(x) %s\\n", depth=1)
            assert seen == ["", "me:p'\"$(x) %s\\n"]
            await box.destroy()
        server.shutdown()


async def test_sandboxes_and_files(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        name = "py-" + tend.new_id()
        box = await client.open_sandbox(name, isolation="none", env={"A": "1"}, metadata={"of": "me"}, timeout=3600)
        assert (await client.open_sandbox(name)).id == box.id and box.info.deadline is not None
        with pytest.raises(tend.ExistsError):
            await client.create_sandbox(name)
        for bad in ({"isolatoin": "full"}, {"isolation": "Full"}, {"size": {"ram": 1}}, {"shares": [{"source": 1}]}):
            with pytest.raises(tend.InvalidError):
                await client.create_sandbox(**bad)  # type: ignore[arg-type]
        assert [i.name for i in await client.sandboxes(states=["ready"], metadata={"of": "me"}) if i.id == box.id] == [name]
        assert (await box.processes.run("echo $A")).text == "1\n"
        assert (await box.update(metadata={"more": "x"})).metadata["more"] == "x"

        data = os.urandom(700_000)
        entry = await box.files.write("d/f", data)
        assert (entry.size, entry.type) == (len(data), "file")
        assert await box.files.read("d/f") == data
        assert await whole(box.files.stream("d/f", start=699_990)) == data[-10:]
        await box.files.write("d/f", io.BytesIO(b"short"))
        assert await box.files.read("d/f") == b"short"
        await box.files.mkdir("e")
        with pytest.raises(tend.ExistsError):
            await box.files.mkdir("e")
        await box.files.move("d/f", "e/g")
        assert [e.name for e in await box.files.list(".", depth=2)] == ["d", "e", "g"]
        assert (await box.files.stat("e/g")).size == 5
        await box.files.remove("e")
        await box.files.remove("e")
        with pytest.raises(tend.NotFoundError):
            await box.files.read("e/g")

        await box.stop()
        with pytest.raises(tend.SandboxStoppedError):
            await box.processes.start("true")
        await box.start()
        await box.destroy()
        await box.destroy()
        with pytest.raises(tend.NotFoundError):
            await box.refresh()


async def test_services(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        with pytest.raises(tend.InvalidError):
            await client.services.apply("services: {web: {comand: x}}")
        await client.services.apply("services:\n  web:\n    command: exec sleep 600\n")
        await client.services.start("web")
        async for services in client.services.watch():
            (web,) = services
            if web.phase == "running":
                break
        assert web.up and web.pid > 0 and (await client.get(id=web.process)).pid == web.pid
        with pytest.raises(tend.NotFoundError):
            await client.services.restart("nosuch")
        await client.services.stop()
        async for services in client.services.watch():
            if services[0].phase == "idle":
                break
        assert [(s.name, s.adopted) for s in await client.services.list()] == [("web", False)]


async def test_what_is_used_and_was(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        await client.services.apply("services:\n  busy:\n    command: while :; do :; done\n")
        await client.services.start("busy")
        while True:  # its first point comes with the second look at it
            machine, busy = await client.usage("machine", "busy")
            if busy.points and busy.points[0].cpu > 0:
                break
        (now,), (point,) = machine.points, busy.points
        assert (machine.kind, machine.id, busy.kind, busy.name) == ("machine", "", "service", "busy")
        assert machine.cpus >= 1 and machine.memory_total > now.memory > 1 << 20
        assert now.received is not None and now.sent is not None and now.received >= 0
        assert point.cpu <= machine.cpus + 1 and point.memory > 0 and (point.received, point.sent) == (None, None)
        assert "busy" in [u.name for u in await client.usage()]
        (past,) = await client.usage_history(3600, "machine")
        assert (past.kind, past.cpus) == ("machine", 0)
        with pytest.raises(tend.NotFoundError):
            await client.usage_history(3600, "nobody")
        for since in (0, 86_401):
            with pytest.raises(tend.InvalidError, match="since"):
                await client.usage_history(since)
        await _down(client)


async def test_a_service_is_a_process_that_ran_already(daemon: Daemon, tmp_path: Path) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        with subprocess.Popen(["sleep", "600"]) as theirs:
            pid_file = tmp_path / "web.pid"
            pid_file.write_text(str(theirs.pid))
            await client.services.apply(f"services: {{web: {{command: exec sleep 600, adopt: {{pid_file: {pid_file}}}}}}}\n")
            await client.services.start("web")
            async for services in client.services.watch():
                (web,) = services
                if web.phase == "running":
                    break
            assert (web.pid, web.adopted, web.adopted_pid_file, web.adopted_port) == (theirs.pid, True, str(pid_file), 0)
            await _down(client)


async def _down(client: AsyncClient) -> None:
    """Ends the services, and returns when they have: others take the daemon next."""
    await client.services.stop()
    while any(s.phase != "idle" for s in await client.services.list()):
        await sleep(0.1)


async def test_a_service_is_healed(daemon: Daemon, tmp_path: Path) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        with pytest.raises(tend.NotFoundError):
            await client.services.episode("nosuch")
        await client.services.apply("services:\n  web:\n    command: exec sleep 600\nhealer: {}\n", dir=str(tmp_path))
        await client.services.start("web")
        async for services in client.services.watch():
            if services[0].phase == "running":
                break
        id_ = ""
        while not id_:
            try:
                id_ = await client.services.heal("web", dry_run=True)
            except tend.RunningError:  # the one before, of the other client
                await sleep(0.1)
        while not (await client.services.episode(id_)).over:
            await sleep(0.1)
        assert (await client.services.list())[0].healing == "running"
        found = await client.services.episode()
        assert (found.id, found.service, found.dry_run, found.doing) == (id_, "web", True, "over")
        assert [x.kind for x in found.signals] == ["asked"] and found.opened is not None and not found.tries and found.workers == 1
        assert (await client.services.episodes("web"))[0].id == id_
        assert await client.services.episodes("other") == []
        await client.services.cancel_heal(id_)  # it is over
        with pytest.raises(tend.NotFoundError):
            await client.services.cancel_heal("nosuch")
        with pytest.raises(tend.UnsupportedError):
            await client.services.roll_back(id_)  # it has changed nothing
        await _down(client)


async def test_a_repair_is_taken_back(daemon: Daemon, tmp_path: Path) -> None:
    book, part = tmp_path / ".tend/playbooks/part.yaml", tmp_path / "part"
    book.parent.mkdir(parents=True)
    book.write_text("why: it is bad\nwhen: {log: it is bad}\ncommit: true\ndo:\n  - run: [sh, -c, echo good > part]\n")
    part.write_text("bad\n")
    async with await AsyncClient.connect(daemon.socket) as client:
        web = "grep -q good part || { echo it is bad; exit 1; }; exec sleep 600"
        await client.services.apply(f"services: {{web: {{command: '{web}', restart: {{delay: 50ms}}}}}}\nhealer: {{hold: 100ms}}\n", dir=str(tmp_path))
        await client.services.start("web")
        while not (all_ := await client.services.episodes("web")) or not all_[0].can_roll_back:
            await sleep(0.1)
        repair = all_[0].id
        part.write_text("good, and mine\n")
        with pytest.raises(tend.TendError) as refused:
            await client.services.roll_back(repair)
        assert refused.value.code == "changed" and "part: it has changed since" in str(refused.value)
        part.write_text("good\n")
        back = await client.services.roll_back(repair)
        while not (found := await client.services.episode(back)).over:
            await sleep(0.1)
        assert (found.status, found.takes_back, found.tries[0].paths, part.read_text()) == ("ready", repair, ("part",), "bad\n")
        while (await client.services.episode(repair)).taken_back != back:
            await sleep(0.1)
        await _down(client)


async def test_what_is_asked_for_at_the_end_of_a_process(daemon: Daemon, tmp_path: Path) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        file, id_ = tmp_path / "ended", tend.new_id()
        p = await client.start("exit 3", id=id_, on_exit=f'echo "$TEND_EXIT_ID $TEND_EXIT_STATUS" > {file}.new && mv {file}.new {file}', labels={"a": "b"})
        assert (await client.start("exit 3", id=id_, on_exit=p.info.spec.labels["tend.on-exit"], labels={"a": "b"})).pid == p.pid
        while not file.exists():
            await sleep(0.1)
        assert file.read_text() == f"{id_} 3\n"
        while (await p.refresh()).pinned:  # nobody has asked for that
            await sleep(0.1)
        box = await client.open_sandbox("exits-" + tend.new_id(), isolation="none")
        for field, call in (
            ("on_exit_url", lambda: client.start("true", on_exit_url="ftp://x")),
            ("on_exit", lambda: client.run("true", on_exit="true")),
            ("on_exit", lambda: box.processes.start("true", on_exit_url="http://x/")),
        ):
            with pytest.raises(tend.InvalidError) as wrong:
                await call()
            assert wrong.value.field == field
        await box.destroy()


async def test_what_happens_to_all_processes(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client, await AsyncClient.connect(daemon.url) as other:
        async with await client.watch() as watcher:
            p = await other.start("exit 4")
            await p.wait(tree_gone=True)
            await p.remove()
            seen: list[tend.ProcessEvent] = []
            async for event in watcher:
                if event.id == p.id:
                    seen.append(event)
                    if isinstance(event.event, tend.Removed):
                        break
        started, exited, gone, _ = (e.event for e in seen)
        assert isinstance(started, tend.Started) and started.pid == p.pid
        assert isinstance(exited, tend.Exited) and exited.exit.code == 4 and isinstance(gone, tend.TreeGone)
        with pytest.raises(tend.LaggedError):
            await anext(watcher)


async def test_a_watcher_says_that_it_may_have_missed_something(daemon: Daemon) -> None:
    async with await AsyncClient.connect(daemon.socket) as client:
        watcher = await client.watch()
        daemon.kill("server")
        with pytest.raises(tend.LaggedError, match="watch again"):
            async for _ in watcher:
                pass
        async with await client.watch() as again:
            p = await client.start("true")
            while (await anext(again)).id != p.id:
                pass


async def test_templates_are_built_from_local_files(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "app/sub").mkdir(parents=True)
    (tmp_path / "app/sub/f").write_bytes(b"x" * 700_000)
    (tmp_path / "app/run").write_text("#!/bin/sh\necho it runs\n")
    (tmp_path / "app/run").chmod(0o755)
    (tmp_path / "app/link").symlink_to("sub/f")
    name = "py-" + tend.new_id()
    steps = [tend.TemplateStep.copy(tmp_path / "app", "/srv/app"), tend.TemplateStep.workdir("/srv/app"), tend.TemplateStep.env({"WHO": "me"}), tend.TemplateStep.run('test "$WHO" = me && wc -c < link > size')]
    async with await AsyncClient.connect(daemon.socket) as client:
        log: list[tend.BuildLog] = []
        built = await client.templates.build(name, steps, tags=["one", "two"], log=log.append)
        assert (built.name, {*built.tags}) == (name, {"one", "two"}) and {x.step for x in log} >= {"1", "4"}
        assert [{*x.tags} for x in await client.templates.list() if x.name == name] == [{"one", "two"}]
        box = await client.open_sandbox(name, template=f"{name}:one", isolation="full")
        assert (await box.processes.run("./run; cat size; echo $WHO")).text == "it runs\n700000\nme\n"
        assert (await box.access()).token
        await box.destroy()
        with pytest.raises(tend.BuildError, match="step 1 failed") as failed:
            await client.templates.build(name, [tend.TemplateStep.run("exit 3")])
        assert failed.value.step == "1"
        for wrong in ([tend.TemplateStep.copy(tmp_path / "nothing", "/")], [tend.TemplateStep("COPY", ("a", "b"))], [tend.TemplateStep("RUN", ("a",), b"")], ["RUN a"]):
            with pytest.raises(tend.InvalidError, match=r"steps\[0\]"):
                await client.templates.build(name, wrong)  # type: ignore[arg-type]
        await client.templates.delete(name)
        with pytest.raises(tend.NotFoundError):
            await client.templates.delete(name)


async def test_images_are_pulled_and_sandboxes_created_from_them(daemon: Daemon) -> None:
    registry = Registry()
    async with await AsyncClient.connect(daemon.socket) as client:
        said: list[str] = []
        seen: list[tuple[int, int]] = []
        image = await client.images.pull(registry.image, say=said.append, progress=lambda done, total: seen.append((done, total)))
        assert (image.names, image.user, image.dir, image.entrypoint, image.cmd) == ((registry.image,), "33:0", "/srv", ("/srv/run",), ("x",))
        assert image.env["A"] == "b" and said and seen[-1][0] == seen[-1][1] > 0
        assert [x.id for x in await client.images.list()] == [image.id] and (await client.images.get(registry.image)).id == image.id
        box = await client.create_sandbox(image=registry.image, isolation="full")
        assert box.info.image == image.id and await box.files.read("/srv/hello") == registry.text
        with tarfile.open(fileobj=io.BytesIO(await whole(client.images.export(registry.image)))) as archive:
            listed = archive.extractfile("manifest.json")
            assert listed is not None and json.load(listed)[0]["RepoTags"] == [registry.image]
        await client.images.remove(registry.image)
        assert await client.images.prune(all=True) == [] and await client.images.list() == []
        assert await box.files.read("/srv/hello") == registry.text, "a sandbox keeps its files"
        await box.destroy()
        with pytest.raises(tend.NotFoundError):
            await client.images.get("nothing")
        with pytest.raises(tend.NotFoundError):
            await anext(client.images.export("nothing"))
        with pytest.raises(tend.NotFoundError):
            await client.images.pull(registry.image + "0")
    registry.shutdown()
    registry.server_close()


async def test_a_closed_client_says_so(daemon: Daemon) -> None:
    client = await AsyncClient.connect(daemon.socket)
    process: AsyncProcess = await client.start(["sleep", "600"])
    await client.aclose()
    with pytest.raises(tend.ClosedError):
        await process.refresh()
    async with await AsyncClient.connect(daemon.socket) as other:
        await other.attach(process.info).kill()
