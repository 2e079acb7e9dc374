"""What an agent of deepagents does in a sandbox, on each backend. No model is called: a script says which tools to use."""

import pytest
from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from backends import BACKENDS


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    with BACKENDS[request.param]() as backend:
        yield backend


class Scripted(GenericFakeChatModel):
    """A model whose answers are known before."""

    def bind_tools(self, tools, **_):
        return self


def call(tool, **arguments):
    return AIMessage(content="", tool_calls=[{"name": tool, "args": arguments, "id": f"call of {tool}"}])


def test_an_agent_writes_a_program_and_runs_it(backend):
    answers = [
        call("write_file", file_path="/tmp/job/main.py", content="import sys\nprint(6 * 7)\nsys.exit(3)\n"),
        call("execute", command="python3 /tmp/job/main.py"),
        call("edit_file", file_path="/tmp/job/main.py", old_string="sys.exit(3)", new_string="print('changed')"),
        call("execute", command="cd /tmp/job && python3 main.py && pwd"),
        call("grep", pattern="6 * 7", path="/tmp/job", output_mode="content"),
        AIMessage(content="done"),
    ]
    agent = create_deep_agent(model=Scripted(messages=iter(answers)), backend=backend)
    messages = agent.invoke({"messages": [("user", "Do the job.")]})["messages"]
    said = [m.content for m in messages if m.type == "tool"]
    assert messages[-1].content == "done" and len(said) == 5
    assert said[1].startswith("42\n") and "exit code 3" in said[1], said
    assert said[3].startswith("42\nchanged\n/tmp/job\n"), said
    assert "/tmp/job/main.py" in said[4] and "print(6 * 7)" in said[4], said


def test_output_and_exit_codes(backend):
    for code in (0, 1, 2, 126, 255):
        result = backend.execute(f"echo out; echo err >&2; exit {code}")
        assert (result.output, result.exit_code) == ("out\n\nerr\n", code)


def test_files_up_and_down(backend):
    data = bytes(range(256)) * 4096
    assert [r.error for r in backend.upload_files([("/tmp/up/a.bin", data), ("/tmp/up/b", b"b")])] == [None, None]
    down = backend.download_files(["/tmp/up/b", "/tmp/up/missing", "/tmp/up/a.bin"])
    assert [(r.content, r.error) for r in down] == [(b"b", None), (None, "file_not_found"), (data, None)]
    assert [m["line"] for m in backend.grep("b", "/tmp/up", "b").matches] == [1]
    assert backend.execute("sha256sum /tmp/up/a.bin | cut -c1-8; stat -c %s /tmp/up/a.bin").output.split()[1] == str(len(data))
