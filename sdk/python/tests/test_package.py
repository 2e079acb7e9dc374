"""The package as it is published: its files, its types, and the README's examples. TEND_WHEEL and TEND_SDIST name what was built."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
import tend
from conftest import Daemon

README = Path(__file__).resolve().parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.M | re.S)


def test_it_has_what_it_needs_and_nothing_else() -> None:
    assert "site-packages" in tend.__file__, "the wheel is what is tested"
    with zipfile.ZipFile(os.environ["TEND_WHEEL"]) as wheel:
        names = wheel.namelist()
        metadata = next(wheel.read(n).decode() for n in names if n.endswith("/METADATA"))
    tops = {n.split("/")[0].split("-")[0] for n in names}
    assert tops == {"tend", "tend_client"} and "tend/py.typed" in names and any(n.endswith("licenses/LICENSE") for n in names)
    assert [re.split(r"\W", d)[0] for d in re.findall(r"^Requires-Dist: (.*)$", metadata, re.M)] == ["httpcore"]
    with tarfile.open(os.environ["TEND_SDIST"]) as sdist:
        inside = {n.split("/", 1)[1].split("/")[0] for n in sdist.getnames()}
    assert inside == {"src", "README.md", "CHANGELOG.md", "LICENSE", "PKG-INFO", "pyproject.toml", ".gitignore"} - ({".gitignore"} - inside)


@pytest.mark.parametrize("n", range(len(EXAMPLES)))
def test_the_examples_of_the_readme_do_what_they_say(n: int, daemon: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "example.py"
    file.write_text(EXAMPLES[n])
    run = subprocess.run([sys.executable, file], env={**os.environ, "TEND_URL": daemon.socket}, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    said = re.findall(r"print\(.*# (.*)$", EXAMPLES[n], re.M)
    assert said and run.stdout.split() == " ".join(said).split()
