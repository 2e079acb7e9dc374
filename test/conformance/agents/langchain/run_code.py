"""An agent of LangChain whose tool runs code, as E2B's guides write it, alone and beside the tools of deepagents.

No model is called: a script says which tools to use.
"""

import json

import pytest
from deepagents import create_deep_agent
from e2b_code_interpreter import Sandbox
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from langchain_e2b import E2BSandbox

from test_job import Scripted, call


@pytest.fixture(scope="module")
def sandbox():
    with Sandbox.create(timeout=3600) as s:
        yield s


@pytest.fixture
def execute_python(sandbox):
    @tool(response_format="content_and_artifact")
    def execute_python(code: str):
        """Runs Python in a notebook whose variables stay."""
        execution = sandbox.run_code(code)
        said = {"text": execution.text, "stdout": execution.logs.stdout, "stderr": execution.logs.stderr,
                "error": execution.error and execution.error.name}
        return json.dumps(said), execution.results

    return execute_python


def answers(agent):
    messages = agent.invoke({"messages": [("user", "Compute.")]})["messages"]
    assert messages[-1].content == "done"
    return [m for m in messages if isinstance(m, ToolMessage)]


def cells(*codes):
    return Scripted(messages=iter([*(call("execute_python", code=c) for c in codes), AIMessage(content="done")]))


def test_an_agent_computes_by_cells(execute_python):
    model = cells(
        "import sys\nn = 20\nprint('out')\nprint('err', file=sys.stderr)",
        "n + 1",
        "1/0",
        "import matplotlib.pyplot as plt\nplt.plot([1, n])\nplt.show()",
        "n * 2",
    )
    first, value, error, plot, after = answers(create_agent(model, [execute_python]))
    assert json.loads(first.content) == {"text": None, "stdout": ["out\n"], "stderr": ["err\n"], "error": None}
    assert json.loads(value.content)["text"] == "21"
    assert json.loads(error.content)["error"] == "ZeroDivisionError"
    assert plot.artifact[0].png.startswith("iVBOR") and plot.artifact[0].chart.type == "line"
    assert json.loads(after.content)["text"] == "40"


def test_cells_and_the_tools_of_deepagents_see_the_same_files(sandbox, execute_python):
    script = [
        call("write_file", file_path="/home/user/in.csv", content="n\n1\n41\n"),
        call("execute_python", code="import pandas as pd\ns = pd.read_csv('in.csv').n.sum()\nopen('out.txt', 'w').write(str(s))"),
        call("execute", command="cat /home/user/out.txt"),
        AIMessage(content="done"),
    ]
    agent = create_deep_agent(model=Scripted(messages=iter(script)), tools=[execute_python], backend=E2BSandbox(sandbox=sandbox))
    *_, cell, shell = answers(agent)
    assert json.loads(cell.content) == {"text": "2", "stdout": [], "stderr": [], "error": None}
    assert shell.content.startswith("42")


async def test_asynchronous_tools_run_side_by_side(sandbox):
    from e2b_code_interpreter import AsyncSandbox

    same = await AsyncSandbox.connect(sandbox.sandbox_id)

    @tool
    async def execute_in(context: int, code: str) -> str:
        """Runs Python in one of two notebooks."""
        return (await same.run_code(code, context=contexts[context])).text

    contexts = [await same.create_code_context() for _ in range(2)]
    wait = "import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\n'waited'"
    both = AIMessage(content="", tool_calls=[{"name": "execute_in", "args": {"context": i, "code": code}, "id": str(i)}
                                             for i, code in enumerate((wait, "open('/tmp/go', 'w').close(); 'went'"))])
    agent = create_agent(Scripted(messages=iter([both, AIMessage(content="done")])), [execute_in])
    messages = (await agent.ainvoke({"messages": [("user", "Compute.")]}))["messages"]
    assert [m.content for m in messages if isinstance(m, ToolMessage)] == ["waited", "went"]
