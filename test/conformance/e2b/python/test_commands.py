import asyncio
import hashlib
import os
import pwd

import pytest
from e2b import (
    AuthenticationException,
    CommandExitException,
    InvalidArgumentException,
    NotFoundException,
    SandboxException,
    TimeoutException,
)

from conftest import ME, begun, call, in_time, until


def touch(path):
    open(path, "w").close()


def content(path):
    with open(path) as f:
        return f.read()


async def ends_with(flavor, handle, code, **callbacks):
    with pytest.raises(CommandExitException) as err:
        await flavor.wait(handle, **callbacks)
    assert err.value.exit_code == code
    return err.value


async def test_runs_as_the_user_in_its_home(flavor, user):
    name = user or ME
    home = pwd.getpwnam(name).pw_dir
    res = await flavor.run('id -un; pwd; echo "$HOME $USER $LOGNAME"', user=user)
    assert res.stdout == f"{name}\n{home}\n{home} {name} {name}\n"
    assert (res.exit_code, res.stderr, res.error) == (0, "", None)


async def test_exit_code_error_and_both_outputs(flavor, user):
    with pytest.raises(CommandExitException) as err:
        await flavor.run("echo out; echo err >&2; exit 7", user=user)
    assert (err.value.exit_code, err.value.error) == (7, "exit status 7")
    assert (err.value.stdout, err.value.stderr) == ("out\n", "err\n")


async def test_unknown_user_is_refused(flavor):
    with pytest.raises(AuthenticationException, match="invalid username: 'no-such-user'"):
        await flavor.run("true", user="no-such-user")


async def test_missing_cwd_is_refused(flavor):
    with pytest.raises(InvalidArgumentException, match="cwd '/nope' does not exist"):
        await flavor.run("true", cwd="/nope")


async def test_missing_command_is_127(flavor):
    with pytest.raises(CommandExitException) as err:
        await flavor.run("no-such-command-at-all")
    assert err.value.exit_code == 127
    assert "not found" in err.value.stderr


async def test_death_by_signal_is_minus_one(flavor):
    with pytest.raises(CommandExitException) as err:
        await flavor.run("kill -TERM $$")
    assert (err.value.exit_code, err.value.error) == (-1, "signal: terminated")


async def test_environment_and_cwd(flavor, scratch):
    res = await flavor.run('printf "%s|%s|%s" "$A" "$HOME" "$PWD"', envs={"A": 'b c=d "e"', "HOME": "/tmp"}, cwd=scratch)
    assert res.stdout == f'b c=d "e"|/tmp|{scratch}'


async def test_callbacks_get_each_stream_in_order(flavor):
    out, err = [], []
    res = await flavor.run(
        "for i in $(seq 100); do echo o$i; echo e$i >&2; done", on_stdout=out.append, on_stderr=err.append
    )
    assert "".join(out) == res.stdout == "".join(f"o{i}\n" for i in range(1, 101))
    assert "".join(err) == res.stderr == "".join(f"e{i}\n" for i in range(1, 101))


async def test_split_characters_arrive_whole(flavor):
    text = "grüß 世界 🚀"
    res = await flavor.run(f'for b in $(echo {text.encode().hex()} | fold -w2); do printf "\\\\x$b"; sleep 0.003; done')
    assert res.stdout == text


async def test_64_mib_arrive_byte_for_byte(flavor):
    lines = 64 * 1024 * 1024 // 16
    state = {"bytes": 0}
    digest = hashlib.sha256()

    def take(text):
        state["bytes"] += len(text)
        digest.update(text.encode())

    await flavor.run(
        f"awk 'BEGIN {{ for (i = 0; i < {lines}; i++) printf \"%015d\\n\", i }}'",
        on_stdout=take, timeout=0, retain_output=False,
    )
    want = hashlib.sha256()
    for at in range(0, lines, 4096):
        want.update("".join(f"{i:015d}\n" for i in range(at, min(at + 4096, lines))).encode())
    assert state["bytes"] == 64 * 1024 * 1024
    assert digest.hexdigest() == want.hexdigest()


async def test_stdin_is_closed_unless_asked_for(flavor):
    assert (await flavor.run("cat; echo end")).stdout == "end\n"


async def test_stdin_and_its_end(flavor, tmp_path):
    tmp_path.chmod(0o755)
    # It lives until its input was closed a second time: one that has ended is not found.
    handle = await flavor.background(f"cat; echo end; until [ -e {tmp_path}/closed ]; do sleep 0.05; done", stdin=True)
    await call(handle.send_stdin("héllo\n"))
    await call(flavor.sbx.commands.send_stdin(handle.pid, b"bye\n"))
    await call(handle.close_stdin())
    await call(flavor.sbx.commands.close_stdin(handle.pid))
    (tmp_path / "closed").touch()
    assert (await flavor.wait(handle)).stdout == "héllo\nbye\nend\n"


async def test_streamed_input_arrives_whole(flavor):
    parts = [os.urandom(256 * 1024) for _ in range(32)]
    handle = await flavor.background("sha256sum", stdin=True)
    if flavor.name == "sync":
        flavor.sbx.commands.stream_input(handle.pid, iter(parts))
    else:
        async with flavor.sbx.commands.stream_input(handle.pid) as stream:
            for part in parts:
                await stream.send(part)
    await call(handle.close_stdin())
    assert (await flavor.wait(handle)).stdout == hashlib.sha256(b"".join(parts)).hexdigest() + "  -\n"


async def test_streamed_input_to_nobody_is_not_found(flavor):
    with pytest.raises(NotFoundException):
        if flavor.name == "sync":
            flavor.sbx.commands.stream_input(4_000_000, [b"x"])
        else:
            async with flavor.sbx.commands.stream_input(4_000_000) as stream:
                await stream.send(b"x")


async def test_input_without_stdin_is_refused(flavor):
    handle = await flavor.background("sleep 60")
    with pytest.raises(SandboxException, match="stdin not enabled or closed"):
        await call(flavor.sbx.commands.send_stdin(handle.pid, "x"))
    assert await call(handle.kill())


async def test_listed_with_its_config_and_killed(flavor):
    handle = await flavor.background("sleep 60", envs={"MARK": "x"}, cwd="/tmp")
    mine = next(p for p in await call(flavor.sbx.commands.list()) if p.pid == handle.pid)
    assert (mine.cmd, mine.args, mine.envs, mine.cwd) == ("/bin/bash", ["-l", "-c", "sleep 60"], {"MARK": "x"}, "/tmp")
    assert await call(handle.kill()) is True
    assert (await ends_with(flavor, handle, -1)).error == "signal: killed"

    async def gone():
        return all(p.pid != handle.pid for p in await call(flavor.sbx.commands.list()))

    await until("gone from the list", gone)
    assert await call(flavor.sbx.commands.kill(handle.pid)) is False


async def test_killing_nobody_is_false(flavor):
    assert await call(flavor.sbx.commands.kill(4_000_000)) is False


async def test_disconnecting_ends_nothing(flavor):
    handle = await flavor.background("sleep 60", timeout=0)
    await call(handle.disconnect())
    assert await flavor.alive(handle.pid)
    assert await call(flavor.sbx.commands.kill(handle.pid)) is True


async def test_connect_to_a_running_command(flavor, scratch):
    first = await flavor.background(f"while [ ! -e {scratch}/go ]; do sleep 0.02; done; echo after; exit 3")
    second = await call(flavor.sbx.commands.connect(first.pid))
    assert second.pid == first.pid
    touch(f"{scratch}/go")
    assert (await ends_with(flavor, second, 3)).stdout == "after\n"
    assert (await ends_with(flavor, first, 3)).stdout == "after\n"


async def test_connect_to_a_finished_command(flavor):
    handle = await flavor.background("echo hello; exit 5")
    await ends_with(flavor, handle, 5)
    late = await call(flavor.sbx.commands.connect(handle.pid))
    err = await ends_with(flavor, late, 5)
    assert (err.stdout, err.error) == ("", "exit status 5")


async def test_connect_to_nobody_is_not_found(flavor):
    with pytest.raises(NotFoundException, match="process with pid 4000000 not found"):
        await call(flavor.sbx.commands.connect(4_000_000))


async def test_a_grandchild_with_the_output_does_not_delay_the_end(flavor, scratch):
    with pytest.raises(CommandExitException) as err:
        await flavor.run(f"sleep 300 & echo $! > {scratch}/pid; exit 5")
    assert err.value.exit_code == 5
    pid = int(content(f"{scratch}/pid"))
    assert await flavor.alive(pid), "the grandchild must go on"
    await flavor.run(f"kill -9 {pid}")


async def test_timeout_ends_the_command(flavor, scratch):
    async def attempt(seconds):
        with pytest.raises(TimeoutException):
            await flavor.run(f"echo $$ > {scratch}/pid; exec sleep 60", timeout=seconds)
        return os.path.exists(f"{scratch}/pid")

    await in_time(1.5, attempt)
    pid = int(content(f"{scratch}/pid"))

    async def gone():
        return not await flavor.alive(pid)

    await until("the process is gone", gone)


async def test_timeout_of_a_connection_ends_the_connection_only(flavor):
    handle = await flavor.background("sleep 60", timeout=0)

    async def connect(seconds):
        return await call(flavor.sbx.commands.connect(handle.pid, timeout=seconds))

    async def attempt(seconds):
        second = await begun(connect(seconds))
        if second:
            with pytest.raises(TimeoutException):
                await flavor.wait(second)
        return second

    await in_time(0.5, attempt)
    assert await flavor.alive(handle.pid)
    assert await call(flavor.sbx.commands.kill(handle.pid)) is True


async def test_16_commands_at_once(flavor):
    if flavor.name == "async":
        runs = [flavor.sbx.commands.run(f"seq {i} {i + 200}") for i in range(16)]
    else:
        runs = [asyncio.to_thread(flavor.sbx.commands.run, f"seq {i} {i + 200}") for i in range(16)]
    for i, res in enumerate(await asyncio.gather(*runs)):
        assert res.stdout == "".join(f"{i + n}\n" for n in range(201))


async def test_is_running(flavor):
    assert await call(flavor.sbx.is_running()) is True
