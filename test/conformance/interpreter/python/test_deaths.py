"""A cell and its kernel survive the kill -9 of each role of tend, and of the process that kernels are forked from.

The client reads by raw HTTP: it is cut off when the server dies, and reads on with GET /executions.
"""

import json
import os
import signal
import time

import httpx
import pytest
from conftest import eventually, role, token

LINES = 100
CELL = f"import time\nfor i in range({LINES}):\n    print(i, flush=True)\n    time.sleep(0.01)\nstate = ('kept', i)\nstate"


def zygote(sandbox):
    """Kills the process of the sandbox that kernels are forked from."""
    found = [p.pid for p in sandbox.commands.list() if "attach" not in str(p.args) and "zygote.py" in str(p.args)]
    sandbox.commands.run(f"kill -9 {found[-1]}")


class Reading:
    """Reads the events of one cell, again and again until they have ended. Each comes once."""

    def __init__(self, sandbox):
        self.headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999", **token(sandbox)}
        self.url, self.events, self.execution = os.environ["E2B_SANDBOX_URL"], [], None

    def read(self, at, kill):
        end = time.monotonic() + 300
        while not self.events or self.events[-1]["type"] != "end_of_execution":
            assert time.monotonic() < end, f"the cell does not end; {len(self.events)} events: {self.events[-3:]}"
            try:
                if self.execution is None:
                    request = {"method": "POST", "url": self.url + "/execute", "json": {"code": CELL}}
                else:
                    request = {"method": "GET", "url": f"{self.url}/executions/{self.execution}?from={len(self.events)}"}
                with httpx.stream(**request, headers=self.headers, timeout=60) as answer:
                    if answer.status_code != 200:
                        time.sleep(0.05)
                        continue
                    self.execution = answer.headers["Tend-Execution"]
                    for line in answer.iter_lines():
                        event = json.loads(line)
                        if event["type"] != "keepalive":
                            self.events.append(event)
                        if len(self.events) >= at:
                            kill()
                            at = 1 << 30
            except httpx.HTTPError:
                time.sleep(0.05)  # the next server comes
        return self.events


@pytest.mark.parametrize(
    "victims, at",
    [(["server"], 1), (["server"], 40), (["server TERM"], 40), (["keeper"], 1), (["keeper"], 40), (["anchor"], 40), (["server", "keeper", "anchor"], 40), (["zygote"], 40)],
    ids=lambda v: " ".join(v) if isinstance(v, list) else str(v),
)
def test_a_cell_survives(sandbox, victims, at):
    def kill():
        for victim in victims:
            if victim == "zygote":
                zygote(sandbox)
            elif pid := role(victim.split()[0]):
                os.kill(pid, signal.SIGTERM if victim.endswith("TERM") else signal.SIGKILL)

    events = Reading(sandbox).read(at, kill)
    text = "".join(e["text"] for e in events if e["type"] == "stdout")
    assert text == "".join(f"{i}\n" for i in range(LINES))
    assert [e["type"] for e in events if e["type"] != "stdout"] == ["number_of_executions", "result", "end_of_execution"]
    for name in ("anchor", "keeper", "server"):
        eventually(f"a new {name} runs", lambda: role(name))
    eventually("the server answers", lambda: answers(sandbox))
    assert sandbox.run_code("state").text == f"('kept', {LINES - 1})"
    other = sandbox.create_code_context()
    assert sandbox.run_code("1", context=other).text == "1"
    sandbox.remove_code_context(other)


def answers(sandbox):
    try:
        return sandbox.list_code_contexts()
    except Exception:
        return None


def test_a_cell_whose_server_is_killed_is_not_interrupted(sandbox):
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999", **token(sandbox)}
    url = os.environ["E2B_SANDBOX_URL"]
    with httpx.stream("POST", url + "/execute", json={"code": "import time; time.sleep(3); slept = 'well'"}, headers=headers, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        os.kill(eventually("a server runs", lambda: role("server")), signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            list(lines)
    eventually("the server answers", lambda: answers(sandbox))
    assert sandbox.run_code("slept").text == "well"


def test_an_execution_that_nobody_knows(sandbox):
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999", **token(sandbox)}
    got = [httpx.get(os.environ["E2B_SANDBOX_URL"] + path, headers=headers).status_code for path in ("/executions/a.b", "/executions/x", "/executions/a.b?from=-1")]
    assert got == [404, 404, 400]
