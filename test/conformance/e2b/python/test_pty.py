import pwd

import pytest
from e2b import CommandExitException, NotFoundException, PtySize, SandboxException, TimeoutException

from conftest import ME, begun, call, in_time, until


async def test_shell_of_the_user_with_a_terminal_of_the_size(flavor, user):
    term = await flavor.terminal(PtySize(rows=31, cols=101), user=user)
    await term.type('echo "<$(id -un)|$(tty | cut -c1-9)|$(stty size)|$TERM|$PWD>"\n')
    home = pwd.getpwnam(user or ME).pw_dir
    await term.sees(f"<{user or ME}|/dev/pts/|31 101|xterm-256color|{home}>")
    await term.type("exit\n")
    assert (await term.ends()).exit_code == 0


async def test_exit_code(flavor):
    term = await flavor.terminal()
    await term.type("exit 9\n")
    with pytest.raises(CommandExitException) as err:
        await term.ends()
    assert err.value.exit_code == 9


async def test_resize(flavor):
    term = await flavor.terminal()
    await call(flavor.sbx.pty.resize(term.handle.pid, PtySize(rows=43, cols=132)))
    await term.type('echo "<$(stty size)>"\n')
    await term.sees("<43 132>")
    assert await call(flavor.sbx.pty.kill(term.handle.pid)) is True
    with pytest.raises(CommandExitException) as err:
        await term.ends()
    assert err.value.exit_code == -1
    assert await call(flavor.sbx.pty.kill(term.handle.pid)) is False


async def test_envs_and_cwd(flavor):
    term = await flavor.terminal(envs={"FOO": "bär"}, cwd="/tmp")
    await term.type('echo "<$FOO $PWD>"\n')
    await term.sees("<bär /tmp>")
    await term.type("exit\n")
    await term.ends()


async def test_ctrl_c_and_ctrl_d(flavor):
    term = await flavor.terminal()
    await term.type("sh -c 'echo beg\"\"un; exec sleep 60'\n")
    await term.sees("begun\r")
    await term.type("\x03")
    await term.type('echo "<status $?>"\n')
    await term.sees("<status 130>")
    # The shell reads ctrl-d as an end only once it has set up its prompt.
    await term.type("PS1='pro''mpt>'\n")
    await term.sees("prompt>")
    await term.type("\x04")
    assert (await term.ends()).exit_code == 0


async def test_connect_gets_the_same_terminal(flavor):
    term = await flavor.terminal()
    await term.type('A=kept; echo re""ady\n')
    await term.sees("ready\r")
    again = await flavor.reconnect(term)
    await again.type('echo "<$A>"\n')
    await again.sees("<kept>")
    await term.sees("<kept>")
    await again.type("exit\n")
    assert (await again.ends()).exit_code == 0
    assert (await term.ends()).exit_code == 0


async def test_streamed_input(flavor):
    term = await flavor.terminal()
    parts = [b"echo one", b"two", b"\n"]
    if flavor.name == "sync":
        flavor.sbx.pty.stream_input(term.handle.pid, parts)
    else:
        async with flavor.sbx.pty.stream_input(term.handle.pid) as stream:
            for part in parts:
                await stream.send(part)
    await term.sees("onetwo\r\n")
    await term.type("exit\n")
    await term.ends()


async def test_timeout_ends_the_terminal(flavor):
    term = None

    async def attempt(seconds):
        nonlocal term
        term = await begun(flavor.terminal(timeout=seconds))
        return term

    await in_time(1, attempt)
    with pytest.raises(TimeoutException):
        await term.ends()

    async def gone():
        return not await flavor.alive(term.handle.pid)

    await until("the shell is gone", gone)


async def test_unknown_terminals(flavor):
    with pytest.raises(NotFoundException):
        await call(flavor.sbx.pty.resize(4_000_000, PtySize(rows=24, cols=80)))
    with pytest.raises(NotFoundException):
        await call(flavor.sbx.pty.send_stdin(4_000_000, b"x"))
    assert await call(flavor.sbx.pty.kill(4_000_000)) is False


async def test_a_process_without_a_terminal(flavor):
    handle = await flavor.background("sleep 60")
    with pytest.raises(SandboxException, match="tty not assigned to process"):
        await call(flavor.sbx.pty.resize(handle.pid, PtySize(rows=24, cols=80)))
    assert await call(handle.kill())
