"""The two backends by which deepagents reaches tend: langchain-e2b's, and its own for LangSmith."""

import os
from contextlib import contextmanager

import e2b
from deepagents.backends.langsmith import LangSmithSandbox
from langchain_e2b import E2BSandbox
from langsmith.sandbox import SandboxClient

PATIENCE = 120.0  # seconds; it only ends tests that fail


@contextmanager
def on_e2b():
    raw = e2b.Sandbox.create(timeout=600)
    try:
        yield E2BSandbox(sandbox=raw)
    finally:
        raw.kill()


@contextmanager
def on_langsmith():
    endpoint, key = os.environ["TEND_E2B_URL"] + "/v2/sandboxes", os.environ.get("TEND_TOKEN", "any")
    client = SandboxClient(api_endpoint=endpoint, api_key=key, timeout=PATIENCE)
    raw = client.create_sandbox()
    try:
        # LangSmith's default snapshot has a python, which the machine's files may lack; base, as E2B has it, has one.
        raw.run("command -v python || ln -s $(command -v python3) /usr/local/bin/python")
        yield LangSmithSandbox(sandbox=raw)
    finally:
        raw.delete()


BACKENDS = {"e2b": on_e2b, "langsmith": on_langsmith}
