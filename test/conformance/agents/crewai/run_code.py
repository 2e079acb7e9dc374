"""E2B's tool of CrewAI that runs code, by an E2B_DOMAIN and the template of the code interpreter. No model is called."""

import pytest
from crewai_tools import E2BExecTool, E2BPythonTool
from e2b import NotFoundException
from e2b_code_interpreter import Sandbox


def test_code_in_a_sandbox_of_its_own():
    got = E2BPythonTool(sandbox_timeout=600).run(code="import sys\nprint('out')\nprint('err', file=sys.stderr)\n1 + 1")
    assert (got["text"], got["stdout"], got["stderr"], got["error"]) == ("2", ["out\n"], ["err\n"], None)
    assert [r["is_main_result"] for r in got["results"]] == [True]


def test_state_errors_and_other_tools_in_one_sandbox():
    tool = E2BPythonTool(persistent=True)
    try:
        tool.run(code="x = 20\nopen('/home/user/a.txt', 'w').write('by code')")
        assert tool.run(code="import os\n(x + 1, os.environ['ONCE'])", envs={"ONCE": "1"})["text"] == "(21, '1')"
        failed = tool.run(code="print('before')\n1 / 0")
        assert (failed["stdout"], failed["error"]["name"]) == (["before\n"], "ZeroDivisionError")
        assert "ZeroDivisionError" in failed["error"]["traceback"] and failed["text"] is None
        assert tool.run(code="1 + 1", language="javascript")["text"] == "2"
        sandbox = tool._persistent_sandbox.sandbox_id
        assert E2BExecTool(sandbox_id=sandbox).run(command="cat /home/user/a.txt")["stdout"] == "by code"
    finally:
        tool.close()
    with pytest.raises(NotFoundException):
        Sandbox.get_info(sandbox)


def test_figures():
    got = E2BPythonTool(sandbox_timeout=600).run(code="import matplotlib.pyplot as plt\nplt.bar(['a'], [3])\nplt.show()")["results"]
    assert len(got) == 1 and got[0]["png"] and not got[0]["is_main_result"]
