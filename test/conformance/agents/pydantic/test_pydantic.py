"""The E2B backend of Pydantic AI: the suite that Pydantic AI has for each backend, and what this one does in a way of its own.

It starts each command by `setsid sh -c`, and stops one by a signal to its group.
"""

import anyio
import pytest
from pydantic_ai.workspaces import Workspace, WorkspaceOutputLimitError, WorkspaceTimeoutError
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite
from pydantic_ai_harness.e2b_sandbox import E2BSandbox, E2BSandboxBackend

PATIENCE = 120  # seconds; it only ends tests that fail


@pytest.fixture
def anyio_backend():
    return "asyncio"


async def kill(backend):
    if backend.ref is not None:
        await E2BSandbox().destroy(backend.ref)


@pytest.fixture
async def backends():
    """Makes backends, and ends the sandboxes that they made."""
    made = []

    def make(**options):
        made.append(E2BSandboxBackend(**options))
        return made[-1]

    yield make
    for backend in made:
        await kill(backend)


@pytest.fixture
async def backend(backends):
    return backends()


class TestConformance(WorkspaceBackendSuite):
    @pytest.fixture
    async def backend(self, backends):
        return backends()

    @pytest.fixture
    def fresh_backend(self, backends):
        return backends

    @pytest.fixture
    def attach_backend(self):
        return lambda ref: E2BSandboxBackend(ref=ref)

    @pytest.fixture
    def destroy_environment(self):
        return kill

    # As Pydantic AI says of E2B: a command has ended when its output has, and files are root's matter.
    @pytest.fixture
    def can_detect_exit_with_inherited_output_pipes(self):
        return False

    @pytest.fixture
    def filesystem_honors_shell_permissions(self):
        return False

    async def test_symlink_loop_does_not_break_listing(self, backend):
        """With E2B a list has no links that lead nowhere, which Pydantic AI's own run on it leaves out."""
        workspace = Workspace(backend)
        assert (await backend.run("mkdir links && cd links && ln -s loop loop && ln -s /nowhere gone && touch file", shell=True)).exit_code == 0
        assert [entry.name for entry in await workspace.list_dir("links")] == ["file"]
        await workspace.remove("links")


def parts(result):
    return result.exit_code, result.stdout, result.stderr


async def gone(backend, pids):
    with anyio.fail_after(PATIENCE):
        for pid in pids:
            while (await backend.run(["kill", "-0", pid])).exit_code == 0:
                await anyio.sleep(0.05)


@pytest.mark.anyio
class TestOwn:
    @pytest.mark.parametrize("code", [0, 1, 2, 3, 42, 126, 255])
    async def test_exit_codes(self, backend, code):
        assert parts(await backend.run(["sh", "-c", f"echo out; echo err >&2; exit {code}"])) == (code, "out\n", "err\n")

    async def test_late_output_and_code(self, backend):
        assert parts(await backend.run("echo soon; sleep 2; echo late; exit 3", shell=True)) == (3, "soon\nlate\n", "")

    async def test_many_at_once(self, backend):
        found = {}

        async def one(n):
            found[n] = parts(await backend.run(f"sleep 1; echo {n}; exit {n}", shell=True))

        async with anyio.create_task_group() as group:
            for n in range(20):
                group.start_soon(one, n)
        assert found == {n: (n, f"{n}\n", "") for n in range(20)}

    async def test_a_command_leads_its_group(self, backend):
        """Its stop looks for this; else it would signal nobody."""
        result = await backend.run("ps -o pid= -o pgid= -o sid= -p $$", shell=True)
        assert result.exit_code == 0 and len(set(result.stdout.split())) == 1, result

    async def test_a_timeout_ends_the_group(self, backend):
        script = "trap '' TERM; (trap '' TERM; sleep 3600) & echo $$ $! >pids; echo begun; wait"
        for seconds in (2, 10, 50):  # the time also covers the start
            with pytest.raises(WorkspaceTimeoutError) as caught:
                await backend.run(script, shell=True, timeout=seconds)
            if caught.value.stdout:
                break
        assert caught.value.stdout == "begun\n"
        await gone(backend, (await backend.read_bytes("pids")).decode().split())

    async def test_too_much_output_ends_the_command(self, backend):
        with pytest.raises(WorkspaceOutputLimitError):
            # Without end, but not faster than a busy client reads: what it has not read goes once there is more than is kept.
            await backend.run("echo $$ >pid; while :; do head -c 65536 /dev/zero | tr '\\0' y; done", shell=True)
        await gone(backend, (await backend.read_bytes("pid")).decode().split())

    async def test_a_working_directory_that_only_root_can_make(self, backends):
        backend = backends(working_dir="/workspace/app", env={"ALWAYS": "1"})
        assert parts(await backend.run("pwd; echo $ALWAYS; touch mine", shell=True)) == (0, "/workspace/app\n1\n", "")
        await backend.write_bytes("/srv/data/file", b"data")
        assert parts(await backend.run("cat /srv/data/file; echo more >>/srv/data/file; stat -c '%U %a' /srv/data", shell=True)) == (0, "datauser 755\n", "")

    async def test_attached_again_after_a_pause(self, backend):
        await backend.write_bytes("kept", b"1")
        await (await backend.get_sandbox()).pause()
        attached = E2BSandboxBackend(ref=backend.ref)
        assert parts(await attached.run(["sh", "-c", "cat kept; exit 4"])) == (4, "1", "")
