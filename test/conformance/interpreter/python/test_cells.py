"""What users of e2b-code-interpreter do."""

import asyncio
import os
import threading

import httpx
import pytest
from conftest import create, token
from e2b.exceptions import NotFoundException, SandboxException, TimeoutException
from e2b_code_interpreter import AsyncSandbox, Sandbox
from e2b_code_interpreter.charts import ChartType


def test_the_quick_start(sandbox):
    sandbox.run_code("x = 1")
    execution = sandbox.run_code("x+=1; x")
    assert execution.text == "2"


@pytest.mark.parametrize(
    "code, fields",
    [
        ("'text'", {"text": "text"}),
        ("[1, {'a': None}]", {"text": "[1, {'a': None}]", "json": [1, {"a": None}]}),
        ("[float('nan')]", {"text": "[nan]", "json": [None]}),
        ("HTML('<b>')", {"html": "<b>"}),
        ("Markdown('# x')", {"markdown": "# x"}),
        ("SVG('<svg/>')", {"svg": "<svg/>"}),
        ("Latex('$x$')", {"latex": "$x$"}),
        ("JSON({'a': 1})", {"json": {"a": 1}}),
        ("Javascript('1')", {"javascript": "1"}),
        ("pd.DataFrame({'n': [1, 2], 't': pd.to_datetime(['2020-01-01', None])})", {"data": {"n": [1, 2], "t": ["2020-01-01T00:00:00", "NaT"]}}),
        ("display({'application/x-own': 'own'}, raw=True)", {"extra": {"application/x-own": "own"}}),
        ("Image.new('RGB', (1, 1)).save('/tmp/x.png')", {"text": "<PIL.Image.Image image mode=RGB size=1x1>"}),
    ],
)
def test_a_result_of_each_kind(sandbox, code, fields):
    sandbox.run_code("from IPython.display import *\nimport pandas as pd\nfrom PIL import Image")
    got = sandbox.run_code(code)
    assert got.error is None, got.error
    assert {k: getattr(got.results[0], k) for k in fields} == fields


def test_figures_are_pictures_and_charts(sandbox):
    got = sandbox.run_code("import matplotlib.pyplot as plt\nplt.bar(['a', 'b'], [1, 2])\nplt.title('T')\nplt.show()").results
    assert len(got) == 1 and got[0].png and not got[0].is_main_result
    assert (got[0].chart.type, got[0].chart.title, [(e.label, e.value) for e in got[0].chart.elements]) == (ChartType.BAR, "T", [("a", 1), ("b", 2)])


def test_output_of_cells_and_of_their_programs(sandbox):
    said = []
    got = sandbox.run_code(
        "import os, subprocess, sys\nprint('a')\nprint('b', file=sys.stderr)\nsubprocess.run(['echo', 'c'])\nos.system('echo d >&2')\nprint('e', end='')",
        on_stdout=lambda m: said.append(m.line),
    )
    assert ("".join(got.logs.stdout), "".join(got.logs.stderr)) == ("a\nc\ne", "b\nd\n")
    assert "".join(said) == "a\nc\ne"


def test_much_output_comes_whole(sandbox):
    got = sandbox.run_code("for i in range(10): print(str(i) * 1_000_000)")
    assert "".join(got.logs.stdout) == "".join(str(i) * 1_000_000 + "\n" for i in range(10))


def test_a_result_that_is_too_large_is_said_to_be(sandbox):
    got = sandbox.run_code("'x' * (100 << 20)")
    assert "left out" in got.text and "larger than 32 MiB" in got.logs.stderr[0]
    assert sandbox.run_code("1").text == "1"


def test_errors_have_a_traceback(sandbox):
    error = sandbox.run_code("def f():\n    1/0\nf()").error
    assert (error.name, error.value) == ("ZeroDivisionError", "division by zero")
    assert "Traceback (most recent call last)" in error.traceback and "\x1b" not in error.traceback
    assert sandbox.run_code("def f(:").error.name == "SyntaxError"


def test_input_is_refused(sandbox):
    assert sandbox.run_code("input()").error.name == "StdinNotImplementedError"


def test_variables_of_the_sandbox_and_of_a_cell(sandbox):
    value = "'\"\\\n$(id) é"
    assert sandbox.run_code("import os; os.environ['OF_THE_SANDBOX']").text == "yes"
    assert sandbox.run_code("os.environ['V'] == " + repr(value), envs={"V": value}).text == "True"
    assert sandbox.run_code("os.environ.get('V', 'gone')").text == "gone"
    assert sandbox.run_code("os.environ['OF_THE_SANDBOX']", envs={"OF_THE_SANDBOX": "no"}).text == "no"
    assert sandbox.run_code("os.environ['OF_THE_SANDBOX']").text == "yes"


def test_cells_run_as_the_user_with_pip(sandbox):
    assert sandbox.run_code("import getpass, os; os.getcwd(), os.environ['HOME'], os.getuid() != 0").text == "('/home/user', '/home/user', True)"
    assert "/opt/code-interpreter" in sandbox.run_code("!pip --version").logs.stdout[0]


def test_contexts(sandbox):
    sandbox.run_code("mine = 1")
    context = sandbox.create_code_context(cwd="/tmp")
    assert sandbox.run_code("import os; os.getcwd()", context=context).text == "/tmp"
    assert sandbox.run_code("mine", context=context).error.name == "NameError"
    listed = sandbox.list_code_contexts()
    assert [c.language for c in listed[:2]] == ["python", "javascript"] and {c.cwd for c in listed[:2]} == {"/home/user"}
    assert (listed[-1].id, listed[-1].cwd, listed[-1].language) == (context.id, "/tmp", "python")
    sandbox.run_code("a = 1", context=context)
    sandbox.restart_code_context(context)
    assert sandbox.run_code("a", context=context).error.name == "NameError"
    assert sandbox.run_code("os = 1; __import__('os').getcwd()", context=context).text == "/tmp"
    sandbox.remove_code_context(context)
    with pytest.raises(NotFoundException):
        sandbox.run_code("1", context=context)
    assert context.id not in [c.id for c in sandbox.list_code_contexts()] and sandbox.run_code("mine").text == "1"


def test_what_cannot_be_is_refused(sandbox):
    with pytest.raises(SandboxException, match='no kernel for the language "nope"'):
        sandbox.create_code_context(language="nope")
    with pytest.raises(SandboxException, match="Failed to set working directory"):
        sandbox.create_code_context(cwd="/nope")
    with pytest.raises(SandboxException, match="Failed to set working directory"):
        sandbox.create_code_context(cwd="nope")


def post(sandbox, path="/execute", headers=None, **body):
    headers = token(sandbox) if headers is None else headers
    headers = {"E2b-Sandbox-Id": sandbox.sandbox_id, "E2b-Sandbox-Port": "49999", **headers}
    return httpx.post(os.environ["E2B_SANDBOX_URL"] + path, headers=headers, timeout=60, **body)


def test_raw_answers_are_as_the_originals(sandbox):
    got = post(sandbox, json={"code": "print('a')\n'it'", "context_id": None, "language": None, "env_vars": None})
    lines = [line.split(b'"timestamp"')[0] for line in got.content.splitlines()]
    assert lines[0].startswith(b'{"type": "number_of_executions", "execution_count": ')
    assert lines[1:] == [
        b'{"type": "stdout", "text": "a\\n", ',
        b'{"type": "result", "text": "it", "extra": {}, "is_main_result": true}',
        b'{"type": "end_of_execution"}',
    ]
    assert "content-type" not in got.headers
    assert (post(sandbox, json={"code": "1", "context_id": "x", "language": "python"}).status_code, post(sandbox, json={}).status_code) == (400, 422)
    assert post(sandbox, content=b"no JSON").status_code == 422
    assert post(sandbox, json={"code": "1", "env_vars": {"a=b": "c"}}).status_code == 422
    got = post(sandbox, json={"code": "1", "context_id": "x"})
    assert (got.status_code, got.text) == (404, "Context x not found")


def test_code_needs_the_token_of_a_secure_sandbox(sandbox):
    # Sandboxes of this generation of the API are secure: the token came with the creation.
    assert post(sandbox, json={"code": "1"}, headers={}).status_code == 401
    assert post(sandbox, json={"code": "1"}, headers={"X-Access-Token": "x"}).status_code == 401
    assert post(sandbox, json={"code": "1"}).status_code == 200


def test_a_sandbox_that_is_killed_is_told(sandbox):
    with create() as s:
        s.run_code("1")
        timer = threading.Timer(1, s.kill)
        timer.start()
        with pytest.raises(TimeoutException, match="killed"):
            s.run_code("import time; time.sleep(300)")


def test_other_languages(sandbox):
    run = sandbox.run_code
    assert run("[1, process.cwd()]", language="js").results[0].json == [1, "/home/user"]
    assert run("const x: number = 2; x", language="ts").text == "2"
    assert run("echo $OF_THE_SANDBOX $V", language="bash", envs={"V": "v"}).logs.stdout == ["yes v\n"]
    assert run("process.env.OF_THE_SANDBOX", language="javascript").text == "yes"
    context = sandbox.create_code_context(language="bash", cwd="/root")
    assert run("pwd", context=context).logs.stdout == ["/root\n"]
    sandbox.remove_code_context(context)


@pytest.mark.parametrize("sleep", ["import time; time.sleep(600)", "import subprocess; subprocess.run(['sleep', '600'])", "while True: pass"])
def test_a_cell_whose_time_is_over_is_interrupted_and_its_kernel_stays(sandbox, sleep):
    sandbox.run_code("kept = 5")
    with pytest.raises(TimeoutException):
        sandbox.run_code(sleep, timeout=1)
    assert sandbox.run_code("kept").text == "5"


def test_a_cell_that_waits_is_taken_back_when_its_client_leaves(sandbox):
    async def both():
        s = await AsyncSandbox.connect(sandbox.sandbox_id)
        first = asyncio.create_task(s.run_code("import time; time.sleep(5); taken = 'no'"))
        await asyncio.sleep(1)
        with pytest.raises(TimeoutException):
            await s.run_code("taken = 'yes'", timeout=1)
        assert (await first).error is None
        return await s.run_code("taken")

    assert asyncio.run(both()).text == "no"


def test_contexts_run_side_by_side(sandbox):
    other = sandbox.create_code_context()

    async def both():
        s = await AsyncSandbox.connect(sandbox.sandbox_id)
        waits = s.run_code("import os, time\nwhile not os.path.exists('/tmp/go'): time.sleep(0.01)\nos.remove('/tmp/go')")
        return await asyncio.gather(waits, s.run_code("open('/tmp/go', 'w').close()", context=other))

    assert [e.error for e in asyncio.run(both())] == [None, None]
    sandbox.remove_code_context(other)


def test_a_kernel_that_dies_is_told_and_another_follows(sandbox):
    context = sandbox.create_code_context()
    assert sandbox.run_code("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", context=context).error.name == "ContextRestarting"
    assert sandbox.run_code("1+1", context=context).text == "2"
    sandbox.remove_code_context(context)


def test_processes_that_a_cell_forks_say_what_they_say(sandbox):
    code = "import multiprocessing\ndef f(x):\n    print('in')\n    return x * x\nwith multiprocessing.Pool(2) as p:\n    print(p.map(f, [2]))"
    assert sorted("".join(sandbox.run_code(code).logs.stdout).split()) == ["[4]", "in"]


def test_paused_kernels_go_on():
    with create() as s:
        s.run_code("k = 7")
        s.pause()
        assert Sandbox.connect(s.sandbox_id).run_code("k").text == "7"


def test_other_sandboxes_have_no_interpreter():
    with create(template="base") as s, pytest.raises(TimeoutException):
        s.run_code("1")
