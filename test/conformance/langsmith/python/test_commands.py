"""Commands over the WebSocket, with the unmodified SDK of PyPI."""

import getpass
import hashlib
import os
import time
import uuid

import pytest
from conftest import ENDPOINT, drain, until
from langsmith.sandbox import (
    CommandTimeoutError,
    SandboxAuthenticationError,
    SandboxClient,
    SandboxClientError,
    SandboxConnectionError,
    SandboxOperationError,
)


def alive(sandbox, pid):
    return sandbox.run(f"[ -d /proc/{pid} ] && ! grep -q '^State:.Z' /proc/{pid}/status").exit_code == 0


def test_output_and_exit_code(sandbox):
    r = sandbox.run("echo out; echo err >&2; exit 3")
    assert (r.stdout, r.stderr, r.exit_code) == ("out\n", "err\n", 3)


def test_a_wrong_key_is_refused():
    with pytest.raises(SandboxAuthenticationError):
        SandboxClient(api_endpoint=ENDPOINT, api_key="wrong").list_sandboxes()


def test_env_cwd_and_run_config(sandbox):
    assert sandbox.run('echo "$A $PWD"', env={"A": "b"}, cwd="/").stdout == "b /\n"
    r = sandbox.run('echo "$A $PWD"', run_config={"work_dir": "/", "env_vars": {"A": "c"}})
    assert r.stdout == "c /\n"


def test_a_command_of_another_user_works_in_the_box(sandbox):
    # Only root's daemon can become someone else.
    user = "nobody" if os.geteuid() == 0 else getpass.getuser()
    sandbox.write("theirs.txt", b"a file of the box")
    got = sandbox.run("id -un; pwd; cat theirs.txt; echo mine > mine.txt", run_config={"user": user})
    assert got.exit_code == 0 and got.stdout == f"{user}\n{sandbox.run('pwd').stdout}a file of the box", got
    assert sandbox.read("mine.txt") == b"mine\n"
    with pytest.raises(SandboxOperationError, match="no-such-user"):
        sandbox.run("id", run_config={"user": "no-such-user"})


def test_what_create_takes_is_done_or_named(client):
    name = f"made-{uuid.uuid4().hex[:8]}"
    box = client.create_sandbox(name=name, labels={"a": "b"}, persistent=False, preserve_memory_on_stop=False, restore_memory=False)
    try:
        assert (box.labels, box.preserve_memory_on_stop) == ({"a": "b"}, False)
        box.write("gone.txt", b"x")
        client.stop_sandbox(name)
        assert box.run("ls -A").stdout == ""
        with pytest.raises(SandboxClientError, match="name"):
            client.create_sandbox(name=box.id)
    finally:
        box.delete()
    for field, value in {
        "snapshot": "s",
        "restore_memory": True,
        "proxy_config": {"rules": [{"name": "r"}]},
        "access_delegation": {"mode": "EXPLICIT", "permissions": ["p"]},
    }.items():
        with pytest.raises(SandboxClientError, match=field):
            client.create_sandbox(**{field: value})
    with pytest.raises(ValueError):  # by the SDK itself
        client.create_sandbox(snapshot="a", snapshot_name="b")


def test_a_box_that_keeps_its_memory_goes_on_after_a_stop(client):
    box = client.create_sandbox(preserve_memory_on_stop=True)
    try:
        counter = box.run("while sleep 0.01; do echo $((n += 1)) > count; done", wait=False)
        until("the first number", lambda: box.run("cat count || true").stdout.strip())
        client.stop_sandbox(box.name)
        assert client.get_sandbox(box.name).status == "stopped"
        assert alive(box, counter.pid)  # to run wakes it
        before = int(box.run("cat count").stdout or 0)
        until("a higher number", lambda: int(box.run("cat count").stdout or 0) > before)
        counter.kill()
    finally:
        box.delete()


def test_a_finished_command_is_forgotten_at_its_time(sandbox):
    kept, brief = (sandbox.run("echo ok", wait=False, ttl_seconds=ttl) for ttl in (-1, 1))
    assert kept.result.stdout == brief.result.stdout == "ok\n"
    time.sleep(1.1)  # it is over at the first look after that
    with pytest.raises(SandboxOperationError, match="Command not found"):
        list(sandbox.reconnect(brief.command_id))
    assert sandbox.reconnect(kept.command_id).result.stdout == "ok\n"


def test_an_offset_beyond_the_end_gives_the_exit_alone(sandbox):
    first = sandbox.run("printf 0123; exit 3", wait=False)
    assert first.result.exit_code == 3
    got = sandbox.reconnect(first.command_id, stdout_offset=5, stderr_offset=1 << 40).result
    assert (got.stdout, got.stderr, got.exit_code) == ("", "", 3)


def test_the_handle_streams_with_offsets(sandbox):
    handle = sandbox.run("for i in 1 2 3; do echo ä$i; echo e$i >&2; sleep 0.1; done; exit 4", wait=False)
    assert handle.command_id and handle.pid > 0
    assert drain(handle) == ("ä1\nä2\nä3\n", "e1\ne2\ne3\n")
    assert handle.result.exit_code == 4
    assert handle.last_stdout_offset == len("ä1\nä2\nä3\n".encode())


def test_callbacks(sandbox):
    out = []
    r = sandbox.run("echo a; sleep 0.1; echo b", on_stdout=out.append)
    assert "".join(out) == r.stdout == "a\nb\n"


def test_large_output_fits_the_library_s_frames(sandbox):
    # websockets refuses a message above 1 MiB, and NUL bytes grow sixfold.
    r = sandbox.run("head -c 8388608 /dev/zero; seq -w 1 1000000", timeout=100)
    want = "\0" * 8388608 + "".join(f"{i:07}\n" for i in range(1, 1000001))
    assert hashlib.sha256(r.stdout.encode()).digest() == hashlib.sha256(want.encode()).digest()


def test_binary_output_resumes_at_each_offset(sandbox):
    handle = sandbox.run("for i in $(seq 300); do head -c 997 /bin/bash; printf '\\xe2\\x82'; done", wait=False)
    whole, _ = drain(handle)
    raw = whole.encode()
    for at in range(0, len(whole), len(whole) // 9):
        offset = len(whole[:at].encode())
        again, _ = drain(sandbox.reconnect(handle.command_id, stdout_offset=offset), stdout=offset)
        assert again.encode() == raw[offset:]


def test_stdin(sandbox):
    handle = sandbox.run("cat", wait=False, close_input=False)
    handle.send_input("one\n")
    handle.send_input("zwölf ☕")
    handle.close_input()
    assert handle.result.stdout == "one\nzwölf ☕"
    assert sandbox.run("cat; echo end").stdout == "end\n"


def test_kill_sends_and_closes_in_one_breath(sandbox):
    handle = sandbox.run("sleep 300 & echo $!; wait", wait=False)
    child = next(iter(handle)).data.strip()
    handle.kill()
    try:
        assert handle.result.exit_code == 137  # the answer came before the SDK closed
    except SandboxConnectionError:
        pass  # as the SDK has it; the command is dead all the same
    until("the tree is dead", lambda: not alive(sandbox, handle.pid) and not alive(sandbox, child))
    assert sandbox.reconnect(handle.command_id).result.exit_code == 137


def test_timeout(sandbox):
    begun = time.monotonic()
    with pytest.raises(CommandTimeoutError):
        sandbox.run("sleep 300", timeout=1)
    assert time.monotonic() - begun >= 0.9


def test_unknown_command(sandbox):
    with pytest.raises(SandboxOperationError) as e:
        sandbox.reconnect("nobody").result
    assert e.value.error_type == "CommandNotFound"


def test_bad_shell_and_directory(sandbox):
    for options in ({"shell": "/no/such/shell"}, {"cwd": "/no/such/dir"}):
        with pytest.raises(SandboxOperationError):
            sandbox.run("true", **options)


def test_kill_on_disconnect(sandbox):
    handle = sandbox.run("echo up; sleep 300", wait=False, kill_on_disconnect=True)
    assert next(iter(handle)).data == "up\n"
    handle._control._ws.close()  # what the end of the client's process does
    until("it is dead", lambda: not alive(sandbox, handle.pid))


def test_pty(sandbox):
    handle = sandbox.run("stty size; cat; echo bye", wait=False, pty=True)
    handle.send_input("typed\n\x04")
    out, err = drain(handle)
    # The terminal echoes what is typed, before or after the first command.
    assert "24 80\r\n" in out and out.endswith("typed\r\nbye\r\n") and err == ""


async def test_async(async_sandbox):
    r = await async_sandbox.run("echo out; exit 5")
    assert (r.stdout, r.exit_code) == ("out\n", 5)
    handle = await async_sandbox.run("echo one; sleep 0.2; echo two", wait=False)
    assert "".join([chunk.data async for chunk in handle]) == "one\ntwo\n"
    handle = await async_sandbox.run("cat", wait=False, close_input=False)
    await handle.send_input("x")
    await handle.close_input()
    assert (await handle.result).stdout == "x"


def test_a_box_lives_as_the_sdk_expects(client):
    name = f"py-{uuid.uuid4().hex[:8]}"
    box = client.create_sandbox(name=name)
    try:
        assert client.get_sandbox(name).id == box.id
        assert name in [b.name for b in client.list_sandboxes()]
        box.run("echo kept > file")
        box.stop()
        assert client.get_sandbox_status(name).status == "stopped"
        box.start()
        assert box.run("cat file").stdout == "kept\n"
    finally:
        box.delete()
    assert name not in [b.name for b in client.list_sandboxes()]
