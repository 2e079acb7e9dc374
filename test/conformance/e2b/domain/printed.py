"""E2B's own quick starts for commands, as its packages print them: printed.py DIRECTORY-OF-node_modules

They are read from the README that pip and npm have installed with the package, and run with nothing but the variables that are set.
"""

import re
import subprocess
import sys
import tempfile
from importlib.metadata import metadata
from pathlib import Path

WANT = "Hello from E2B!"
modules = Path(sys.argv[1])


def first(text, language):
    """The first example that runs a command."""
    for block in re.findall(rf"^```{language}\n(.*?)^```$", text, re.M | re.S):
        if "commands.run(" in block:
            return block
    raise SystemExit(f"the package prints no example in {language} that runs a command")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=modules.parent)
    assert done.returncode == 0 and done.stdout.strip() == WANT, f"{command}: {done.returncode}, {done.stdout}{done.stderr}"


run(sys.executable, "-c", first(metadata("e2b").get_payload() or metadata("e2b")["Description"], "py"))
with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=modules.parent) as program:  # where its packages are found
    program.write(first((modules / "e2b" / "README.md").read_text(), "ts"))
    program.flush()
    run("node", program.name)
print("E2B's quick starts work as its packages print them")
