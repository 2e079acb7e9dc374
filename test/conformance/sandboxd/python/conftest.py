"""What the suite shares: the two listeners, the package's own classes over them, and a directory for each test."""

import os
import time

import pytest
import requests
from k8s_agent_sandbox.commands.command_executor import CommandExecutor
from k8s_agent_sandbox.connector import SandboxConnector
from k8s_agent_sandbox.files.filesystem import Filesystem
from k8s_agent_sandbox.models import SandboxdInClusterConnectionConfig

REST, GRPC = int(os.environ["SANDBOXD_REST"]), int(os.environ["SANDBOXD_GRPC"])
ROOT = os.environ["SANDBOXD_ROOT"]
BASE = f"http://127.0.0.1:{REST}/v1"
ORIGINAL = "SANDBOXD_ORIGINAL" in os.environ
PATIENCE = 120  # seconds; it only ends what fails


def either(tend, original):
    """What is wanted where the two differ on purpose: docs/protocols/sandboxd.md has a row for each."""
    return original if ORIGINAL else tend


def until(what, check):
    end = time.monotonic() + PATIENCE
    while not (value := check()):
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.02)
    return value


def rest(method, path, **more):
    return requests.request(method, BASE + path, timeout=PATIENCE, allow_redirects=False, **more)


def serves():
    try:
        return rest("GET", "/health").ok
    except requests.ConnectionError:
        return False


@pytest.fixture(scope="session", autouse=True)
def served():
    until("it serves", serves)


class NoCluster:
    injected_api_client = None


@pytest.fixture(scope="session")
def connector():
    """The class that all of the package's own use, told where the pod is in place of a cluster."""
    config = SandboxdInClusterConnectionConfig(mode="in-cluster-pod-ip", rest_port=REST, grpc_port=GRPC)
    c = SandboxConnector("sandbox", "default", config, NoCluster(), get_pod_ip=lambda: "127.0.0.1")
    yield c
    c.close()


@pytest.fixture
def files(connector):
    return Filesystem(connector, None, "tests")


@pytest.fixture
def commands(connector):
    return CommandExecutor(connector, None, "tests")


@pytest.fixture
def name(request):
    """A directory of the root for this test alone, by its name."""
    name = request.node.name.translate(str.maketrans("[]/% ", "_____"))
    os.mkdir(f"{ROOT}/{name}")
    return name
