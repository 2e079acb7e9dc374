"""What README.md shows of the SDK works as it stands there."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_example_of_the_readme():
    readme = (Path(__file__).resolve().parents[4] / "README.md").read_text()
    shown = re.search(r"^E2B_DEBUG=true python3 -c '(from e2b import .*)'$", readme, re.MULTILINE)
    assert shown, "README.md has no line: E2B_DEBUG=true python3 -c 'from e2b import …'"
    done = subprocess.run([sys.executable, "-c", shown[1]], env=os.environ, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.strip()) == (0, "hello"), done.stderr
