"""kill -9 at every step of a cell: of the roles of tend, of the process that kernels are forked from, of a kernel, of what stands for it.
And upgrades of each part.

A cell's output is whole, or its end is told; nothing is invented, and a context beside notices nothing.
"""

import os
import random
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest
import tend
from conftest import eventually, role
from e2b.exceptions import SandboxException
from e2b_code_interpreter import Sandbox

LINES = 20
CELL = f"import time\nfor i in range({LINES}):\n    print(i, flush=True)\n    time.sleep(0.005)\n('whole', i)"
WHOLE = "".join(f"{i}\n" for i in range(LINES))
VALUE = f"('whole', {LINES - 1})"
BASH = f"for ((i = 0; i < {LINES}; i++)); do echo $i; sleep 0.005; done"
JS = f"for (let i = 0; i < {LINES}; i++) {{ console.log(i); await new Promise((r) => setTimeout(r, 5)) }}; ['whole', {LINES - 1}]"


def running(*argv):
    """The pids of processes whose command line has these words, one after the other."""
    wanted, found = "\0".join(argv), set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_text()
        except OSError:
            continue
        if wanted in line:
            found.add(int(path.parent.name))
    return found


def kernels():
    return running("/opt/code-interpreter/kernels/python/zygote.py\0") - running("zygote.py", "attach")


# What stands for a kernel, by the language: processes of this machine, as /proc has them.
STANDS = {
    "kernel": ("python", kernels),
    "its cat": ("python", lambda: running("code-interpreter-kernel")),
    "host of bash": ("bash", lambda: running("foreign/host.py", "bash")),
    "engine of bash": ("bash", lambda: running("foreign/engine.sh")),
    "host of javascript": ("javascript", lambda: running("foreign/host.py", "javascript")),
    "engine of javascript": ("javascript", lambda: running("foreign/engine.cjs", "javascript")),
}
CODES = {"python": (CELL, VALUE), "bash": (BASH, None), "javascript": (JS, f"[ 'whole', {LINES - 1} ]")}


@pytest.fixture(scope="module")
def sandbox():
    with tend.Client.connect(os.environ["E2B_API_URL"]) as client:
        with Sandbox.create(timeout=3600) as s:
            s.run_code("1")
            other = s.create_code_context()
            s.run_code("kept = 7", context=other)
            yield client.sandbox(s.sandbox_id)
            assert s.run_code("kept", context=other).text == "7"


@pytest.fixture(scope="module")
def sdk(sandbox):
    return Sandbox.connect(sandbox.id)


def kill(pid):
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


# A step is a time after the request, or an event. The first ones come before the kernel has the cell.
DELAYS = [0.0, 0.001, 0.003, 0.006, 0.01, 0.02, 0.05]
EVENTS = [1, 2, LINES // 2, LINES + 1, LINES + 2]


def at(step, do):
    """What is to be called before and after the cell, and with each event, so that do is called once at that step, if it comes."""
    if isinstance(step, float):
        timer = threading.Timer(step, do)
        return timer.start, timer.join, lambda _: None
    seen = []

    def event(_):
        seen.append(1)
        if len(seen) == step:
            do()

    return (lambda: None), (lambda: None), event


def kill_launcher():
    killed = role("launcher")
    kill(killed)
    os.write(8, b"\n")  # for who starts another
    eventually("another launcher runs", lambda: role("launcher") not in (None, killed))


@pytest.mark.parametrize("victim", ["server", "keeper", "anchor", "launcher"])
@pytest.mark.parametrize("step", DELAYS + EVENTS)
def test_a_cell_outlives_each_role_at_each_step(sandbox, victim, step):
    eventually(f"a {victim} runs", lambda: role(victim))
    begin, end, on_event = at(step, kill_launcher if victim == "launcher" else lambda: kill(role(victim)))
    mark = f"/tmp/ran-{victim}-{step}"
    begin()
    got = sandbox.code(f"open({mark!r}, 'a').write('x')\n" + CELL, on_event=on_event)
    end()
    assert (got.error, got.stdout, got.text, got.stderr) == (None, WHOLE, VALUE, "")
    assert sandbox.code(f"open({mark!r}).read()").text == "x"  # it ran once


def program(part):
    """What is another after each exec, also in the same process: its auxiliary vector has random addresses."""
    pid = role(part)
    return pid and Path(f"/proc/{pid}/auxv").read_bytes()


@pytest.mark.parametrize("parts", [["server"], ["keeper"], ["server", "keeper"]], ids=" ".join)
@pytest.mark.parametrize("step", DELAYS + EVENTS)
def test_a_cell_outlives_an_upgrade_of_each_part_at_each_step(sandbox, sdk, parts, step):
    """The cell goes on until the upgrade is over, if that begins before the cell's last lines."""
    before = {part: eventually(f"a {part} runs", lambda: program(part)) for part in parts}
    over, failed = f"/tmp/upgraded-{' '.join(parts)}-{step}", []

    def upgrade():
        flags = [f"--{part}" for part in parts] if len(parts) == 1 else []
        got = subprocess.run([os.environ["TEND_BIN"], "--url", os.environ["E2B_API_URL"], "upgrade", *flags], capture_output=True, text=True)
        failed.extend([got.stderr] if got.returncode else [])
        sdk.files.write(over, "")

    upgrades = threading.Thread(target=upgrade)
    begin, end, on_event = at(step, upgrades.start)
    waits = f"    while i == {LINES // 2} and not __import__('os').path.exists({over!r}): time.sleep(0.01)\n" if step in DELAYS + EVENTS[:3] else ""
    begin()
    got = sandbox.code(CELL.replace("    time", waits + "    time"), on_event=on_event)
    end()
    upgrades.join()
    assert (failed, got.error, got.stdout, got.text, got.stderr) == ([], None, WHOLE, VALUE, "")
    assert not set(before.items()) & {(part, program(part)) for part in parts}


@pytest.mark.parametrize("step", DELAYS + EVENTS)
def test_the_process_that_kernels_are_forked_from(sandbox, sdk, step):
    zygotes = {pid for pid in kernels() if os.getsid(pid) != pid}
    begin, end, on_event = at(step, lambda: [kill(pid) for pid in zygotes])
    begin()
    got = sandbox.code(CELL, on_event=on_event)
    end()
    assert (got.error, got.stdout, got.text, got.stderr) == (None, WHOLE, VALUE, "")
    context = sdk.create_code_context()  # by the next one
    assert sdk.run_code("1+1", context=context).text == "2"
    sdk.remove_code_context(context)


@pytest.mark.parametrize("victim", STANDS)
def test_a_kernel_at_each_step(sandbox, victim):
    language, pids = STANDS[victim]
    code, value = CODES[language]
    before = pids()
    context = sandbox.code_contexts.create(language=language)
    mine = pids() - before
    assert mine
    for step in [None, *DELAYS, *EVENTS]:
        killed = []

        def strike():
            killed.extend(mine)
            for pid in mine:
                kill(pid)

        begin, end, on_event = at(step, strike)
        if step is None:  # before the request
            strike()
        begin()
        got = sandbox.code(code, context=context.id, on_event=on_event)
        end()
        told = got.error and got.error.name
        assert told in (None, "ContextRestarting"), (step, got)
        assert WHOLE.startswith(got.stdout), (step, got)
        if told is None:
            assert (got.stdout, got.text) == (WHOLE, value), (step, got)
        else:
            assert got.text in (None, value), (step, got)
        eventually("what was killed is gone", lambda: not pids() & set(killed))  # lines that come together are one event: not all steps are
        again = sandbox.code(code, context=context.id)
        if again.error and again.error.name == "ContextRestarting":  # what it was given to was dead, and tend did not know yet
            again = sandbox.code(code, context=context.id)
        assert (again.error, again.stdout, again.text) == (None, WHOLE, value), (step, again)
        mine = pids() - before
    sandbox.code_contexts.remove(context.id)


def test_a_kernel_while_it_starts(sdk):
    """Its creation fails and says so, or it is there; then its cells are told, or run."""
    stop, before = threading.Event(), kernels() | running("zygote.py", "attach") | running("code-interpreter-kernel")

    def hunt():
        while not stop.is_set():
            time.sleep(random.uniform(0, 0.05))
            for pid in (kernels() | running("zygote.py", "attach") | running("code-interpreter-kernel")) - before:
                kill(pid)

    hunter = threading.Thread(target=hunt)
    hunter.start()
    try:
        for _ in range(40):
            try:
                context = sdk.create_code_context()
                got = sdk.run_code("print('a')\n1+1", context=context)
                assert got.error.name == "ContextRestarting" if got.error else (got.text, got.logs.stdout) == ("2", ["a\n"]), got
            except SandboxException as e:
                assert "the kernel did not start" in str(e), e
                continue
            sdk.remove_code_context(context)
    finally:
        stop.set()
        hunter.join()
    assert sdk.run_code("1+1").text == "2"
