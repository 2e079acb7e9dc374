"""Commands over server-sent events, which the SDK speaks if it is told to."""

import hashlib
import threading

import pytest
from conftest import PATIENCE, drain, kill_server, until, upgrade
from langsmith.sandbox import CommandTimeoutError, SandboxOperationError


@pytest.fixture(autouse=True)
def over_events(monkeypatch):
    monkeypatch.setenv("LANGSMITH_EXPERIMENTAL_FEATURES", "sandbox_sse_exec")


def test_streams_code_and_options(sandbox):
    got = sandbox.run("echo out; echo err >&2; cat; echo $A $(pwd); exit 3", env={"A": "b"}, cwd="/tmp")
    assert (got.stdout, got.stderr, got.exit_code) == ("out\nb /tmp\n", "err\n", 3)
    got = sandbox.run("echo $A $(pwd)", run_config={"env_vars": {"A": "c"}, "work_dir": "/"})
    assert got.stdout == "c /\n"


async def test_async(async_sandbox):
    got = await async_sandbox.run("echo out; echo err >&2; exit 3")
    assert (got.stdout, got.stderr, got.exit_code) == ("out\n", "err\n", 3)


def test_callbacks_come_while_it_runs(sandbox):
    seen = []
    result = []
    reader = threading.Thread(
        target=lambda: result.append(sandbox.run("echo first; while [ ! -e go ]; do sleep 0.05; done; echo last", on_stdout=seen.append))
    )
    reader.start()
    until("the first line", lambda: "first\n" in "".join(seen))
    sandbox.write("go", b"")
    reader.join(PATIENCE)
    assert result[0].stdout == "first\nlast\n" and "".join(seen) == "first\nlast\n"


def test_characters_are_never_cut(sandbox):
    text = "é€😀\n" * 40_000
    got = sandbox.run("for i in $(seq 40000); do printf 'é€😀\\n'; done")
    assert got.stdout == text
    got = sandbox.run("printf '\\xe2\\x82'; sleep 0.3; printf '\\xac|\\xff|\\xf0\\x9f'")
    assert got.stdout == "€|\ufffd|\ufffd"


def test_sixteen_mebibytes(sandbox):
    stdout, _ = drain(sandbox.run("seq -w 1 2097152", wait=False))
    want = hashlib.sha256("".join(f"{i:07d}\n" for i in range(1, 2097153)).encode())
    assert hashlib.sha256(stdout.encode()).digest() == want.digest()


def test_a_timeout(sandbox):
    with pytest.raises(CommandTimeoutError):
        sandbox.run("echo x; sleep 60", timeout=1)


def test_a_command_that_cannot_start(sandbox):
    with pytest.raises(SandboxOperationError):
        sandbox.run("true", shell="/no/such/shell")


def test_reconnect(sandbox):
    first = sandbox.run("printf 0123456789; exit 2", wait=False)
    assert first.result.exit_code == 2
    again = sandbox.reconnect(first.command_id, stdout_offset=4).result
    assert (again.stdout, again.exit_code) == ("456789", 2)
    beyond = sandbox.reconnect(first.command_id, stdout_offset=11).result
    assert (beyond.stdout, beyond.exit_code) == ("", 2)
    with pytest.raises(SandboxOperationError) as caught:
        list(sandbox.reconnect("no-such-command"))
    assert caught.value.error_type == "CommandNotFound"


@pytest.mark.parametrize("restart", [upgrade, kill_server])
def test_a_restart_of_the_server_is_not_seen(sandbox, restart):
    restarted = []

    def on_chunk(chunk):
        if "line15\n" in chunk.data and not restarted:
            restarted.append(threading.Thread(target=restart))
            restarted[0].start()

    handle = sandbox.run("for i in $(seq 60); do echo line$i; echo warn$i >&2; sleep 0.05; done; exit 6", wait=False)
    stdout, stderr = drain(handle, on_chunk=on_chunk)
    restarted[0].join()
    assert stdout == "".join(f"line{i}\n" for i in range(1, 61))
    assert stderr == "".join(f"warn{i}\n" for i in range(1, 61))
    assert handle.result.exit_code == 6
