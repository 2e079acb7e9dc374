"""Commands through upgrades and crashes of the server."""

import contextlib
import http.client
import json
import os
import threading
import urllib.request

import pytest
from conftest import KEY, PATIENCE, drain, kill_server, until, upgrade
from langsmith.sandbox import CommandHandle

LINES = 60
COMMAND = f"for i in $(seq {LINES}); do echo line$i; printf '\\xff%d\\n' $i; echo warn$i >&2; sleep 0.05; done; exit 6"
STDOUT = "".join(f"line{i}\n\ufffd{i}\n" for i in range(1, LINES + 1))
STDERR = "".join(f"warn{i}\n" for i in range(1, LINES + 1))


@pytest.mark.parametrize("restart", [upgrade, kill_server])
def test_fifty_commands_stream_on(sandbox, restart):
    handles = [sandbox.run(COMMAND, wait=False) for _ in range(50)]
    results = [None] * len(handles)
    third = threading.Event()

    def read(n):
        def seen(chunk):
            if "line15\n" in chunk.data:
                third.set()

        results[n] = drain(handles[n], on_chunk=seen)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(len(handles))]
    for t in threads:
        t.start()
    assert third.wait(PATIENCE)
    restart()
    for t in threads:
        t.join(PATIENCE)
    for handle, result in zip(handles, results):
        assert result == (STDOUT, STDERR)
        assert handle.result.exit_code == 6
        assert getattr(handle, "_reconnect_attempts", 0) <= CommandHandle.MAX_AUTO_RECONNECTS


def test_a_request_s_command_ends_with_the_server(sandbox):
    url = f"{sandbox.dataplane_url}/execute"

    def execute():
        body = json.dumps({"command": "echo $$ > pid; exec sleep 1000", "timeout": 0}).encode()
        request = urllib.request.Request(url, body, {"X-Api-Key": KEY})
        with contextlib.suppress(OSError, http.client.HTTPException):
            urllib.request.urlopen(request).read()

    caller = threading.Thread(target=execute)
    caller.start()
    pid = until("the command runs", lambda: sandbox.run("cat pid 2>/dev/null || true").stdout.strip())
    kill_server()
    caller.join(PATIENCE)
    assert not caller.is_alive()
    for _ in range(3):  # its server's death is noticed after a while
        with contextlib.suppress(AssertionError):
            until("the command is gone", lambda: sandbox.run(f"test -e /proc/{pid}").exit_code == 1)
            break
    else:
        raise AssertionError("the command goes on")


@pytest.mark.parametrize("restart", [upgrade, kill_server])
def test_finished_and_running_commands_are_found_again(sandbox, restart):
    done = sandbox.run("printf 'kept \\xff'; exit 2", wait=False)
    assert done.result.exit_code == 2
    waiting = sandbox.run("read x; echo got $x", wait=False, close_input=False)
    restart()
    again = sandbox.reconnect(done.command_id).result
    assert (again.stdout, again.exit_code) == ("kept \ufffd", 2)
    handle = sandbox.reconnect(waiting.command_id)
    got = []

    def answer():
        for chunk in handle:
            got.append(chunk.data)

    reader = threading.Thread(target=answer)
    reader.start()
    while handle._control._ws is None:  # a reconnect opens on the first read
        reader.join(0.02)
    handle.send_input("it\n")
    reader.join(PATIENCE)
    assert "".join(got) == "got it\n"
