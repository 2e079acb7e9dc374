"""LangChain's standard suite for sandboxes, on each of the backends by which deepagents reaches tend."""

import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

from backends import on_e2b, on_langsmith


class TestE2B(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with on_e2b() as backend:
            yield backend


class TestLangSmith(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with on_langsmith() as backend:
            yield backend
