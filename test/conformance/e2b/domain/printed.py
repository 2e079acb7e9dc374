"""E2B's own quick starts, for commands or for the code interpreter, as its packages print them: printed.py DIRECTORY-OF-node_modules [code]

They are read from the README that pip and npm have installed with the package, and run with nothing but the variables that are set.
"""

import re
import subprocess
import sys
import tempfile
from importlib.metadata import metadata
from pathlib import Path

modules = Path(sys.argv[1])
if sys.argv[2:] == ["code"]:
    PYTHON, NODE, PYTHON_CALL, NODE_CALL, WANT = "e2b-code-interpreter", "@e2b/code-interpreter", "run_code(", "runCode(", "2"
else:
    PYTHON, NODE, PYTHON_CALL, NODE_CALL, WANT = "e2b", "e2b", "commands.run(", "commands.run(", "Hello from E2B!"


def first(text, language, call):
    """The first example that makes the call."""
    for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S):
        if call in block:
            return block
    raise SystemExit(f"the package prints no example in {language} with {call}")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=modules.parent)
    assert done.returncode == 0 and done.stdout.strip() == WANT, f"{command}: {done.returncode}, {done.stdout}{done.stderr}"


run(sys.executable, "-c", first(metadata(PYTHON).get_payload() or metadata(PYTHON)["Description"], "py", PYTHON_CALL))
with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=modules.parent) as program:  # where its packages are found
    program.write(first((modules / NODE / "README.md").read_text(), "ts", NODE_CALL))
    program.flush()
    run("node", program.name)
print("E2B's quick starts work as its packages print them")
