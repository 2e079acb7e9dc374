"""E2B's tools of CrewAI, as an agent calls them. No model is called."""

import base64

import httpcore
import pytest
from crewai_tools import E2BExecTool, E2BFileTool
from e2b import CommandExitException, NotFoundException, Sandbox, TimeoutException


def ids():
    listed, found = Sandbox.list(), set()
    while listed.has_next:
        found |= {box.sandbox_id for box in listed.next_items()}
    return found


@pytest.fixture
def files():
    tool = E2BFileTool(persistent=True)
    yield tool
    tool.close()


def test_a_command_in_a_sandbox_of_its_own():
    before = ids()
    tool = E2BExecTool(envs={"ALWAYS": "1"}, metadata={"by": "crew"})
    said = tool.run(command="echo $ALWAYS $ONCE; pwd; id -un; echo problem >&2", cwd="/tmp", envs={"ONCE": "2"})
    assert said == {"exit_code": 0, "stdout": "1 2\n/tmp\nuser\n", "stderr": "problem\n", "error": ""}
    assert ids() == before  # it is killed


def test_a_command_that_fails_is_an_exception():
    with pytest.raises(CommandExitException) as caught:
        E2BExecTool().run(command="echo out; echo err >&2; exit 4")
    assert (caught.value.exit_code, caught.value.stdout, caught.value.stderr) == (4, "out\n", "err\n")


def test_a_command_that_takes_too_long():
    before = ids()
    with pytest.raises((TimeoutException, httpcore.ReadTimeout)):  # the server's word for it, or this version's own clock
        E2BExecTool().run(command="sleep 3600", timeout=1)
    assert ids() == before


def test_files(files):
    written = files.run(action="write", path="/home/user/d/a.txt", content="hi")
    assert written == {"status": "written", "path": "/home/user/d/a.txt", "bytes": 2}
    assert files.run(action="read", path="/home/user/d/a.txt")["content"] == "hi"
    info = files.run(action="info", path="/home/user/d/a.txt")
    assert (info["name"], info["size"], info["owner"], info["permissions"]) == ("a.txt", 2, "user", "-rw-r--r--"), info
    assert files.run(action="mkdir", path="/workspace/src")["created"] is True
    assert files.run(action="mkdir", path="/workspace/src")["created"] is False
    assert [e["path"] for e in files.run(action="list", path="/workspace", depth=2)["entries"]] == ["/workspace/src"]
    assert files.run(action="delete", path="/home/user/d")["status"] == "deleted"
    assert files.run(action="exists", path="/home/user/d/a.txt")["exists"] is False


def test_files_of_any_bytes(files):
    data = base64.b64encode(bytes(range(256)) * 100).decode()
    files.run(action="write", path="/srv/a.bin", content=data, binary=True)
    assert files.run(action="read", path="/srv/a.bin", binary=True)["content"] == data


def test_tools_share_a_sandbox_that_is_not_theirs():
    raw = Sandbox.create()
    try:
        E2BFileTool(sandbox_id=raw.sandbox_id).run(action="write", path="/home/user/run.py", content="print(6 * 7)\n")
        raw.pause()  # connecting wakes it
        assert E2BExecTool(sandbox_id=raw.sandbox_id).run(command="python run.py")["stdout"] == "42\n"
        assert raw.is_running()
    finally:
        raw.kill()


def test_closing_ends_a_persistent_sandbox():
    tool = E2BExecTool(persistent=True)
    tool.run(command="echo 1 >kept")
    assert tool.run(command="cat kept")["stdout"] == "1\n"
    sandbox = tool._persistent_sandbox.sandbox_id
    tool.close()
    with pytest.raises(NotFoundException):
        Sandbox.get_info(sandbox)
