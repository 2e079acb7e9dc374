"""tend's own SDK for Python, whose cells are those of E2B's packages: code.py, with ../python in PYTHONPATH."""

import base64
import os
import signal

import tend
from conftest import role
from e2b_code_interpreter import Sandbox

URL = os.environ["E2B_API_URL"]


with tend.Client.connect(URL) as client:
    box = client.create_sandbox(template="code-interpreter-v1", isolation="full", timeout=600, env={"ALWAYS": "1"})
    try:
        seen = []
        r = box.code("import os\nprint('out')\nn = 20\nos.environ['ALWAYS'] + os.environ['ONCE']", env={"ONCE": "2"}, on_event=lambda e: seen.append(e["type"]))
        assert (r.text, r.stdout, r.stderr, r.error, r.count, r.timed_out) == ("12", "out\n", "", None, 1, False), r
        assert seen == ["number_of_executions", "stdout", "result", "end_of_execution"], seen
        r = box.code("import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.show()")
        assert base64.b64decode(r.values[0]["png"]).startswith(b"\x89PNG") and r.values[0]["chart"]["type"] == "line", r
        r = box.code("1/0")
        assert r.error.name == "ZeroDivisionError" and "1/0" in r.error.traceback, r
        assert box.code("echo $((6 * 7))", language="bash").stdout == "42\n"
        late = box.code("import time; time.sleep(600)", timeout=1)
        assert late.timed_out and late.error.name == "KeyboardInterrupt", late
        # A cell whose server is killed meanwhile goes on, and its output is whole.
        killed = []

        def kill(event):
            if event["type"] == "stdout" and not killed:
                killed.append(role("server"))
                os.kill(killed[0], signal.SIGKILL)

        r = box.code("for i in range(20):\n    print(i, flush=True); time.sleep(0.1)\nn", on_event=kill)
        assert (r.text, r.stdout) == ("20", "".join(f"{i}\n" for i in range(20))) and killed[0], r
        # It is the same context that E2B's package has, and others beside it.
        assert Sandbox.connect(box.id).run_code("n + 1").text == "21"
        other = box.code_contexts.create(dir="/tmp")
        assert other in box.code_contexts.list() and other.dir == "/tmp"
        assert box.code("import os\nos.getcwd(), 'n' in globals()", context=other.id).text == "('/tmp', False)"
        box.code_contexts.restart(other.id)
        box.code_contexts.remove(other.id)
        box.code_contexts.remove(other.id)
        try:
            box.code("1", context=other.id)
            raise AssertionError("a context that is removed runs code")
        except tend.NotFoundError:
            pass
        try:
            box.code("1", language="java")
            raise AssertionError("Java has a kernel")
        except tend.InvalidError as err:
            assert "there are python" in str(err), err
    finally:
        box.destroy()
    bare = client.create_sandbox(timeout=600)
    try:
        bare.code("1")
        raise AssertionError("a sandbox without kernels runs code")
    except tend.UnsupportedError as err:
        assert "code-interpreter-v1" in str(err), err
    finally:
        bare.destroy()
print("the SDK for Python runs code")
