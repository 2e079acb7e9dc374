"""smolagents' E2BExecutor, by itself and below an agent. No model is called: a script says which code to run."""

import pytest
from e2b import NotFoundException
from e2b_code_interpreter import Sandbox
from smolagents import ChatMessage, CodeAgent, E2BExecutor, Model, tool
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.utils import AgentError

QUIET = AgentLogger(level=LogLevel.ERROR)


@pytest.fixture(scope="module")
def executor():
    executor = E2BExecutor([], QUIET, timeout=600)
    yield executor
    executor.cleanup()


def test_output_and_value(executor):
    got = executor.run_code_raise_errors('x = 20\nprint("hi")\nx + 1')
    assert (got.output, got.logs, got.is_final_answer) == ("21", "hi\n", False)
    assert executor("x * 2").output == "40"  # the state stays
    assert executor("y = 1").output is None


def test_an_error_has_its_output_and_traceback(executor):
    with pytest.raises(AgentError) as caught:
        executor.run_code_raise_errors("print('before')\n1/0")
    for want in ("before", "ZeroDivisionError", "division by zero", "Traceback"):
        assert want in caught.value.message


def test_variables_and_pictures(executor):
    executor.send_variables({"given": {"a": [1, None, "ž"]}})
    assert executor("given['a'][2]").output == "ž"
    picture = executor("from PIL import Image\nImage.new('RGB', (3, 2), 'red')").output
    assert picture.size == (3, 2)


def test_files_and_programs_are_the_sandbox_s(executor):
    executor.sandbox.files.write("/home/user/in.csv", "n\n1\n41\n")
    assert executor("import pandas as pd\nint(pd.read_csv('/home/user/in.csv').n.sum())").output == "42"
    executor("open('/home/user/out.txt', 'w').write('out')")
    assert executor.sandbox.commands.run("cat /home/user/out.txt").stdout == "out"


def test_the_state_outlives_a_pause(executor):
    executor("kept = 7")
    executor.sandbox.pause()
    executor.sandbox.connect()
    assert executor("kept").output == "7"


def test_packages_and_the_end():
    executor = E2BExecutor(["numpy"], QUIET)  # by !pip install
    assert executor("import numpy\nint(numpy.arange(4).sum())").output == "6"
    sandbox = executor.sandbox.sandbox_id
    executor.cleanup()
    with pytest.raises(NotFoundException):
        Sandbox.get_info(sandbox)


class Scripted(Model):
    """A model whose answers are known before."""

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)

    def generate(self, messages, **_):
        return ChatMessage(role="assistant", content=self.answers.pop(0))


def code(text):
    return f"Thought: go on\n<code>\n{text}\n</code>"


def test_an_agent_runs_code_and_a_tool():
    @tool
    def double(n: int) -> int:
        """Doubles a number.

        Args:
            n: The number.
        """
        return 2 * n

    script = Scripted(code("n = double(20)\nprint('so far', n)"), code("raise ValueError('on the way')"), code("final_answer({'n': n + 2, 'by': 'agent'})"))
    with CodeAgent(tools=[double], model=script, executor_type="e2b", executor_kwargs={"timeout": 600}, verbosity_level=0) as agent:
        sandbox = agent.python_executor.sandbox.sandbox_id
        assert agent.run("Do the job.") == {"n": 42, "by": "agent"}
        steps = [s for s in agent.memory.steps if getattr(s, "step_number", None)]
        assert "so far 40" in steps[0].observations and "on the way" in str(steps[1].error)
    with pytest.raises(NotFoundException):
        Sandbox.get_info(sandbox)
