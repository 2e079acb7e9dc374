"""What a cancellation ends, and what it leaves alone."""

from __future__ import annotations

import asyncio

import pytest
import tend
from conftest import PATIENCE, Daemon


async def some_live(client: tend.AsyncClient, label: str, wanted: bool) -> list[tend.Info]:
    """The processes with a label that run, once there are some, or none."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await client.list(live=True, labels={"of": label})
            if bool(found) == wanted:
                return found
            await asyncio.sleep(0.05)


async def test_a_run_that_is_cancelled_kills_its_command(daemon: Daemon) -> None:
    async with await tend.AsyncClient.connect(daemon.socket) as client:
        label = tend.new_id()
        task = asyncio.create_task(client.run("sleep 600", labels={"of": label}))
        await some_live(client, label, True)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await some_live(client, label, False) == []


async def test_a_run_that_is_cancelled_while_it_starts_leaves_nothing(daemon: Daemon) -> None:
    async with await tend.AsyncClient.connect(daemon.socket) as client:
        label = tend.new_id()
        for turns in range(20):
            task = asyncio.create_task(client.run("sleep 600", labels={"of": label}))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await some_live(client, label, False) == []


async def test_other_calls_that_are_cancelled_leave_the_process_alone(daemon: Daemon) -> None:
    async with await tend.AsyncClient.connect(daemon.socket) as client:
        label = tend.new_id()
        process = await client.start("sleep 600", labels={"of": label})
        for waiting in (process.wait(), anext(aiter(process.read(start={"stdout": -1}, streams=["stdout"])))):
            task = asyncio.ensure_future(waiting)
            await asyncio.sleep(0.05)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert [i.id for i in await client.list(live=True, labels={"of": label})] == [process.id]
        await process.kill()
