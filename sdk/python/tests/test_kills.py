"""Roles are killed while output and input of both clients flow: no byte is lost or doubled, and each status is the kernel's."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable

import tend
from conftest import PATIENCE, Daemon

KILLS = ["server", "keeper", "anchor", "server", "keeper", "server"]
COUNT = 'i=0; while [ ! -e "$STOP" ]; do i=$((i+1)); echo "line $i"; [ $((i % 50)) = 0 ] && sleep 0.02; done; exit 7'
RETRY = tend.Retry(attempts=40)


class Flow:
    """What one client does: a process that counts until it is told to stop, and one that repeats its input until then."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self.daemon = daemon
        self.stop = daemon.dir / f"stop-{name}"
        self.sent: list[bytes] = []
        self.got: dict[str, list[bytes]] = {"count": [], "echo": []}
        self.codes: dict[str, int] = {}
        self.runs = 0

    def take(self, of: str, event: tend.Event) -> None:
        assert not isinstance(event, tend.Gap)
        if isinstance(event, tend.Output):
            assert event.offset == sum(map(len, self.got[of]))
            self.got[of].append(event.data)
        if isinstance(event, tend.Exited):
            assert of not in self.codes
            self.codes[of] = event.exit.code

    def line(self, n: int) -> bytes:
        self.sent.append(b"%d %s\n" % (n, b"x" * (n % 1000)))
        return self.sent[-1]

    def check(self) -> None:
        lines = b"".join(self.got["count"]).splitlines()
        assert lines == [b"line %d" % i for i in range(1, len(lines) + 1)] and lines
        assert b"".join(self.got["echo"]) == b"".join(self.sent) and self.sent
        assert self.codes == {"count": 7, "echo": 0} and self.runs

    def sync(self) -> None:
        with tend.Client.connect(self.daemon.socket, retry=RETRY) as client:
            count = client.start(COUNT, env={"STOP": str(self.stop)})
            echo = client.start(["cat"], stdin="pipe")

            def read(of: str, process: tend.Process) -> None:
                for event in process.read():
                    self.take(of, event)

            def feed() -> None:
                for n in itertools.count():
                    echo.write(self.line(n))
                    if self.stop.exists():
                        return echo.close_stdin()

            def run() -> None:
                while not self.stop.exists():
                    assert client.run("echo $((6 * 7))").stdout == b"42\n"
                    self.runs += 1

            together([lambda: read("count", count), lambda: read("echo", echo), feed, run])

    async def asynchronous(self) -> None:
        async with await tend.AsyncClient.connect(self.daemon.url, retry=RETRY) as client:
            count = await client.start(COUNT, env={"STOP": str(self.stop)})
            echo = await client.start(["cat"], stdin="pipe")

            async def read(of: str, process: tend.AsyncProcess) -> None:
                events = process.read()
                while True:
                    # What is cancelled on its way is delivered by the next call.
                    try:
                        async with asyncio.timeout(0.05 if len(self.got[of]) % 7 == 0 else PATIENCE):
                            event = await anext(events)
                    except TimeoutError:
                        async with asyncio.timeout(PATIENCE):
                            event = await anext(events, None)  # type: ignore[arg-type]
                    except StopAsyncIteration:
                        return
                    if event is None:
                        return
                    self.take(of, event)

            async def feed() -> None:
                for n in itertools.count():
                    await echo.write(self.line(n))
                    if self.stop.exists():
                        return await echo.close_stdin()

            async def run() -> None:
                while not self.stop.exists():
                    assert (await client.run("echo $((6 * 7))")).stdout == b"42\n"
                    self.runs += 1

            async with asyncio.TaskGroup() as tasks:
                for work in (read("count", count), read("echo", echo), feed(), run()):
                    tasks.create_task(work)


def together(works: list[Callable[[], None]]) -> None:
    """All at once; the first error is told when all have ended."""
    errors: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as err:
            errors.append(err)

    threads = [threading.Thread(target=guarded, args=(w,)) for w in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_killed_roles_cost_no_byte() -> None:
    daemon = Daemon()
    try:
        flows = Flow(daemon, "sync"), Flow(daemon, "async")

        def kill() -> None:
            try:
                for role in KILLS:
                    had = [len(f.sent) for f in flows], [len(f.got["count"]) for f in flows]
                    waiting = threading.Event()
                    while any(len(f.sent) <= n for f, n in zip(flows, had[0])) or any(len(f.got["count"]) <= n for f, n in zip(flows, had[1])):
                        if any(not t.is_alive() for t in running):
                            return  # it has failed, and says why
                        waiting.wait(0.05)
                    daemon.kill(role)
            finally:
                for flow in flows:
                    flow.stop.touch()

        running: list[threading.Thread] = []

        def watched(work: Callable[[], None]) -> Callable[[], None]:
            def inner() -> None:
                running.append(threading.current_thread())
                work()

            return inner

        together([kill, watched(flows[0].sync), watched(lambda: asyncio.run(flows[1].asynchronous()))])
        for flow in flows:
            flow.check()
    finally:
        daemon.stop()


def test_input_is_closed_by_a_server_that_took_none_of_it() -> None:
    daemon = Daemon()
    try:
        with tend.Client.connect(daemon.url, retry=RETRY) as client:
            cat = client.start(["cat"], stdin="pipe")
            cat.write(b"all of it")
            daemon.kill("server")
            cat.close_stdin()
            assert b"".join(cat.output()) == b"all of it"
    finally:
        daemon.stop()
