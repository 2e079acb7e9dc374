"""The E2B client of the OpenAI Agents SDK, with its defaults. No model is called: what an agent's tools would do is called directly."""

import io
import json
import os
import re
import time
import urllib.error
import urllib.request
from pathlib import Path

import anyio
import pytest
from agents.extensions.sandbox.e2b import E2BSandboxClient, E2BSandboxClientOptions
from agents.sandbox import Dir, ExecTimeoutError, ExposedPortUnavailableError, LocalSnapshotSpec, Manifest, WorkspaceReadNotFoundError
from agents.sandbox.entries import File
from agents.sandbox.files import EntryKind
from e2b import AsyncSandbox, NotFoundException

pytestmark = pytest.mark.anyio
PATIENCE = 120  # seconds; it only ends tests that fail


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
async def sessions():
    """Creates sessions, and ends what a test left."""
    client, made = E2BSandboxClient(), []

    async def create(manifest=None, snapshot=None, **options):
        session = await client.create(
            manifest=manifest, snapshot=snapshot, options=E2BSandboxClientOptions(sandbox_type="e2b", **options)
        )
        made.append(session)
        await session.start()
        return session

    yield create
    for session in made:
        await AsyncSandbox.kill(session.state.sandbox_id)


@pytest.fixture
async def session(sessions):
    return await sessions()


async def read(session, path):
    return (await session.read(Path(path))).read()


async def said(session, command):
    """What a command that must succeed prints."""
    result = await session.exec(command)
    assert result.exit_code == 0, result
    return result.stdout.decode()


async def gone(sandbox):
    with pytest.raises(NotFoundException):
        await AsyncSandbox.get_info(sandbox)


async def test_commands_run_in_the_default_workspace(session):
    assert await session.running()
    result = await session.exec("pwd && id -un && echo problem >&2 && exit 3")
    assert (result.exit_code, result.stdout, result.stderr) == (3, b"/workspace\nuser\n", b"problem\n")
    assert await said(session, "stat -c '%U:%G %a %n' /workspace") == "user:user 755 /workspace\n"


async def test_arguments_users_and_codes(session):
    result = await session.exec("printf", "<%s>", " a $b", "`c`", shell=False)
    assert (result.exit_code, result.stdout) == (0, b"< a $b><`c`>")
    assert (await session.exec("id -un", user="root")).stdout == b"root\n"
    for code in (0, 1, 127, 255):
        assert (await session.exec(f"exit {code}")).exit_code == code
    assert (await session.exec("kill -9 $$")).exit_code in (137, -1)  # the SDK has -1 for what no shell translates


async def test_a_command_that_takes_too_long(session):
    with pytest.raises(ExecTimeoutError):
        await session.exec("sleep 3600", timeout=1)
    assert await said(session, "echo usable") == "usable\n"


async def test_files_written_and_read(session):
    data = bytes(range(256)) * 4096
    await session.write(Path("a.bin"), io.BytesIO(data))
    assert await read(session, "a.bin") == data
    await session.write(Path("a.bin"), io.BytesIO(b"shorter"))
    assert await read(session, "a.bin") == b"shorter"
    assert await session.read_bounded(Path("a.bin"), max_bytes=100) == b"shorter"
    await session.write(Path("deep/er/b.txt"), io.StringIO("text"))
    assert await read(session, "/workspace/deep/er/b.txt") == b"text"
    assert (
        await said(session, "stat -c '%U:%G %a %n' a.bin deep deep/er deep/er/b.txt")
        == "user:user 644 a.bin\nuser:user 755 deep\nuser:user 755 deep/er\nuser:user 644 deep/er/b.txt\n"
    )
    with pytest.raises(WorkspaceReadNotFoundError):
        await session.read(Path("missing"))


async def test_directories(session):
    await session.mkdir("one/two", parents=True)
    await session.write(Path("one/file"), io.BytesIO(b"12345"))
    found = {Path(entry.path).name: entry for entry in await session.ls("one")}
    assert (found["file"].kind, found["file"].size, found["file"].owner) == (EntryKind.FILE, 5, "user")
    assert found["two"].is_dir()
    await session.mv("one/file", "one/two/moved")
    assert await read(session, "one/two/moved") == b"12345"
    await session.rm("one", recursive=True)
    assert "one" not in {Path(entry.path).name for entry in await session.ls(".")}


async def test_a_manifest_makes_what_it_names(sessions):
    manifest = Manifest(
        entries={
            "notes.md": File(content=b"hello"),
            "src": Dir(children={"main.py": File(content=b"print(6 * 7)\n")}),
        },
        environment={"value": {"FROM_MANIFEST": "yes"}},
    )
    session = await sessions(manifest, envs={"FROM_OPTIONS": "too"})
    assert await read(session, "notes.md") == b"hello"
    assert await said(session, "python3 src/main.py; echo $FROM_MANIFEST $FROM_OPTIONS") == "42\nyes too\n"


async def test_a_workspace_anywhere(sessions):
    session = await sessions(Manifest(root="/srv/deep/er"))
    assert await said(session, "pwd; stat -c '%U %a' /srv/deep /srv/deep/er; touch mine") == "/srv/deep/er\nuser 755\nuser 755\n"
    await session.write(Path("f"), io.BytesIO(b"1"))
    assert await said(session, "ls") == "f\nmine\n"


async def until(session, process, ok, output=b""):
    """Reads a started command on until ok(all output, exit code)."""
    end, code = time.monotonic() + PATIENCE, None
    while not ok(output, code):
        assert code is None and time.monotonic() < end, (output, code)
        update = await session.pty_write_stdin(session_id=process, chars="", yield_time_s=0.25)
        output, code = output + update.output, update.exit_code
    return output


async def test_a_started_command_without_a_terminal(session):
    update = await session.pty_exec_start("echo first; sleep 2; echo late; exit 3", yield_time_s=0.25)
    if update.exit_code is None:
        await until(session, update.process_id, lambda out, code: code == 3 and (update.output + out) == b"first\nlate\n")
    else:  # the machine was busy
        assert (update.exit_code, update.output) == (3, b"first\nlate\n")


async def test_a_terminal(session):
    update = await session.pty_exec_start("cat", shell=False, tty=True, yield_time_s=0.25)
    assert update.exit_code is None
    process, output = update.process_id, update.output
    output += (await session.pty_write_stdin(session_id=process, chars="ping\n", yield_time_s=0.25)).output
    await until(session, process, lambda out, code: out.count(b"ping") >= 2, output)  # the echo, and cat's
    # Ctrl-C ends the command, not the shell in which it runs: it has job control.
    output = (await session.pty_write_stdin(session_id=process, chars="\x03", yield_time_s=0.25)).output
    ask = 'echo "group:$(ps -o tpgid= -o sid= -p $$ | tr -s " ")" size:$(stty size) in:$PWD\n'
    output += (await session.pty_write_stdin(session_id=process, chars=ask, yield_time_s=0.25)).output
    pattern = re.compile(rb"group: ?(\d+) (\d+) size:24 80 in:/workspace")
    output = await until(session, process, lambda out, code: pattern.search(out), output)
    leader = pattern.search(output).group(2).decode()
    assert await said(session, f"ps -o pid=,pgid=,sid= -p {leader} | tr -s ' ' | sed 's/^ //'") == f"{leader} {leader} {leader}\n"
    await session.pty_write_stdin(session_id=process, chars="exit 5\n", yield_time_s=0.25)
    await session.pty_terminate_all()


async def test_terminals_are_ended(session):
    for tty in (True, False):
        await session.pty_exec_start("echo $$ >>pids; sleep 3600", tty=tty, yield_time_s=0.25)
    with anyio.fail_after(PATIENCE):
        while len(pids := (await session.exec("cat pids")).stdout.split()) < 2:
            await anyio.sleep(0.05)
        await session.pty_terminate_all()
        for pid in pids:
            while (await session.exec(f"kill -0 {pid.decode()}")).exit_code == 0:
                await anyio.sleep(0.05)


async def test_an_exposed_port(sessions):
    session = await sessions(exposed_ports=(8000,))
    await session.write(Path("www/index.html"), io.BytesIO(b"served"))
    await session.pty_exec_start("exec python -m http.server 8000 --directory www", yield_time_s=0.25)
    endpoint = await session.resolve_exposed_port(8000)
    # The name leads to the server that made it. It is asked for by the server's address, as names need a resolver.
    url = os.environ["TEND_E2B_URL"]
    with anyio.fail_after(PATIENCE):
        while True:
            request = urllib.request.Request(url, headers={"Host": f"{endpoint.host}:{endpoint.port}"})
            try:
                with urllib.request.urlopen(request) as answer:
                    assert answer.read() == b"served"
                    break
            except urllib.error.HTTPError as answer:
                assert answer.code == 502 and b"port is not open" in answer.read()
            await anyio.sleep(0.05)
    with pytest.raises(ExposedPortUnavailableError):
        await session.resolve_exposed_port(8001)


async def resume(session):
    """What another program does with the state that this one stored."""
    stored = json.dumps(E2BSandboxClient().serialize_session_state(session.state))
    client = E2BSandboxClient()
    resumed = await client.resume(client.deserialize_session_state(json.loads(stored)))
    await resumed.start()
    return resumed


async def test_resume_finds_the_running_sandbox(session):
    await session.write(Path("kept"), io.BytesIO(b"1"))
    await said(session, "(sleep 3600 >/dev/null 2>&1 & echo $! >pid)")
    resumed = await resume(session)
    assert resumed.state.sandbox_id == session.state.sandbox_id
    assert await read(resumed, "kept") == b"1"
    await said(resumed, "kill -0 $(cat pid) && pwd")


async def test_resume_of_a_paused_sandbox(sessions):
    session = await sessions(pause_on_exit=True)
    await session.write(Path("kept"), io.BytesIO(b"1"))
    await said(session, "(sleep 3600 >/dev/null 2>&1 & echo $! >pid)")
    await session.aclose()
    assert (await AsyncSandbox.get_info(session.state.sandbox_id)).state.value == "paused"
    resumed = await resume(session)
    assert resumed.state.sandbox_id == session.state.sandbox_id
    assert await read(resumed, "kept") == b"1"
    await said(resumed, "kill -0 $(cat pid)")


@pytest.mark.parametrize("persistence", ["tar", "snapshot"])
async def test_resume_from_a_snapshot(sessions, tmp_path, persistence):
    session = await sessions(snapshot=LocalSnapshotSpec(base_path=tmp_path), workspace_persistence=persistence)
    await session.write(Path("src/run.sh"), io.BytesIO(b"#!/bin/sh\necho ran\n"))
    await said(session, "chmod 750 src/run.sh && ln -s src/run.sh link")
    await session.aclose()
    await gone(session.state.sandbox_id)
    resumed = await resume(session)
    try:
        assert resumed.state.sandbox_id != session.state.sandbox_id
        assert await said(resumed, "./link; stat -c '%U %a %n' src/run.sh; readlink link") == "ran\nuser 750 src/run.sh\nsrc/run.sh\n"
        await resumed.write(Path("src/more"), io.BytesIO(b"2"))
        assert await said(resumed, "cat src/more; rm src/more src/run.sh; ls src") == "2"
    finally:
        await AsyncSandbox.kill(resumed.state.sandbox_id)


async def test_delete(sessions):
    session = await sessions()
    client = E2BSandboxClient()
    await session.aclose()
    await client.delete(session)
    await gone(session.state.sandbox_id)
    assert not await session.running()
