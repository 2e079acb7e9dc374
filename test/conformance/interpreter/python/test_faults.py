"""Cells that do what they should not: each is bounded and told in the protocol's own terms, and other contexts notice nothing."""

import asyncio
import json
import os
import re
import signal
import subprocess
import time

import httpx
import pytest
from conftest import eventually, token
from e2b.exceptions import RateLimitException, SandboxException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox

URL = os.environ["E2B_SANDBOX_URL"]


@pytest.fixture
def contexts(sandbox):
    """A context for the fault, and another that must not notice it."""
    faulty, other = sandbox.create_code_context(), sandbox.create_code_context()
    sandbox.run_code("kept = 7", context=other)
    yield faulty
    assert sandbox.run_code("kept", context=other).text == "7"
    sandbox.remove_code_context(faulty)
    sandbox.remove_code_context(other)


def test_a_kernel_that_is_killed_for_memory():
    made = subprocess.run(
        [os.environ["TEND_BIN"], "--url", URL, "sandbox", "create", "--template", "code-interpreter-v1", "--memory", "400M", "--json"],
        capture_output=True, text=True, check=True,
    )
    with Sandbox.connect(json.loads(made.stdout)["id"]) as s:
        other = s.create_code_context()
        s.run_code("kept = 7", context=other)
        greedy = s.run_code("all = []\nwhile True: all.append(bytearray(b'x') * (8 << 20))")
        assert greedy.error.name in ("ContextRestarting", "MemoryError")
        assert s.run_code("1+1").text == "2"
        assert s.run_code("kept", context=other).text == "7"


def test_cells_that_fork(sandbox, contexts):
    got = sandbox.run_code("import os\npid = os.fork()\nif pid == 0: os._exit(3)\nos.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])", context=contexts)
    assert got.text == "3"
    # A child that stays holds what it has inherited; the cell ends all the same.
    got = sandbox.run_code("pid = os.fork()\nif pid == 0:\n    import time\n    time.sleep(600)\n'over'", context=contexts)
    assert got.text == "over"
    # One that returns from the cell is no second kernel.
    got = sandbox.run_code("import sys\nif os.fork() == 0: print('child'); os._exit(0)\nos.wait()\nprint('parent')", context=contexts)
    assert sorted("".join(got.logs.stdout).split()) == ["child", "parent"]
    assert sandbox.run_code("1+1", context=contexts).text == "2"


def test_a_cell_that_blocks_signals(sandbox, contexts):
    with pytest.raises(TimeoutException):
        sandbox.run_code("import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.Signals)\nwhile True: pass", timeout=1, context=contexts)
    # Ten seconds later its kernel is killed, and so is what waits for it.
    assert sandbox.run_code("1+1", context=contexts).error.name == "ContextRestarting"
    assert sandbox.run_code("1+1", context=contexts).text == "2"


@pytest.mark.parametrize("first", [
    "signal.pthread_sigmask(signal.SIG_BLOCK, {2}); signal.sigwait({2}); signal.pthread_sigmask(signal.SIG_UNBLOCK, {2})",  # nobody sees it
    "try: time.sleep(600)\nexcept KeyboardInterrupt: pass",
])  # fmt: skip
def test_an_interrupt_that_is_lost_comes_again(sandbox, contexts, first):
    sandbox.run_code("import signal, time\nn = 20", context=contexts)
    with pytest.raises(TimeoutException):
        sandbox.run_code(first + "\ntime.sleep(600)", timeout=1, context=contexts)
    assert sandbox.run_code("n", context=contexts).text == "20"


@pytest.mark.parametrize("language, keep, busy, kept, want", [
    ("python", "kept = 5", "while True: pass", "kept", "5"),
    ("javascript", "var kept = 5", "while (true) {}", "kept", "5"),
    ("javascript", "var kept = 6", "await new Promise(() => {})", "kept", "6"),
    ("bash", "kept=7", "while :; do :; done", "echo $kept", "7\n"),
])  # fmt: skip
def test_a_cell_that_is_interrupted_as_it_begins(sandbox, language, keep, busy, kept, want):
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999", **token(sandbox)}
    sandbox.run_code(keep, language=language)
    for i in range(40):
        with httpx.stream("POST", URL + "/execute", headers=headers, timeout=60, json={"code": busy, "language": language}) as r:
            next(r.iter_lines())
            time.sleep(i % 8 / 4000)
        events = [json.loads(line) for line in httpx.get(f"{URL}/executions/{r.headers['Tend-Execution']}", headers=headers, timeout=600).iter_lines()]
        assert [e.get("name", e["type"]) for e in events if e["type"] != "keepalive"] == ["number_of_executions", "KeyboardInterrupt", "end_of_execution"]
        got = sandbox.run_code(kept, language=language)
        assert (got.text or got.logs.stdout[0]) == want


def test_a_gibibyte_of_output(sandbox, contexts):
    whole, piece = 1 << 30, 1 << 20
    code = f"import sys\nfor _ in range({whole // piece}): sys.stdout.write('x' * {piece})"
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999", **token(sandbox)}
    got, gaps = 0, []
    body = {"code": code, "context_id": contexts.id}
    with httpx.stream("POST", URL + "/execute", headers=headers, timeout=600, json=body) as r:
        for line in r.iter_lines():
            event = json.loads(line)
            if event["type"] == "stdout":
                got += event["text"].count("x")
            elif event["type"] == "stderr":  # what is not kept for readers that are behind
                gaps.append(int(re.fullmatch(r"\[(\d+) bytes of output were not read in time.*\n", event["text"])[1]))
    assert event["type"] == "end_of_execution"
    # A gap is told in bytes of the kernel's own lines; around each, a line that is cut is left out.
    assert whole - got <= sum(gaps) + 2 * piece * len(gaps) and sum(gaps) <= 1.1 * (whole - got), (got, gaps)
    assert sandbox.run_code("1+1", context=contexts).text == "2"


def test_contexts_without_end(sandbox, contexts):
    made = []
    with pytest.raises((RateLimitException, SandboxException), match="which is the limit"):
        for _ in range(200):
            made.append(sandbox.create_code_context())
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999"}
    with httpx.Client(headers=headers, timeout=60) as client:
        assert {client.post(URL + "/contexts", json={}).status_code for _ in range(10_000)} == {429}
    assert sandbox.run_code("1+1", context=contexts).text == "2"
    for context in made:
        sandbox.remove_code_context(context)


def test_a_package_that_is_missing(sandbox, contexts):
    assert sandbox.run_code("import nope_nope", context=contexts).error.name == "ModuleNotFoundError"
    assert sandbox.run_code("1+1", context=contexts).text == "2"


# The kernel of a cell is killed: before it has said anything, in the middle of its output, at its last line.
@pytest.mark.parametrize("line", ["", "print(0, flush=True); ", "print(0, flush=True); print(1, flush=True); "])
def test_a_kernel_that_is_killed_at_a_step_of_a_cell(sandbox, contexts, line):
    got = sandbox.run_code("import os, signal, time\n" + line + "os.kill(os.getpid(), signal.SIGKILL)", context=contexts)
    assert got.error.name == "ContextRestarting"
    assert "".join(got.logs.stdout) == "".join(f"{i}\n" for i in range(line.count("print")))
    assert sandbox.run_code("1+1", context=contexts).text == "2"


def test_a_kernel_that_is_killed_while_cells_wait(sandbox, contexts):
    async def both():
        s = await AsyncSandbox.connect(sandbox.sandbox_id)
        runs = s.run_code("import os, signal, time\ntime.sleep(2)\nos.kill(os.getpid(), signal.SIGKILL)", context=contexts)
        await asyncio.sleep(0)
        return await asyncio.gather(runs, *(s.run_code("1+1", context=contexts) for _ in range(3)))

    first, *others = asyncio.run(both())
    assert first.error.name == "ContextRestarting"
    for other in others:  # told, or run by the next kernel; nothing is invented
        assert other.text == "2" or other.error.name == "ContextRestarting"
    assert sandbox.run_code("1+1", context=contexts).text == "2"
