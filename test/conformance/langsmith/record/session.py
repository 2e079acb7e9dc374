"""What is recorded of the PyPI SDK: session.py URL."""

import contextlib
import sys

from langsmith.sandbox import SandboxClient, SandboxClientError

client = SandboxClient(api_endpoint=sys.argv[1] + "/v2/sandboxes", api_key="key")
box = client.create_sandbox(name="recorded")
box.run("echo out; sleep 0.2; echo err >&2; exit 3")
box.run("printf 'a\\377\"\\n'; printf \"$A\"", run_config={"env_vars": {"A": "b"}, "work_dir": "/"})
handle = box.run("read x; echo got $x; cat", wait=False, close_input=False)
handle.send_input("it\n")
handle.send_input("more")
handle.close_input()
handle.result
box.reconnect(handle.command_id, stdout_offset=4).result
with contextlib.suppress(SandboxClientError):
    box.run("sleep 300", timeout=1)
with contextlib.suppress(SandboxClientError):
    box.reconnect("nobody").result
with contextlib.suppress(SandboxClientError):
    box.run("true", cwd="/no/such/dir")
box.run("stty size", pty=True)
box.write("f.txt", b"text")
box.read("f.txt")
box.read_range("f.txt", start=1, end=2)
with contextlib.suppress(SandboxClientError):
    box.read("missing")
client.get_sandbox_status("recorded")
with contextlib.suppress(SandboxClientError):
    client.get_sandbox("unknown")
box.stop()
box.start()
box.delete()
