"""E2BPythonTool of CrewAI, as an agent calls it, in sandboxes of the code interpreter. No model is called."""

import pytest
from crewai_tools import E2BExecTool, E2BPythonTool
from e2b import NotFoundException, Sandbox


@pytest.fixture
def python():
    tool = E2BPythonTool(persistent=True, envs={"ALWAYS": "1"})
    yield tool
    tool.close()


def test_output_value_and_state(python):
    said = python.run(code="import sys\nn = 20\nprint('out')\nprint('err', file=sys.stderr)\nn + 1")
    assert (said["text"], said["stdout"], said["stderr"], said["error"]) == ("21", ["out\n"], ["err\n"], None)
    assert said["results"][0]["is_main_result"] is True
    assert python.run(code="n * 2")["text"] == "40"  # the state stays


def test_an_error_has_name_value_and_traceback(python):
    said = python.run(code="print('before')\n{}['key']")
    assert said["stdout"] == ["before\n"]
    assert (said["error"]["name"], said["error"]["value"]) == ("KeyError", "'key'")
    assert "Traceback" in said["error"]["traceback"]
    assert python.run(code="6 * 7")["text"] == "42"  # the kernel goes on


def test_variables_and_languages(python):
    assert python.run(code="import os\nos.environ['ALWAYS'], os.environ['ONCE']", envs={"ONCE": "2"})["text"] == "('1', '2')"
    assert python.run(code="console.log(6 * 7)", language="javascript")["stdout"] == ["42\n"]
    assert python.run(code="echo $((6 * 7))", language="bash")["stdout"] == ["42\n"]


def test_tables_and_charts(python):
    table = python.run(code="import pandas as pd\npd.DataFrame({'n': [1, 41]})")["results"][0]
    assert "<table" in table["html"] and "41" in table["text"]
    chart = python.run(code="import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")["results"][0]
    assert chart["png"].startswith("iVBOR")


def test_a_sandbox_for_one_call():
    tool = E2BPythonTool(metadata={"by": "crew"})
    assert tool.run(code="kept = 1\nkept")["text"] == "1"
    assert tool.run(code="kept")["error"]["name"] == "NameError"


def test_tools_share_a_sandbox_over_a_pause_and_closing_ends_it():
    python = E2BPythonTool(persistent=True)
    python.run(code="kept = 7\nopen('/home/user/kept', 'w').write('8')")
    sandbox = python._persistent_sandbox
    assert E2BExecTool(sandbox_id=sandbox.sandbox_id).run(command="cat kept")["stdout"] == "8"
    sandbox.pause()
    assert E2BPythonTool(sandbox_id=sandbox.sandbox_id).run(code="kept")["text"] == "7"
    python.close()
    with pytest.raises(NotFoundException):
        Sandbox.get_info(sandbox.sandbox_id)
